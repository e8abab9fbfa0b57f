import { activityInfo, CompleteAsyncError, heartbeat } from '@temporalio/activity';
import { ApplicationFailure } from '@temporalio/common';
import {
  ActivityName,
  type AwaitServerInput,
  type HoldInput,
  type RecoverInput,
  type ServeHostInput,
  type StartInput,
  type StopInput,
} from '../contract/activities';
import type { HostActivities } from '../contract/activities';
import { FailureType } from '../contract/failures';
import type { Placement } from '../contract/facts';
import {
  checkResource,
  generationUnit,
  hostWorkflowId,
  InvalidResourceError,
  ownerWorkflowId,
  resourceSlice,
} from '../contract/names';
import { monotonicNow } from '../host/context';
import {
  NothingStartedError,
  ProgramRefusedError,
  StillRunningError,
  WrongInstanceError,
  type Host,
} from '../host/host';
import { messageOf } from '../host/log';

/** Under the start's heartbeat timeout with room to spare: a worker that died is noticed, a slow systemd is not one. */
const BEAT_MS = 5_000;

/**
 * The host's activities: they check what came over the wire, call the host, and turn its errors into failure types. All
 * that is decided is decided there.
 */
export function createHostActivities(host: Host): HostActivities {
  return {
    async [ActivityName.startGeneration](input: StartInput) {
      const received = monotonicNow();
      checkInput(input);
      checkGeneration(input.generation);
      // Cancellation is not looked at: a start that has begun ends with its own outcome. The beat tells the owner which
      // instance has it, in case the outcome never arrives.
      const beat = (): void => heartbeat({ instance: host.instance });
      beat();
      const timer = setInterval(beat, BEAT_MS);
      try {
        return await typed(() => host.start(input, received));
      } finally {
        clearInterval(timer);
      }
    },

    async [ActivityName.stopResource](input: StopInput) {
      checkInput(input);
      checkGeneration(input.generation);
      return typed(() => host.stop(input));
    },

    async [ActivityName.readEndpoint](input: RecoverInput) {
      checkInput(input);
      return typed(() => host.readEndpoint(input));
    },

    async [ActivityName.adoptServer](input: RecoverInput) {
      checkInput(input);
      checkGeneration(input.epoch);
      return typed(() => host.adoptServer(input));
    },

    async [ActivityName.reclaimServer](input: RecoverInput) {
      checkInput(input);
      return typed(() => host.reclaimServer(input));
    },

    async [ActivityName.awaitServer](input: AwaitServerInput) {
      checkInput(input);
      if (!input.placement) refuse('waiting for a server needs its placement');
      return typed(() => host.awaitServer(input));
    },

    async [ActivityName.serveHost](input: ServeHostInput) {
      checkHost(input);
      const { base64TaskToken } = activityInfo();
      await typed(async () => host.serve(input, base64TaskToken));
      if (!input.greet) throw new CompleteAsyncError(); // its heartbeats go on
    },

    async [ActivityName.holdOwnership](input: HoldInput) {
      checkInput(input);
      if (!input.placement) refuse('a hold needs a placement');
      const { base64TaskToken, currentAttemptScheduledTimestampMs } = activityInfo();
      await typed(() => host.hold(input, base64TaskToken, currentAttemptScheduledTimestampMs));
      // No slot is held while it waits: the host's observer completes it by its token.
      throw new CompleteAsyncError();
    },
  };
}

/** Anybody who may start workflows can schedule these: nothing of the input is believed to have the right shape (G10). */
function checkInput(input: Partial<StartInput & StopInput & HoldInput> | undefined): void {
  if (typeof input !== 'object' || input === null) return refuse(`expected an object, got ${JSON.stringify(input)}`);
  try {
    checkResource(input.resource);
  } catch (error) {
    if (error instanceof InvalidResourceError) return refuse(error.message);
    throw error;
  }
  const { placement, owner } = input;
  checkPlacement(input.resource!, placement);
  if (typeof owner?.ownerId !== 'string') return refuse('the owner has no id');
  // An owner can't speak for another namespace's units, nor one workflow for another.
  const { namespace, workflowExecution } = activityInfo();
  if (owner.namespace !== namespace || owner.workflowId !== workflowExecution?.workflowId) {
    return refuse(`owner ${owner.workflowId} of namespace ${owner.namespace} is not the workflow that asks`);
  }
  // One open owner per resource (G1) rests on its workflow id.
  if (owner.workflowId !== ownerWorkflowId(input.resource!))
    return refuse(`${owner.workflowId} is not the owner of ${input.resource}`);
}

/** Only a host's own workflow speaks to it as that. */
function checkHost(input: Partial<ServeHostInput> | undefined): void {
  if (typeof input !== 'object' || input === null) return refuse(`expected an object, got ${JSON.stringify(input)}`);
  const workflowId = activityInfo().workflowExecution?.workflowId;
  if (typeof input.host !== 'string' || workflowId !== hostWorkflowId(input.host))
    return refuse(`${workflowId} is not the workflow of host ${JSON.stringify(input.host)}`);
  if (typeof input.instance !== 'string') return refuse('the host has no instance');
}

function checkGeneration(generation: unknown): void {
  if (Number.isSafeInteger(generation) && (generation as number) > 0) return;
  refuse(`generation ${JSON.stringify(generation)} is not a positive integer`);
}

/** Names of units become names of cgroups and files: only those that this resource's own generation has are taken (G11). */
function checkPlacement(resource: string, placement: Placement | undefined): void {
  if (placement === undefined) return;
  const { prefix, generation, unit, slice } = placement;
  checkGeneration(generation);
  if (!/^[a-z][a-z0-9]{0,15}$/.test(prefix)) refuse(`prefix ${JSON.stringify(prefix)} is not a unit prefix`);
  if (unit !== generationUnit(prefix, resource, generation))
    refuse(`unit ${JSON.stringify(unit)} is not of ${resource}`);
  if (slice !== resourceSlice(prefix, resource)) refuse(`slice ${JSON.stringify(slice)} is not of ${resource}`);
}

function refuse(message: string): never {
  throw ApplicationFailure.nonRetryable(message, FailureType.InvalidRequest);
}

async function typed<T>(run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    const cause = error instanceof Error ? error : undefined;
    const message = messageOf(error);
    if (error instanceof StillRunningError) {
      throw ApplicationFailure.create({
        type: FailureType.StillRunning,
        message,
        details: [error.details],
        category: 'BENIGN',
      });
    }
    if (error instanceof ProgramRefusedError)
      throw ApplicationFailure.nonRetryable(message, FailureType.ProgramRefused);
    if (error instanceof NothingStartedError)
      throw ApplicationFailure.create({ type: FailureType.NothingStarted, message });
    if (error instanceof WrongInstanceError)
      throw ApplicationFailure.create({ type: FailureType.WrongInstance, message });
    // Everything else says nothing about the process (G4), and may be otherwise the next time.
    throw ApplicationFailure.create({ type: FailureType.Unknown, message, cause });
  }
}
