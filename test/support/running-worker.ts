import { bundleWorkflowCode, DefaultLogger, Worker, type WorkflowBundleWithSourceMap } from '@temporalio/worker';
import { OwnershipClient } from '../../src/client';
import type { CapacityConfig, Config, Program } from '../../src/config';
import { createHostWorker } from '../../src/host-worker';
import { SystemdPlugin } from '../../src/plugin';
import { collectingLog, type LogLine } from './owned-host';
import type { TemporalServer } from './temporal-server';
import type { TestHost } from './test-host';

/** A worker in this process: for owners, for a host, or both. */
export interface RunningWorker {
  readonly client: OwnershipClient;
  /** Everything the host has logged. */
  readonly lines: readonly LogLine[];
  /** Shuts down and waits; the processes go on. */
  stop(): Promise<void>;
}

export interface RunningWorkerOptions {
  readonly server: TemporalServer;
  readonly testHost: TestHost;
  readonly programs: readonly Program[];
  /** Default both. */
  readonly run?: Config['run'];
  /** Default `h1`. */
  readonly hostId?: string;
  /** Default the server's. */
  readonly taskQueue?: string;
  readonly stateDirectory?: string;
  readonly unitPrefix?: string;
  readonly resyncMs?: number;
  readonly capacity?: CapacityConfig;
}

/** The configuration of a worker on a test host. */
export function configOf(options: RunningWorkerOptions): Config {
  const { server, testHost, programs, run = ['workflows', 'host'] } = options;
  return {
    file: 'temporal.yaml',
    connection: { address: server.address, namespace: server.namespace },
    taskQueue: options.taskQueue ?? server.taskQueue,
    run,
    host: {
      id: hostIdOf(options),
      stateDirectory: options.stateDirectory ?? testHost.stateDirectory,
      runDirectory: testHost.runDirectory,
      resyncMs: options.resyncMs ?? 15_000,
      capacity: options.capacity ?? {},
      systemd: {
        busAddress: testHost.busAddress,
        manager: testHost.manager,
        cgroupRoot: 'auto',
        unitPrefix: options.unitPrefix ?? testHost.unitPrefix,
      },
    },
    programs: Object.fromEntries(programs.map((program) => [program.name, program])),
  };
}

let bundle: Promise<WorkflowBundleWithSourceMap> | undefined;

/** The owners' workflow code, bundled once per test process. */
export function workflowBundle(): Promise<WorkflowBundleWithSourceMap> {
  bundle ??= bundleWorkflowCode({
    workflowsPath: require.resolve('../../src/workflows'),
    logger: new DefaultLogger('ERROR'),
  });
  return bundle;
}

/** Starts a worker in this process and resolves once it polls. */
export async function startWorker(options: RunningWorkerOptions): Promise<RunningWorker> {
  const { server, testHost } = options;
  const config = configOf(options);
  const lines: LogLine[] = [];
  const log = collectingLog(lines);
  const client = new OwnershipClient(server.client, { taskQueue: config.taskQueue });
  const shared = { connection: server.nativeConnection, namespace: server.namespace };
  const root = testHost.root;

  if (!config.run.includes('workflows')) {
    const worker = await createHostWorker({ ...shared, config, log, root });
    const running = worker.run();
    running.catch(() => undefined); // stop() tells
    return {
      client,
      lines,
      stop: async () => {
        worker.shutdown();
        await running;
      },
    };
  }
  const worker = await Worker.create({
    ...shared,
    taskQueue: config.taskQueue,
    workflowBundle: await workflowBundle(),
    plugins: [new SystemdPlugin(config, { root, log })],
    stickyQueueScheduleToStartTimeout: '1 s',
  });
  const running = worker.run();
  running.catch(() => undefined);
  return {
    client,
    lines,
    stop: async () => {
      if (worker.getState() === 'RUNNING') worker.shutdown();
      await running;
    },
  };
}

/** The host id that {@link configOf} gives. */
export function hostIdOf(options: Pick<RunningWorkerOptions, 'server' | 'hostId'>): string {
  return `${options.hostId ?? 'h1'}-${options.server.taskQueue}`.slice(0, 64);
}
