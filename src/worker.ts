import { isDeepStrictEqual } from 'node:util';
import { makeTelemetryFilterString, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { pino, type Level } from 'pino';
import { ConfigError, loadConfig, resolveConnection, type Config } from './config';
import { createHostWorker } from './host-worker';
import type { HostLog } from './host/log';
import { NoTemporalError } from './no-temporal-error';
import { SystemdPlugin } from './plugin';
import { ownersWorkflows } from './workflow-bundle';

/**
 * The worker process of a host: serves what `config.run` names until SIGTERM or SIGINT, and ends in under two seconds.
 * All units go on; the next worker process goes on holding them by their tokens. SIGHUP reads the programs of its file again.
 *
 * Rejects with `ConfigError` or `ClaimedError` when this host can't be served as it is configured, and with
 * {@link NoTemporalError} when there is no server: whoever started the process starts it again.
 */
export async function runWorker(config: Config): Promise<void> {
  const { connectionOptions, namespace } = resolveConnection(config.connection, process.env, config.file);
  const log = structuredLog();
  Runtime.install({
    logger: {
      ...log,
      trace: (message, meta) => log.debug(message, meta),
      log: (level, message, meta) => log[levelOf(level)](message, meta),
    },
    // What the native core says goes the same way, as JSON lines.
    telemetryOptions: { logging: { forward: {}, filter: makeTelemetryFilterString({ core: 'WARN' }) } },
  });
  let current = config;
  let served: Pick<SystemdPlugin, 'reload'> | undefined;
  const onHangup = (): void => {
    current = readAgain(current, log);
    served?.reload(current);
  };
  process.on('SIGHUP', onHangup);
  try {
    const connection = await NativeConnection.connect(connectionOptions).catch((error: unknown) => {
      throw new NoTemporalError(connectionOptions.address, error);
    });
    try {
      log.info('connected', { address: connectionOptions.address, namespace, run: config.run });
      if (!config.run.includes('workflows')) {
        const hostWorker = await createHostWorker({ config: current, connection, namespace, log });
        served = hostWorker;
        hostWorker.reload(current); // it may have been read again while the host was opened
        return await hostWorker.run();
      }
      const plugin = new SystemdPlugin(current, { log });
      served = plugin;
      const worker = await Worker.create({
        connection,
        namespace,
        taskQueue: config.taskQueue,
        ...ownersWorkflows(),
        plugins: [plugin],
        // A worker that was killed delays its owners' next task by this, instead of ten seconds.
        stickyQueueScheduleToStartTimeout: '1 s',
        // A thousand cached owners take 600 MB; replaying one of their short histories takes milliseconds.
        maxCachedWorkflows: 200,
      });
      await worker.run();
    } finally {
      await connection.close();
    }
  } finally {
    process.off('SIGHUP', onHangup);
  }
}

/** The configuration's file as it is now. One that can't be used is said, and changes nothing. */
function readAgain(former: Config, log: HostLog): Config {
  let config: Config;
  try {
    config = loadConfig(former.file);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    log.error('the configuration is not taken: it can’t be used', { file: former.file, error: error.message });
    return former;
  }
  const parts = (['connection', 'taskQueue', 'run', 'host'] as const).filter(
    (part) => !isDeepStrictEqual(config[part], former[part]),
  );
  if (parts.length > 0) log.warn('changed as well, and taken at the next start of the worker', { parts });
  log.info('configuration read again', { file: former.file, programs: Object.keys(config.programs) });
  return { ...former, programs: config.programs };
}

/** JSON lines on standard output, as the journal and log shippers take them; level by `LOG_LEVEL` (default `info`). */
function structuredLog(): HostLog {
  const logger = pino({ level: process.env.LOG_LEVEL ?? 'info', base: { name: 'temporal-systemd' } });
  const at =
    (level: Level) =>
    (message: string, attributes: Record<string, unknown> = {}): void =>
      logger[level](plain(attributes), message);
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** The SDK's level, in this log's words. */
function levelOf(level: string): keyof HostLog {
  return level === 'ERROR' ? 'error' : level === 'WARN' ? 'warn' : level === 'INFO' ? 'info' : 'debug';
}

/** The SDK's attributes may hold 64-bit integers, which JSON has not. */
function plain(attributes: Record<string, unknown>): Record<string, unknown> {
  const entries = Object.entries(attributes);
  return Object.fromEntries(entries.map(([key, value]) => [key, typeof value === 'bigint' ? String(value) : value]));
}
