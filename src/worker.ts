import { makeTelemetryFilterString, NativeConnection, Runtime, Worker } from '@temporalio/worker';
import { pino, type Level } from 'pino';
import { resolveConnection, type Config } from './config';
import { createHostWorker } from './host-worker';
import type { HostLog } from './host/log';
import { NoTemporalError } from './no-temporal-error';
import { SystemdPlugin } from './plugin';
import { ownersWorkflows } from './workflow-bundle';

/**
 * The worker process of a host: serves what `config.run` names until SIGTERM or SIGINT, and ends in under two seconds.
 * All units go on; the next worker process goes on holding them by their tokens.
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
  const connection = await NativeConnection.connect(connectionOptions).catch((error: unknown) => {
    throw new NoTemporalError(connectionOptions.address, error);
  });
  try {
    log.info('connected', { address: connectionOptions.address, namespace, run: config.run });
    if (!config.run.includes('workflows')) {
      const hostWorker = await createHostWorker({ config, connection, namespace, log });
      return await hostWorker.run();
    }
    const worker = await Worker.create({
      connection,
      namespace,
      taskQueue: config.taskQueue,
      ...ownersWorkflows(),
      plugins: [new SystemdPlugin(config, { log })],
      // A worker that was killed delays its owners' next task by this, instead of ten seconds.
      stickyQueueScheduleToStartTimeout: '1 s',
      // A thousand cached owners take 600 MB; replaying one of their short histories takes milliseconds.
      maxCachedWorkflows: 200,
    });
    await worker.run();
  } finally {
    await connection.close();
  }
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
