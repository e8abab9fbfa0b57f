import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadClientConnectConfig } from '@temporalio/envconfig';
import { TestWorkflowEnvironment, type ExistingServerTestWorkflowEnvironmentOptions } from '@temporalio/testing';
import { DefaultLogger, makeTelemetryFilterString, Runtime, type LogLevel } from '@temporalio/worker';
import { DevServer, type DevServerOptions } from './dev-server';
import { sharedServerAddress } from './shared-server';

export { resolveTemporalCli } from './temporal-cli';

/** A real Temporal server, with connections that belong to the one who opened it. */
export interface TemporalServer extends Pick<
  TestWorkflowEnvironment,
  'address' | 'client' | 'connection' | 'nativeConnection'
> {
  readonly namespace: string;
  /** Of this opening alone: servers are shared between test files. */
  readonly taskQueue: string;
  /** Where its UI is, if it was asked for and this is our own server. */
  readonly uiUrl: string | undefined;
  /** Environment variables by which another process connects to it. */
  readonly env: Readonly<Record<'TEMPORAL_ADDRESS' | 'TEMPORAL_NAMESPACE', string>>;
  /** Closes the connections, and ends the server where this opening started it. */
  stop(): Promise<void>;
}

/** A server that a test may take away. Its state is in a file, its port stays the same, its connections reconnect. */
export interface OwnTemporalServer extends TemporalServer {
  /** Ends the server process alone; `SIGKILL` for a crash. */
  shutDown(signal?: NodeJS.Signals): Promise<void>;
  /** Starts it again with the state that it had. */
  startAgain(): Promise<void>;
}

/**
 * Connects to the server at TEMPORAL_ADDRESS (with all else that the Temporal environment configuration says), else to
 * the one that jest's global setup started for this run, else to one that is started here. Options that only a server
 * of one's own can fulfil start one, unless there is TEMPORAL_ADDRESS.
 */
export async function openTemporalServer(options: DevServerOptions = {}): Promise<TemporalServer> {
  if (process.env.TEMPORAL_ADDRESS) {
    const { namespace, connectionOptions } = loadClientConnectConfig();
    const { address, apiKey, metadata, tls } = connectionOptions;
    return connect({ address, namespace, connectionOptions: { apiKey, metadata, tls } });
  }
  const shared = options.ui || options.port || options.dbFilename ? undefined : sharedServerAddress();
  if (shared) return connect({ address: shared });
  const server = await DevServer.open(options);
  return connect({ address: server.address }, server);
}

/** Always starts a server, whatever the environment says. Without `dbFilename` its state is in a file of its own. */
export async function openOwnTemporalServer(options: DevServerOptions = {}): Promise<OwnTemporalServer> {
  const folder = options.dbFilename ? undefined : await mkdtemp(join(tmpdir(), 'temporal-systemd-server-'));
  const server = await DevServer.open({ dbFilename: folder && join(folder, 'temporal.db'), ...options });
  const open = await connect({ address: server.address }, server);
  return {
    ...open,
    shutDown: (signal) => server.end(signal),
    startAgain: () => server.start(),
    async stop() {
      await open.stop();
      if (folder) await rm(folder, { recursive: true });
    },
  };
}

async function connect(
  options: ExistingServerTestWorkflowEnvironmentOptions,
  server?: DevServer,
): Promise<TemporalServer> {
  quietenRuntime();
  const environment = await TestWorkflowEnvironment.createFromExistingServer(options).catch(async (error: unknown) => {
    await server?.end('SIGKILL');
    throw new Error(`No Temporal server answers at ${options.address}`, { cause: error });
  });
  const { address, client, connection, nativeConnection, namespace = 'default' } = environment;
  return {
    address,
    client,
    connection,
    nativeConnection,
    namespace,
    taskQueue: `test-${randomUUID()}`,
    uiUrl: server?.uiUrl,
    env: { TEMPORAL_ADDRESS: address, TEMPORAL_NAMESPACE: namespace },
    async stop() {
      await environment.teardown();
      await server?.end();
    },
  };
}

/** Tests cause faults on purpose, and the SDK warns of each. TEMPORAL_SYSTEMD_TEST_LOG=WARN shows them. */
function quietenRuntime(): void {
  const level = (process.env.TEMPORAL_SYSTEMD_TEST_LOG ?? 'ERROR') as LogLevel;
  const logging = { filter: makeTelemetryFilterString({ core: level }), forward: {} };
  try {
    Runtime.install({ logger: new DefaultLogger(level), telemetryOptions: { logging } });
  } catch {
    // There is one per process: a test that installed its own, or opened a server before, keeps that one.
  }
}
