import { SimplePlugin } from '@temporalio/plugin';
import { NativeConnection, Runtime, type Worker, type WorkerOptions } from '@temporalio/worker';
import type { Config } from './config';
import type { HostLog } from './host/log';
import { createHostWorker, type HostWorker } from './host-worker';

export interface SystemdPluginOptions {
  /** Where the host writes what it does. Default: the Temporal runtime's logger. */
  readonly log?: HostLog;
  /** The host's root directory as seen from here, for a host in namespaces. Default `/`. */
  readonly root?: string;
}

/**
 * Serves a systemd host beside the worker that it is given to: `plugins: [new SystemdPlugin(config)]`. Does so only where
 * `config.run` has `host`. The host has a task queue and an activity worker of its own, on the same connection, and ends
 * with the worker; its processes go on.
 *
 * The constructor opens nothing, so that the plugin can be named at bundling as well. A plugin can't put workflows into
 * your bundle: re-export them with `export * from 'temporal-systemd/workflows'`. Pass it once, to the worker.
 */
export class SystemdPlugin extends SimplePlugin {
  /** What the worker was made with: the host's own worker is made from it. */
  private workerOptions: WorkerOptions | undefined;
  private hostWorker: HostWorker | undefined;

  constructor(
    private config: Config,
    private readonly settings: SystemdPluginOptions = {},
  ) {
    super({ name: 'temporal-systemd.SystemdPlugin' });
  }

  /**
   * Takes over the programs of a configuration that was read again, without a restart: what runs goes on as it was started,
   * and its owner's status says that its program has changed. Everything else of a configuration needs a new worker.
   */
  reload({ programs }: Pick<Config, 'programs'>): void {
    this.config = { ...this.config, programs };
    this.hostWorker?.reload({ programs });
  }

  override configureWorker(options: WorkerOptions): WorkerOptions {
    this.workerOptions = super.configureWorker(options);
    return this.workerOptions;
  }

  override async runWorker(worker: Worker, next: (worker: Worker) => Promise<void>): Promise<void> {
    const options = this.workerOptions;
    if (!this.config.run.includes('host') || !options) return super.runWorker(worker, next);
    const log = this.settings.log ?? Runtime.instance().logger;
    const runWorker = (): Promise<void> => super.runWorker(worker, next);
    // As the worker itself does without one: the SDK's default address.
    const connection = options.connection ?? (await NativeConnection.connect());
    try {
      const opening = createHostWorker({
        config: this.config,
        connection,
        namespace: options.namespace ?? 'default',
        log,
        root: this.settings.root,
        worker: { dataConverter: options.dataConverter },
      });
      const hostWorker = await opening.catch((error: unknown) => giveUp(worker, runWorker, error));
      hostWorker.reload(this.config); // it may have been read again meanwhile
      this.hostWorker = hostWorker;
      await beside(hostWorker, worker, runWorker);
    } finally {
      this.hostWorker = undefined;
      if (connection !== options.connection) await connection.close();
    }
  }
}

/**
 * The host can't be opened. A worker that never ran keeps its connection from being closed, and only running lets go of
 * it; so it runs and ends at once, and the caller gets the host's error.
 */
async function giveUp(worker: Worker, runWorker: () => Promise<void>, error: unknown): Promise<never> {
  const ran = runWorker();
  if (worker.getState() === 'RUNNING') worker.shutdown();
  await ran.catch(() => undefined); // the host's error came first
  throw error;
}

/** Runs both until the worker ends; a host that fails takes the worker with it, for owners would wait in vain. */
async function beside(host: HostWorker, worker: Worker, runWorker: () => Promise<void>): Promise<void> {
  const serving = host.run();
  const watched = serving.catch((error: unknown) => {
    if (worker.getState() === 'RUNNING') worker.shutdown();
    throw error;
  });
  watched.catch(() => undefined); // awaited below, also when the worker ends with an error of its own
  try {
    await runWorker();
  } finally {
    host.shutdown();
    await watched;
  }
}
