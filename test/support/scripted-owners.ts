import { randomUUID } from 'node:crypto';
import { Worker, type WorkerOptions } from '@temporalio/worker';
import { NoOwnerError, RequestRefusedError } from '../../src/client/errors';
import { OwnerCalls } from '../../src/client/owner-calls';
import { OwnerHandle } from '../../src/client/owner-handle';
import { hostTaskQueue, ownerWorkflowId } from '../../src/contract/names';
import {
  OWNER_WORKFLOW,
  readyUpdate,
  releaseUpdate,
  requestStopSignal,
  restartUpdate,
  stopUpdate,
  type OwnInput,
} from '../../src/contract/owner';
import { workflowBundle } from './running-worker';
import type { History } from './scene';
import { scriptedActivities, ScriptedHost, type HostScript } from './scripted-host';
import { openTemporalServer, type TemporalServer } from './temporal-server';
import { Told } from './told';

export interface Ask {
  readonly what:
    | 'stop'
    | 'stop now'
    | 'restart'
    | 'release'
    | 'ready'
    | 'status'
    | 'signal'
    | 'cancel'
    | 'stale stop'
    | 'stale signal'
    | 'reset';
  /** Asked once the host was called so many times more, or nothing happens any more. */
  readonly calls: number;
  readonly afterMs: number;
  /** A reset goes back by so many workflow tasks. */
  readonly back: number;
  /** The next one waits for the answer. */
  readonly alone: boolean;
}

/** One owner's life: what its host does, and what people ask of it. In the end it is asked to stop in any case. */
export interface OwnerScript {
  readonly host: HostScript;
  readonly asks: readonly Ask[];
  /** So many of the requests come before the host does. */
  readonly early: number;
  readonly stepsPerRun?: number;
  /** The worker forgets the owner after each task: every next one is a replay. */
  readonly evicted: boolean;
}

export interface Run {
  readonly runId: string;
  readonly workflowId: string;
  readonly history: History;
}

/** What one owner has come to. */
export interface Life {
  /** What an owner must not do, and this one did. */
  readonly wrong: readonly string[];
  /** What it was told and asked, for whoever has to find out why. */
  readonly said: readonly string[];
  /** What it came to, in words to count. */
  readonly kinds: ReadonlySet<string>;
  /** Every run, the first one first. */
  readonly runs: readonly Run[];
}

/**
 * An owner that has not ended so long after it was asked to stop has forgotten it. The longest that scripts lead to: a start that
 * nobody answers (its heartbeat timeout is 20 s), then a ladder begun at SIGKILL whose third answer is not the proof yet (the
 * owner watches for a minute before it tries again).
 */
const END_MS = 120_000;

/** More starts and stops than any script leads to: an owner that asks again and again. */
const MAX_CALLS = 60;

/**
 * RESET_REAPPLY_EXCLUDE_TYPE_UPDATE: of the requests that came after the point, a reset brings back signals alone. Updates that
 * it has brought back were seen to be replayed by SDK 1.24 in another order than they had come in.
 */
const EXCLUDE_UPDATES = 2;

/** When nothing is heard of an owner for so long, longer than most of its waits, whoever waits for it goes on. */
const SILENT_MS = 2_500;

/** A request that has no answer after so long has none. */
const ANSWER_MS = 60_000;

/** Host that is there from the start. */
const THERE = 'there';

/** Owners that live by scripts, as many at once as one likes: the real workflow on a real server and real workers. */
export class ScriptedOwners {
  private readonly hosts = new Map<string, ScriptedHost>();
  private readonly activities = scriptedActivities((resource) => this.hosts.get(resource)!);
  private readonly lives = new Set<Promise<Life>>();
  private readonly workers: RunningWorker[] = [];
  private count = 0;
  private isOver = false;

  private constructor(private readonly server: TemporalServer) {}

  static async open(): Promise<ScriptedOwners> {
    const owners = new ScriptedOwners(await openTemporalServer());
    try {
      for (const evicted of [false, true]) await owners.serve(evicted);
    } catch (error) {
      await owners.end();
      throw error;
    }
    return owners;
  }

  /** One owner's life, to its end. Never rejects. */
  live(script: OwnerScript): Promise<Life> {
    const name = `${this.count++}`;
    const life = this.liveOn(name, script).catch((error: unknown): Life => {
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      return { wrong: [`the test itself: ${text}`], said: [], kinds: new Set(), runs: [] };
    });
    this.lives.add(life);
    void life.then(() => this.lives.delete(life));
    return life;
  }

  /** Ends what lives yet, and all that serves it. */
  async end(): Promise<void> {
    this.isOver = true;
    for (const host of this.hosts.values()) host.wake();
    await Promise.all(this.lives);
    for (const worker of this.workers) await worker.end();
    await this.server.stop();
  }

  private async liveOn(name: string, script: OwnerScript): Promise<Life> {
    const { client } = this.server;
    const resource = `scripted/${this.server.taskQueue.slice(-12)}/${name}`;
    const workflowId = ownerWorkflowId(resource);
    const taskQueue = this.queueOf(script.evicted);
    const host = script.early > 0 ? `late-${name}` : THERE;
    const scripted = new ScriptedHost(script.host, client);
    this.hosts.set(resource, scripted);
    const { stepsPerRun } = script;
    const input: OwnInput = { resource, program: 'p', host, parameters: {}, requestId: randomUUID(), stepsPerRun };
    const workflow = await client.workflow.start(OWNER_WORKFLOW, { workflowId, taskQueue, args: [input] });
    const ownerId = workflow.firstExecutionRunId;

    let ended = false;
    const itsEnd = async (): Promise<void> => {
      ended = false;
      const handle = new OwnerHandle(new OwnerCalls(client, resource, ownerId, ANSWER_MS));
      await handle.result().catch(() => undefined); // how it ended is read from its history
      ended = true;
      scripted.wake();
    };
    void itsEnd();

    const wrong: string[] = [];
    const answers: string[] = [];
    const asked: Promise<void>[] = [];
    const ask = (next: Pick<Ask, 'what' | 'back'>): Promise<void> => {
      const asking = this.ask(next, resource, ownerId)
        .then((answer) => void answers.push(`${next.what}: ${answer}`))
        .catch((error: unknown) => void wrong.push(`${next.what}: ${String(error)}`))
        .finally(() => scripted.answered());
      asked.push(asking);
      return asking;
    };
    const isDone = (): boolean => ended || this.isOver || scripted.calls > MAX_CALLS;
    const comeToRest = (orUntil = (): boolean => false): Promise<void> =>
      scripted.until(() => isDone() || scripted.rests || orUntil(), SILENT_MS);
    const come = (): Promise<RunningWorker> => this.work(hostTaskQueue(taskQueue, host), this.hostOptions());

    let late: RunningWorker | undefined;
    for (const [n, next] of script.asks.entries()) {
      if (n >= script.early) {
        if (host !== THERE) late ??= await come();
        const due = scripted.calls + next.calls;
        await comeToRest(() => scripted.calls >= due);
      }
      await new Promise((resolve) => setTimeout(resolve, next.afterMs));
      const asking = ask(next);
      if (next.alone) await asking;
    }
    if (host !== THERE) late ??= await come();
    await comeToRest();
    await Promise.all(asked); // a reset would abort a request that is on its way
    await ask({ what: 'stop', back: 0 });
    const end = itsEnd(); // again: a reset may have taken the former one back
    const deadline = Date.now() + END_MS;
    while (!isDone() && Date.now() < deadline) await scripted.until(isDone, 1_000);
    if (scripted.calls > MAX_CALLS) wrong.push(`it has asked its host for more than ${MAX_CALLS} starts and stops`);
    else if (!ended) wrong.push(`it was asked to stop, and has not ended after ${END_MS} ms`);
    const hasEnded = ended;
    if (!hasEnded)
      await client.workflow
        .getHandle(workflowId)
        .terminate()
        .catch(() => undefined); // ended just now
    await end;

    const runs = await this.runsOf(workflowId);
    const told = new Told();
    for (const { history } of runs) told.read(history);
    wrong.push(...told.wrong);
    for (const [generation, { owned }] of scripted.living) {
      if (hasEnded && owned && told.end !== 'released')
        wrong.push(`it has ended, and nobody has proven ${generation} dead`);
    }
    this.hosts.delete(resource);
    await late?.end();
    return { wrong, said: [...told.said, '', ...answers], kinds: told.kinds, runs };
  }

  /** Asks the way people and programs do; rejects where that has no answer at all. */
  private async ask({ what, back }: Pick<Ask, 'what' | 'back'>, resource: string, ownerId: string): Promise<string> {
    const by = 'somebody';
    const isStale = what.startsWith('stale');
    const calls = new OwnerCalls(this.server.client, resource, isStale ? 'another' : ownerId, ANSWER_MS);
    try {
      switch (what) {
        case 'stop':
          return (await calls.update(stopUpdate, { by })).state;
        case 'stop now':
        case 'stale stop':
          return (await calls.update(stopUpdate, { by, now: true })).state;
        case 'restart':
          return (await calls.update(restartUpdate, { by })).state;
        case 'release':
          return (await calls.update(releaseUpdate, { by })).state;
        case 'ready':
          return `ready ${(await calls.update(readyUpdate, {})).ready}`;
        case 'status':
          // A query that meets a reset, or the end of a run, is not answered by the server.
          return (await calls.status().catch(() => calls.status())).state;
        case 'signal':
        case 'stale signal':
          await calls.signal(requestStopSignal, { by });
          return 'sent';
        case 'cancel':
          await calls.client.workflow.getHandle(ownerWorkflowId(resource)).cancel();
          return 'sent';
        case 'reset':
          return await this.reset(ownerWorkflowId(resource), back);
      }
    } catch (error) {
      if (error instanceof NoOwnerError) return String(error); // it has ended, or this request was meant for another one
      if (error instanceof RequestRefusedError && !what.startsWith('stop')) return String(error);
      throw error;
    }
  }

  /**
   * Resets an owner to one of its last workflow tasks: it forgets what came after. Not to where it knew of nothing that may
   * live: what it has forgotten to have started at all, it can't be careful of.
   */
  private async reset(workflowId: string, back: number): Promise<string> {
    const { client, namespace } = this.server;
    const former = [...(await this.runsOf(workflowId))];
    const { runId, history } = former.pop()!;
    const told = new Told();
    for (const run of former) told.read(run.history);
    const points = history.events!.filter((event) => {
      const { fears } = told; // the task at which it is reset is done again, knowing what was before
      told.take(event);
      return fears && event.workflowTaskCompletedEventAttributes;
    });
    const point = points[Math.max(0, points.length - 1 - back)];
    if (!point || told.end !== undefined) return 'nowhere to go';
    const request = {
      namespace,
      workflowExecution: { workflowId, runId },
      reason: 'scripted',
      workflowTaskFinishEventId: point.eventId,
      requestId: randomUUID(),
      resetReapplyExcludeTypes: [EXCLUDE_UPDATES],
    };
    try {
      await client.workflowService.resetWorkflowExecution(request);
      return `done, to ${String(point.eventId)}`;
    } catch (error) {
      return String(error); // it has gone on meanwhile
    }
  }

  /** Every run of an owner, the first one first. */
  private async runsOf(workflowId: string): Promise<readonly Run[]> {
    const { workflow } = this.server.client;
    const runs: Run[] = [];
    for (let { runId } = await workflow.getHandle(workflowId).describe(); runId;) {
      const history = await workflow.getHandle(workflowId, runId).fetchHistory();
      runs.unshift({ workflowId, runId, history });
      runId = history.events![0]!.workflowExecutionStartedEventAttributes!.continuedExecutionRunId ?? '';
    }
    return runs;
  }

  private async serve(evicted: boolean): Promise<void> {
    const taskQueue = this.queueOf(evicted);
    const options = { maxCachedWorkflows: evicted ? 0 : 100, stickyQueueScheduleToStartTimeout: '1 s' } as const;
    this.workers.push(await this.work(taskQueue, { ...options, workflowBundle: await workflowBundle() }));
    this.workers.push(await this.work(hostTaskQueue(taskQueue, THERE), this.hostOptions()));
  }

  private async work(taskQueue: string, options: Partial<WorkerOptions>): Promise<RunningWorker> {
    const { nativeConnection: connection, namespace } = this.server;
    const worker = await Worker.create({ ...options, connection, namespace, taskQueue });
    const running = worker.run();
    running.catch(() => undefined); // told at the end
    return {
      end: async () => {
        if (worker.getState() === 'RUNNING') worker.shutdown();
        await running;
      },
    };
  }

  private hostOptions(): Partial<WorkerOptions> {
    return { activities: this.activities };
  }

  private queueOf(evicted: boolean): string {
    return `${this.server.taskQueue}-${evicted ? 'evicted' : 'cached'}`;
  }
}

interface RunningWorker {
  end(): Promise<void>;
}
