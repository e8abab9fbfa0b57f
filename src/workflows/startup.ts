import { ApplicationFailure, CancellationScope, isCancellation } from '@temporalio/workflow';
import type { StartAnswer } from '../contract/activities';
import type { Placement } from '../contract/facts';
import { FailureType } from '../contract/failures';
import { failureOf, settled, startGeneration, timeoutOf } from './host-calls';
import type { Owner } from './owner';
import { pause, setbackMs } from './pause';
import { recoverServer } from './recovery';

/**
 * Starts or adopts, one attempt: a generation of its own each time. Leaves the phase in `running`, `stopping` (something
 * has to be proven dead first), `stopped` (asked to stop before anything could exist), or `starting` for another attempt.
 */
export async function startup(owner: Owner): Promise<void> {
  const { data, input } = owner;
  if (owner.isToEnd) return abandon(owner);
  data.generation = Math.max(Date.now(), data.generation + 1);
  owner.recordPlacement();
  owner.enter('starting', data.lastEvent, `start or adopt on host ${input.host}`);

  try {
    if (!data.plan) {
      const answer = await attempt(owner);
      if (answer.kind !== 'recover') return onAnswer(owner, answer);
      data.instance = answer.instance;
      data.plan = answer.plan; // kept: a run that is long ends in the middle of it, and the next one goes on
    }
    const adopted = await recoverServer(owner, data.plan);
    if (adopted) take(owner, 'adopted', adopted);
  } catch (error) {
    if (error instanceof ApplicationFailure) throw error; // this owner's own end: what the host fails with is wrapped
    if (isCancellation(error)) owner.note('taken back before the host had seen it');
    else onFailure(owner, error);
  }
}

async function attempt(owner: Owner): Promise<StartAnswer> {
  const { data, input } = owner;
  const scope = new CancellationScope();
  const answer = scope.run(() =>
    startGeneration(owner, {
      resource: input.resource,
      program: input.program,
      parameters: input.parameters,
      owner: owner.identity,
      generation: data.generation,
      instance: data.instance,
      ...(data.recovered && { recovered: true }),
      ...(data.runningSince > 0 && { goesOn: true }),
    }),
  );
  if (!(await settled(owner, answer, () => owner.isToEnd || owner.runIsLong))) scope.cancel();
  // Cancelled means "never started": with one attempt and WAIT_CANCELLATION_COMPLETED, a start that the host has begun
  // ends with its own outcome, however long that takes.
  await settled(owner, answer);
  return answer;
}

/** It runs, and is this owner's. */
function take(owner: Owner, how: 'started' | 'adopted', placement: Placement): void {
  const { data } = owner;
  const { control } = placement;
  data.setbacks = 0;
  data.stopFirsts = 0;
  data.placement = control ? { ...placement, control: { ...control, recovery: data.recovery } } : placement;
  data.runningSince = Date.now();
  data.checked = control && how === 'adopted';
  data.confirmed = false;
  data.lost = undefined;
  data.warnings = undefined;
  owner.setReady(control ? how === 'adopted' : !placement.notifies);
  data.ended = undefined;
  if (how === 'started' && data.wish?.what === 'restart') data.wish = undefined; // this is the new one
  owner.enter('running', `${how} ${placement.unit}`, 'hold it');
  owner.recordPlacement();
}

function onAnswer(owner: Owner, answer: Exclude<StartAnswer, { readonly kind: 'recover' }>): void {
  const { data } = owner;
  // Answering, the host has closed every earlier generation and looked. Not so where it had seen as high a one before: that
  // may be this owner's own, started before a reset.
  data.unresolved = answer.kind === 'outdated';
  data.instance = 'placement' in answer ? answer.placement.instance : answer.instance;
  switch (answer.kind) {
    case 'started':
    case 'adopted':
      return take(owner, answer.kind, answer.placement);
    case 'stop-first':
      if (data.waitsForLease && answer.living) {
        data.setbacks++;
        owner.note(`found on the host: ${answer.reason}`, 'wait for its lease to end, then start');
        return;
      }
      // Once is what a restart over left-overs looks like. Again after a proof means that something keeps coming up there.
      data.stopFirsts++;
      if (data.stopFirsts > 1) data.setbacks++;
      owner.enter('stopping', `found on the host: ${answer.reason}`, 'stop that until it is proven dead, then start');
      return;
    case 'outdated':
      data.generation = Math.max(data.generation, answer.highest);
      owner.note(`the host has seen generation ${answer.highest}`);
      return;
    case 'full':
      if (data.runningSince === 0) throw ApplicationFailure.nonRetryable(answer.reason, FailureType.HostFull);
      data.setbacks++;
      owner.note(answer.reason, 'wait for room, then start');
      return;
    case 'blocked':
      data.setbacks++;
      owner.note(answer.reason);
      return;
  }
}

function onFailure(owner: Owner, error: unknown): void {
  const { data } = owner;
  const failure = failureOf(error);
  if (failure?.type === FailureType.ProgramRefused || failure?.type === FailureType.InvalidRequest) {
    // An earlier attempt may have left a process: nobody is told of an end before the host has proven that none is there.
    if (data.unresolved)
      return owner.enter('stopping', failure.message, 'have the host prove that nothing was started');
    if (data.runningSince === 0) throw ApplicationFailure.nonRetryable(failure.message, failure.type);
    return owner.enter('gave-up', failure.message, 'wait for somebody to ask for restart or stop');
  }
  if (failure?.type === FailureType.NothingStarted) {
    data.setbacks++;
    return owner.note(failure.message);
  }
  data.unresolved = true;
  data.plan = undefined;
  data.recovered = false; // a server that came of it is adopted as any other
  data.setbacks++;
  const seen = timeoutOf(error)?.lastHeartbeatDetails as { readonly instance?: string } | undefined;
  data.instance ??= seen?.instance;
  const message = failure?.message ?? (error instanceof Error ? error.message : String(error));
  owner.note(`the start has no known outcome: ${message}`, 'look again');
}

/** Waits after attempts that came to nothing; a request that comes meanwhile ends the wait. */
export async function beforeNextAttempt(owner: Owner): Promise<void> {
  const { data } = owner;
  if (data.setbacks > 0 && !owner.isToEnd)
    await pause(owner, setbackMs(data.setbacks), 'wait before the next attempt to start');
}

/** Asked to stop while nothing is known to run. */
function abandon(owner: Owner): void {
  const { data } = owner;
  if (data.unresolved) {
    // An attempt whose outcome nobody has told may have made a process: only the host's proof ends this.
    owner.enter('stopping', 'asked to stop with a start unanswered', 'have the host prove that nothing came of it');
    return;
  }
  if (data.waitsForLease && data.wish?.what === 'stop') {
    owner.enter('stopping', 'asked to stop while waiting for a lease', 'stop what was waited for until proven dead');
    return;
  }
  owner.enter('stopped', data.wish?.what === 'release' ? 'released before a start' : 'stopped before a start', 'end');
}
