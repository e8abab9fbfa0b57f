import { randomUUID } from 'node:crypto';
import {
  ActivityCancelledError,
  ActivityNotFoundError,
  ActivityPausedError,
  ActivityResetError,
  WorkflowExecutionAlreadyStartedError,
  WorkflowNotFoundError,
  type Client,
} from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import type { HoldDetails, HoldEvent } from '../contract/activities';
import type { HostDetails } from '../contract/host';
import { FailureType } from '../contract/failures';
import { ownerWorkflowId } from '../contract/names';
import { OWNER_WORKFLOW, type OwnInput } from '../contract/owner';
import type { HoldRecord } from '../host/generation-files';
import { messageOf, type HostLog } from '../host/log';
import type { Heard, HeartbeatAnswer, LeftBehind, OwnerLink, OwnerStanding } from '../host/owner-link';

/** Every call races a timer of its own: the SDK's deadlines were seen to be overrun by ten seconds. */
const CALL_TIMEOUT_MS = 5_000;

/**
 * What the status of an owner's last run says; one that continued as new is about to have a next run. Only what is known to be
 * an end counts as one: a server of tomorrow may say more than these.
 */
const STANDING: Readonly<Record<string, OwnerStanding | undefined>> = {
  RUNNING: 'open',
  PAUSED: 'open',
  CONTINUED_AS_NEW: 'open',
  COMPLETED: 'completed',
  FAILED: 'gone',
  CANCELLED: 'gone',
  TERMINATED: 'gone',
  TIMED_OUT: 'gone',
};

/** The owners as Temporal has them: answered heartbeats and completions by the hold's token. */
export class TemporalLink implements OwnerLink {
  constructor(
    private readonly client: Client,
    private readonly log: HostLog,
  ) {}

  async heartbeat(hold: Heard, details: HoldDetails | HostDetails, withinMs: number): Promise<HeartbeatAnswer> {
    try {
      await withinTime(this.client.activity.heartbeat(tokenOf(hold), details), withinMs);
      return 'ok';
    } catch (error) {
      if (error instanceof ActivityPausedError) return 'paused';
      if (error instanceof ActivityCancelledError) return 'cancelled';
      if (error instanceof ActivityResetError) return 'reset';
      return this.notFoundOrUnknown(error, 'heartbeat', hold);
    }
  }

  async complete(hold: HoldRecord, event: HoldEvent): Promise<'ok' | 'not-found' | 'unknown'> {
    try {
      await withinTime(this.client.activity.complete(tokenOf(hold), event));
      return 'ok';
    } catch (error) {
      return this.notFoundOrUnknown(error, 'complete', hold);
    }
  }

  async fail(hold: HoldRecord, reason: string): Promise<void> {
    try {
      await withinTime(
        this.client.activity.fail(tokenOf(hold), ApplicationFailure.retryable(reason, FailureType.HoldAgain)),
      );
    } catch (error) {
      // Its heartbeat timeout ends the hold all the same, a little later.
      this.log.warn('could not hand a hold back', { owner: hold.owner.workflowId, error: messageOf(error) });
    }
  }

  async standing(resource: string): Promise<OwnerStanding> {
    const workflowId = ownerWorkflowId(resource);
    try {
      const { status } = await withinTime(this.client.workflow.getHandle(workflowId).describe());
      return STANDING[status.name] ?? 'unknown';
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) return 'gone';
      this.log.warn('describe: no answer from Temporal', { owner: workflowId, error: messageOf(error) });
      return 'unknown';
    }
  }

  async bringToEnd(left: LeftBehind): Promise<'begun' | 'owned' | 'unknown'> {
    const { resource, host, taskQueue, program, parameters, placement } = left;
    const workflowId = ownerWorkflowId(resource);
    const { instance, generation, unit } = placement ?? {};
    const input: OwnInput = {
      ...{ resource, program, host, parameters, requestId: randomUUID() },
      wish: 'stopped',
      by: `host ${host}`,
      found: placement,
    };
    try {
      const options = {
        workflowId,
        taskQueue,
        args: [input],
        memo: { owned: { host, program, parameters, instance, generation, unit, running: generation } },
        staticSummary: `${resource}: stop what nobody owns on ${host}`.slice(0, 190),
      };
      await withinTime(this.client.workflow.start(OWNER_WORKFLOW, options));
      return 'begun';
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) return 'owned';
      this.log.warn('start: no answer from Temporal', { owner: workflowId, error: messageOf(error) });
      return 'unknown';
    }
  }

  private notFoundOrUnknown(error: unknown, call: string, hold: Heard): 'not-found' | 'unknown' {
    if (error instanceof ActivityNotFoundError) return 'not-found';
    this.log.warn(`${call}: no answer from Temporal`, { owner: hold.owner.workflowId, error: messageOf(error) });
    return 'unknown';
  }
}

function tokenOf(hold: Heard): Uint8Array {
  return Buffer.from(hold.token, 'base64');
}

async function withinTime<T>(call: Promise<T>, ms = CALL_TIMEOUT_MS): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer within ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([call, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
