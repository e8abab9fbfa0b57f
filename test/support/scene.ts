import { Worker } from '@temporalio/worker';
import type { WorkflowHandle, WorkflowHandleWithFirstExecutionRunId } from '@temporalio/client';
import { OwnershipClient, type LiveStatus, type OwnReturn } from '../../src/client';
import type { Program } from '../../src/config';
import { ownerWorkflowId } from '../../src/contract/names';
import { OWNER_WORKFLOW, type OwnInput } from '../../src/contract/owner';
import { hostIdOf, startWorker, workflowBundle, type RunningWorker, type RunningWorkerOptions } from './running-worker';
import { openTemporalServer, type TemporalServer } from './temporal-server';
import { openTestHost, type TestHost } from './test-host';
import { until } from './until';

export type History = Awaited<ReturnType<WorkflowHandle['fetchHistory']>>;

export interface SceneOptions {
  readonly server?: TemporalServer;
  readonly testHost?: TestHost;
  /** What runs from the start. Default: one worker for both. */
  readonly workers?: readonly Pick<RunningWorkerOptions, 'run' | 'hostId'>[];
}

/** A Temporal server, a systemd host and workers, with what tests of owners do again and again. */
export class Scene {
  readonly client: OwnershipClient;
  private readonly running = new Set<RunningWorker>();

  private constructor(
    readonly server: TemporalServer,
    readonly testHost: TestHost,
    private readonly programs: readonly Program[],
  ) {
    this.client = new OwnershipClient(server.client, { taskQueue: server.taskQueue });
  }

  static async open(programs: readonly Program[], options: SceneOptions = {}): Promise<Scene> {
    const [server, testHost] = await Promise.all([
      options.server ?? openTemporalServer(),
      options.testHost ?? openTestHost(),
    ]);
    const scene = new Scene(server, testHost, programs);
    try {
      for (const worker of options.workers ?? [{}]) await scene.startWorker(worker);
    } catch (error) {
      await scene.end();
      throw error;
    }
    return scene;
  }

  /** Starts another worker, by default as the first one. */
  async startWorker(options: Partial<RunningWorkerOptions> = {}): Promise<RunningWorker> {
    const { server, testHost, programs } = this;
    const worker = await startWorker({ server, testHost, programs, ...options });
    const running: RunningWorker = {
      ...worker,
      stop: async () => {
        if (this.running.delete(running)) await worker.stop();
      },
    };
    this.running.add(running);
    return running;
  }

  /** Servers are shared between test files: a resource's name is this file's own. */
  resource(name: string): string {
    return `${name}/${this.server.taskQueue.slice(-12)}`;
  }

  hostId(hostId?: string): string {
    return hostIdOf({ server: this.server, hostId });
  }

  own(
    name: string,
    program: string,
    parameters: Readonly<Record<string, string>> = {},
    hostId?: string,
  ): Promise<OwnReturn> {
    return this.client.own({ resource: this.resource(name), program, host: this.hostId(hostId), parameters });
  }

  /** The owner's workflow, whichever run it is in. */
  workflow(name: string): WorkflowHandle {
    return this.server.client.workflow.getHandle(ownerWorkflowId(this.resource(name)));
  }

  /** Starts an owner without the client, for what the client does not offer. */
  async startOwner(
    name: string,
    program: string,
    input: Partial<OwnInput> = {},
  ): Promise<WorkflowHandleWithFirstExecutionRunId> {
    const { taskQueue } = this.server;
    const own: OwnInput = {
      resource: this.resource(name),
      program,
      host: this.hostId(),
      parameters: {},
      requestId: '-',
      ...input,
    };
    return this.server.client.workflow.start(OWNER_WORKFLOW, {
      workflowId: ownerWorkflowId(this.resource(name)),
      taskQueue,
      args: [own],
      memo: { owned: { host: own.host, program, parameters: own.parameters } },
    });
  }

  /** Waits for a status that fits. */
  status(name: string, what: string, fits: (status: LiveStatus) => boolean): Promise<LiveStatus> {
    const handle = this.client.handle(this.resource(name));
    return until(`${name} ${what}`, async () => {
      const status = await handle.status();
      if (fits(status)) return status;
      throw new Error(JSON.stringify(status));
    });
  }

  /** Main process of a unit as its host numbers it; 0 when there is none. */
  async mainPid(unit: string): Promise<number> {
    return Number(await this.testHost.systemctl('show', '--property=MainPID', '--value', unit));
  }

  /** Waits for the end of a unit's main process. */
  async ended(unit: string): Promise<void> {
    await until(`${unit} has ended`, async () => (await this.mainPid(unit)) === 0);
  }

  /** The loaded services of a resource that are not over. */
  async living(name: string): Promise<readonly string[]> {
    const escaped = this.resource(name).replace(/[^A-Za-z0-9]/g, (c) => `_${c.charCodeAt(0).toString(16)}`);
    const pattern = `*-${escaped}-g*.service`;
    const list = await this.testHost.systemctl(
      'list-units',
      '--plain',
      '--no-legend',
      '--state=active,activating,deactivating',
      pattern,
    );
    return list
      .split('\n')
      .flatMap((line) => line.split(/\s+/)[0] ?? [])
      .filter((unit) => /-g[0-9]+\.service$/.test(unit));
  }

  /** Every run of every owner of this scene. */
  async histories(): Promise<readonly { readonly workflowId: string; readonly history: History }[]> {
    const { client, taskQueue } = this.server;
    const query = `TaskQueue = '${taskQueue}' AND WorkflowType = '${OWNER_WORKFLOW}'`;
    const found = [];
    for await (const { workflowId, runId } of client.workflow.list({ query })) {
      found.push({ workflowId, history: await client.workflow.getHandle(workflowId, runId).fetchHistory() });
    }
    return found;
  }

  /** Replays every history of this scene, and returns how many there were; rejects where the code is not deterministic. */
  async replay(): Promise<number> {
    const histories = await until('the owners are listed', async () => {
      const found = await this.histories();
      return found.length > 0 && found;
    });
    const bundle = await workflowBundle();
    for (const { workflowId, history } of histories) {
      await Worker.runReplayHistory({ workflowBundle: bundle }, history, workflowId);
    }
    return histories.length;
  }

  async end(): Promise<void> {
    for (const worker of [...this.running]) await worker.stop();
    await this.testHost.end();
    await this.server.stop();
  }
}
