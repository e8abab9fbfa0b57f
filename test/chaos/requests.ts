import { setTimeout as delay } from 'node:timers/promises';
import { isGrpcServiceError, ServiceError, WorkflowFailedError, WorkflowNotFoundError } from '@temporalio/client';
import { TerminatedFailure } from '@temporalio/common';
import { OwnershipError, OwnUnconfirmedError } from '../../src/client';
import { ActivityName } from '../../src/contract/activities';
import { ownerWorkflowId } from '../../src/contract/names';
import { monotonicNow } from '../../src/host/context';
import type { Silence } from '../support/oracle';
import type { Plan, Request } from './plan';
import type { ChaosScene } from './scene';

/** ResetReapplyExcludeType of Temporal's API: signals and updates. */
const WITHOUT_REQUESTS = [1, 2];

/** A request that nobody has answered is surely not on its way any more. The client gives up after ten seconds. */
const STRAY_MS = 30_000;

/** What clients and operators do to owners, and when a resource surely had none. */
export class Requests {
  private readonly ownerless = new Map<string, { from?: number; readonly silences: Silence[] }>();
  /** Per resource: what may bring an owner and is not answered yet, and how much of that there ever was. */
  private readonly owning = new Map<string, { underWay: number; ever: number }>();

  constructor(
    private readonly scene: ChaosScene,
    private readonly manners: ReadonlyMap<string, Plan['resources'][number]['manner']>,
  ) {}

  /** Does what is asked. Rejects with what the client rejects with. */
  async make(request: Request): Promise<void> {
    const { client, server, hostId } = this.scene;
    const { resource } = request;
    const workflow = server.client.workflow.getHandle(ownerWorkflowId(resource));
    const handle = client.handle(resource);
    switch (request.kind) {
      case 'own': {
        const program = this.manners.get(resource)!;
        return this.mayOwn(resource, async () => void (await client.own({ resource, program, host: hostId })));
      }
      case 'stop':
        return void (await handle.stop({ reason: 'chaos', timeout: '2 s', now: request.now }));
      case 'restart':
        return void (await handle.restart({ reason: 'chaos' }));
      case 'release':
        return this.leavesNone(resource, async () => {
          await handle.release({ reason: 'chaos' });
          const result = await Promise.race([handle.result(), delay(10_000)]);
          return result?.end === 'released';
        });
      case 'terminate':
        return this.leavesNone(resource, async () => {
          await workflow.terminate('chaos');
          return true;
        });
      case 'reset':
        return this.mayOwn(resource, async () => this.reset(request));
      case 'hold paused': {
        const { runId } = await workflow.describe();
        const { namespace } = server;
        const hold = {
          namespace,
          execution: { workflowId: ownerWorkflowId(resource), runId },
          type: ActivityName.holdOwnership,
          identity: 'chaos',
        };
        await server.client.workflowService.pauseActivity(hold);
        await delay(request.forMs);
        await server.client.workflowService.unpauseActivity(hold);
      }
    }
  }

  /** While a resource surely had no owner, up to now. */
  silencesOf(resource: string): readonly Silence[] {
    const { from, silences } = this.ownerless.get(resource) ?? { silences: [] };
    return from === undefined ? silences : [...silences, { from, to: monotonicNow() }];
  }

  private async reset({ resource, to, forgetful }: Extract<Request, { kind: 'reset' }>): Promise<void> {
    const { client, namespace } = this.scene.server;
    const workflowId = ownerWorkflowId(resource);
    const workflow = client.workflow.getHandle(workflowId);
    const [{ runId }, { events }] = await Promise.all([workflow.describe(), workflow.fetchHistory()]);
    const tasks = (events ?? []).filter((event) => event.workflowTaskCompletedEventAttributes);
    const task = to === 'first' ? tasks[0] : tasks.at(-1);
    if (!task) return;
    await client.workflowService.resetWorkflowExecution({
      namespace,
      workflowExecution: { workflowId, runId },
      workflowTaskFinishEventId: task.eventId,
      requestId: `${runId}-${String(task.eventId)}`,
      reason: 'chaos',
      resetReapplyExcludeTypes: forgetful ? WITHOUT_REQUESTS : [],
    });
  }

  /** Something that may bring an owner: it may have one from now on. */
  private async mayOwn(resource: string, ask: () => Promise<void>): Promise<void> {
    const none = this.ownerless.get(resource);
    if (none?.from !== undefined) {
      none.silences.push({ from: none.from, to: monotonicNow() });
      none.from = undefined;
    }
    const owning = this.owning.get(resource) ?? { underWay: 0, ever: 0 };
    this.owning.set(resource, owning);
    owning.underWay++;
    owning.ever++;
    try {
      await ask();
      owning.underWay--;
    } catch (error) {
      // One without an answer may still come to something.
      setTimeout(() => owning.underWay--, isWithoutAnswer(error) ? STRAY_MS : 0).unref();
      throw error;
    }
  }

  /** Something after which there is no owner, where it says so and nobody has asked for one meanwhile. */
  private async leavesNone(resource: string, ask: () => Promise<boolean>): Promise<void> {
    const before = this.owning.get(resource)?.ever;
    if (!(await ask())) return;
    const from = monotonicNow();
    const { underWay = 0, ever } = this.owning.get(resource) ?? {};
    if (underWay > 0 || ever !== before) return;
    const none = this.ownerless.get(resource) ?? { silences: [] };
    none.from ??= from;
    this.ownerless.set(resource, none);
  }
}

function isWithoutAnswer(error: unknown): boolean {
  return error instanceof OwnUnconfirmedError || error instanceof ServiceError || isGrpcServiceError(error);
}

/** What a client has to reckon with, in a word: refusals, no answer, an owner that has gone. All else is a bug somewhere. */
export function foreseen(error: unknown): string | undefined {
  if (error instanceof OwnershipError) return error.name;
  if (error instanceof WorkflowNotFoundError) return error.name;
  if (error instanceof WorkflowFailedError && error.cause instanceof TerminatedFailure) return 'terminated';
  if (error instanceof ServiceError) return 'no answer';
  if (isGrpcServiceError(error)) return `gRPC ${error.code}`;
  return undefined;
}
