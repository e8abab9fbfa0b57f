import { CancellationScope, makeContinueAsNewFunc, workflowInfo } from '@temporalio/workflow';
import { NEVER_STARTED } from '../contract/facts';
import { OWNER_WORKFLOW, type OwnInput, type OwnResult } from '../contract/owner';
import { checkInput } from './checks';
import { Owner } from './owner';
import { HoldChannel, ownership } from './ownership';
import { pause } from './pause';
import { acceptRequests, answersGiven, makeWish } from './requests';
import { beforeNextAttempt, startup } from './startup';
import { stopUntilProven } from './stop-until-proven';
import { afterProof } from './after-proof';

/**
 * The owner of one resource: starts or adopts its process, holds it, and does not end as stopped before the process is
 * proven dead (G3). One open owner per resource, by its workflow id (G1).
 *
 * It runs in one scope that no cancellation reaches: cancelling the workflow is one more way to ask for a stop, and
 * must not take the stopping itself away.
 */
export async function ownResource(input: OwnInput): Promise<OwnResult> {
  checkInput(input);
  const root = CancellationScope.current();
  return CancellationScope.nonCancellable(async () => {
    const owner = new Owner(input);
    root.cancelRequested.catch(() =>
      makeWish(owner, onCancel(owner), { by: 'cancel', reason: 'the workflow was cancelled' }),
    );
    acceptRequests(owner);
    const channel = new HoldChannel(owner);

    for (;;) {
      if (owner.runIsLong && owner.data.phase !== 'stopped') await continueInNewRun(owner);
      switch (owner.data.phase) {
        case 'starting':
          await beforeNextAttempt(owner);
          if (!owner.runIsLong) await startup(owner);
          break;
        case 'running':
        case 'ownership-lost':
          await ownership(owner, channel);
          break;
        case 'stopping':
          await stopUntilProven(owner, channel);
          if (owner.data.proof) {
            channel.close();
            afterProof(owner);
          }
          break;
        case 'backing-off':
        case 'gave-up':
          await waitForRestart(owner);
          break;
        case 'stopped':
          await answersGiven();
          return result(owner);
      }
    }
  });
}

/** What cancelling asks for: a stop, unless the program of a control server says that it is left to the next owner. */
function onCancel({ data }: Owner): 'stop' | 'release' {
  const control = data.placement?.control;
  if (control?.onCancel === 'leave') return 'release';
  return control?.onCancel === 'stop-if-started' && control.startedBy !== data.ownerId ? 'release' : 'stop';
}

/** Between a proof and the next generation: a timer, or, when given up, for as long as it takes somebody to decide. */
async function waitForRestart(owner: Owner): Promise<void> {
  const { data } = owner;
  const givenUp = data.phase === 'gave-up';
  if (!data.wish) {
    const left = data.since + (data.backoffMs ?? 0) - Date.now();
    if (givenUp) await pause(owner, undefined, 'given up');
    else if (left > 0) await pause(owner, left, 'back off before the restart');
  }
  if (owner.runIsLong) return;
  const { wish } = data;
  if (wish && owner.isToEnd) return owner.enter('stopped', `${wish.what} asked by ${wish.by}`, 'end');
  if (wish?.what === 'restart') {
    data.wish = undefined;
    data.restartsInRow = 0;
  } else if (givenUp) return;
  data.restarts++;
  owner.enter('starting', wish ? `restart asked by ${wish.by}` : 'restart', 'start the next generation');
}

/** The same owner in a new run: state and memo go along, holds are taken anew. */
async function continueInNewRun(owner: Owner): Promise<never> {
  await answersGiven();
  const continueAsNew = makeContinueAsNewFunc<typeof ownResource>({
    workflowType: OWNER_WORKFLOW,
    memo: workflowInfo().memo,
  });
  return continueAsNew({ ...owner.input, carried: owner.data });
}

function result(owner: Owner): OwnResult {
  const { data, input } = owner;
  const { restarts, wish } = data;
  const exit = data.exit ?? NEVER_STARTED;
  if (wish?.what === 'release' && data.placement) {
    const { generation } = data.placement;
    return {
      resource: input.resource,
      end: 'released',
      exit: { wording: 'released', kind: 'unknown', source: 'none' },
      generation,
      restarts,
    };
  }
  const end = exit.kind === 'never started' ? exit.kind : wish ? 'stopped' : 'exited';
  return { resource: input.resource, end, exit, ...data.proven, restarts };
}
