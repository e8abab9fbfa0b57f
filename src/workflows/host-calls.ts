import {
  ActivityCancellationType,
  ActivityFailure,
  ApplicationFailure,
  condition,
  proxyActivities,
  TimeoutFailure,
} from '@temporalio/workflow';
import type { ActivityFunction, ActivityOptions } from '@temporalio/common';
import {
  ActivityName,
  type AwaitServerInput,
  type HostActivities,
  type HoldInput,
  type RecoverInput,
  type StartInput,
  type StopInput,
} from '../contract/activities';
import type { AwaitServerAnswer, HoldEvent, RecoverAnswer, StartAnswer, StopAnswer } from '../contract/activities';
import type { RecordReading } from '../contract/control';
import { FailureType } from '../contract/failures';
import type { Owner } from './owner';

/** A host that has not answered for this long is shown as unreachable. The task stays in its queue all the same. */
const UNREACHABLE_AFTER = '10 s';

/** Everything that can create a process runs once: retries are the workflow's, which alone knows that none is under way. */
export function startGeneration(owner: Owner, input: StartInput): Promise<StartAnswer> {
  const { [ActivityName.startGeneration]: start } = proxyActivities<HostActivities & Functions>({
    taskQueue: owner.hostQueue,
    summary: `start ${input.program}, generation ${input.generation}`,
    startToCloseTimeout: '2 min',
    heartbeatTimeout: '20 s',
    retry: { maximumAttempts: 1 },
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
  });
  return start(input);
}

/**
 * One hold. It is completed by the host's observer, so its length is the process's. A heartbeat timeout ends it at two
 * thirds of the lease, and is told to the workflow because there is no second attempt. Of a control server that is its own
 * lease: a hold that a dying worker took with it comes again while the server lives.
 */
export function holdOwnership(owner: Owner, input: HoldInput): Promise<HoldEvent> {
  const { leaseMs, unit, control } = input.placement;
  const { [ActivityName.holdOwnership]: hold } = proxyActivities<HostActivities & Functions>({
    taskQueue: owner.hostQueue,
    summary: `hold ${unit}`,
    startToCloseTimeout: '3650 days',
    heartbeatTimeout: Math.round((Math.min(leaseMs, control?.leaseMs ?? leaseMs) * 2) / 3),
    retry: { maximumAttempts: 1 },
    cancellationType: ActivityCancellationType.TRY_CANCEL,
  });
  return hold(input);
}

/** One rung of the ladder. Creates nothing, so the server may repeat it; "still running" and "not mine" come back at once. */
export function stopResource(owner: Owner, input: StopInput): Promise<StopAnswer> {
  const { [ActivityName.stopResource]: stop } = proxyActivities<HostActivities & Functions>({
    taskQueue: owner.hostQueue,
    summary: `${input.rung}: until proven dead`,
    startToCloseTimeout: '30 s',
    retry: {
      initialInterval: '500 ms',
      maximumInterval: '30 s',
      nonRetryableErrorTypes: [FailureType.StillRunning, FailureType.WrongInstance],
    },
    cancellationType: ActivityCancellationType.TRY_CANCEL,
  });
  return stop(input);
}

/** Where an earlier owner's control server was; reads, and no more. */
export function readEndpoint(owner: Owner, input: RecoverInput): Promise<RecordReading> {
  const { [ActivityName.readEndpoint]: read } = proxyActivities<HostActivities & Functions>({
    ...recovering(owner),
    summary: 'read the recorded endpoint',
  });
  return read(input);
}

/** Adopts it if it is the resource's own. Said twice for one epoch, it is adopted once. */
export function adoptServer(owner: Owner, input: RecoverInput): Promise<RecoverAnswer> {
  const { [ActivityName.adoptServer]: adopt } = proxyActivities<HostActivities & Functions>({
    ...recovering(owner),
    summary: `adopt the server, epoch ${input.epoch}`,
  });
  return adopt(input);
}

/** Asks it to shut down if it is the resource's own. */
export function reclaimServer(owner: Owner, input: RecoverInput): Promise<RecoverAnswer> {
  const { [ActivityName.reclaimServer]: reclaim } = proxyActivities<HostActivities & Functions>({
    ...recovering(owner),
    summary: 'shut down the server that an earlier owner left',
  });
  return reclaim(input);
}

/** None of these creates a process, so the server may repeat them. */
function recovering(owner: Owner): ActivityOptions {
  return {
    taskQueue: owner.hostQueue,
    startToCloseTimeout: '2 min',
    retry: {
      initialInterval: '500 ms',
      maximumInterval: '30 s',
      nonRetryableErrorTypes: [FailureType.WrongInstance],
    },
    cancellationType: ActivityCancellationType.TRY_CANCEL,
  };
}

/** Waits for a fresh control server to be healthy, renews for the first time and writes its record. */
export function awaitServer(owner: Owner, input: AwaitServerInput): Promise<AwaitServerAnswer> {
  const { [ActivityName.awaitServer]: wait } = proxyActivities<HostActivities & Functions>({
    ...recovering(owner),
    summary: `wait for ${input.placement.unit} to be healthy`,
    startToCloseTimeout: (input.placement.control?.health.withinMs ?? 0) + 60_000,
  });
  return wait(input);
}

/**
 * Waits for what comes of a call to the host for as long as it takes, or until `giveUp`; returns whether anything came.
 * When it takes long, the owner shows "host unreachable". The rejection stays with the caller.
 */
export async function settled(
  owner: Owner,
  call: Promise<unknown>,
  giveUp: () => boolean = () => false,
): Promise<boolean> {
  let outcome: 'answered' | 'unheard' | undefined;
  call.then(
    () => (outcome = 'answered'),
    // A call that was taken back, or has timed out, tells nothing of the host.
    (error: unknown) => (outcome = failureOf(error) ? 'answered' : 'unheard'),
  );
  const over = (): boolean => outcome !== undefined || giveUp();
  if (!(await condition(over, UNREACHABLE_AFTER, { summary: 'then: host unreachable' }))) {
    owner.hostAnswers(false);
    await condition(over);
  }
  owner.step();
  if (outcome === 'answered') owner.hostAnswers(true);
  return outcome !== undefined;
}

/** The typed failure that an activity threw, if that is what ended it. */
export function failureOf(error: unknown): ApplicationFailure | undefined {
  return error instanceof ActivityFailure && error.cause instanceof ApplicationFailure ? error.cause : undefined;
}

/** The timeout that ended an activity, if one did. */
export function timeoutOf(error: unknown): TimeoutFailure | undefined {
  return error instanceof ActivityFailure && error.cause instanceof TimeoutFailure ? error.cause : undefined;
}

type Functions = Record<string, ActivityFunction>;
