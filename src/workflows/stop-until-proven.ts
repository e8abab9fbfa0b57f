import { CancellationScope, condition } from '@temporalio/workflow';
import type { Rung, StillRunningDetails } from '../contract/activities';
import { FailureType } from '../contract/failures';
import { failureOf, settled, stopResource } from './host-calls';
import type { Owner } from './owner';
import type { HoldChannel } from './ownership';
import { setbackMs } from './pause';

/** Where the ladder can stand: the rungs, and what comes when none has helped. */
const LADDER: readonly Rung[] = ['stop', 'kill', 'cgroup-kill', 'watch'];

/** SIGKILL needs no time of its own; what is left after this long waits in the kernel. */
const AFTER_KILL_MS = 2_000;

/** Beyond the unit's stop timeout, after which systemd itself sends SIGKILL. */
const STOP_MARGIN_MS = 1_000;

/** Of a unit that this owner knows nothing of: systemd's own default, DefaultTimeoutStopSec. Nobody tells of its end, so it is looked at. */
const UNKNOWN_UNIT = { stopTimeoutMs: 90_000, lookMs: 3_000 };

/** How often the last rungs are repeated while the host watches: a minute, doubling up to an hour. */
const WATCH_MS = { least: 60_000, most: 3_600_000 };

/**
 * Stops a resource until it is proven dead (G3): one rung after the other, each an activity, the waits between them
 * timers. There is no way out of here but the proof, a new run of this owner that goes on at the same rung, or a later
 * generation, which shows that the owner was reset.
 *
 * Only the answer to a rung is a proof, for it closes every generation that this owner knows of and reads everything
 * anew. The host's word that it is over ends the wait for the next answer, once.
 */
export async function stopUntilProven(owner: Owner, channel: HoldChannel): Promise<void> {
  const { data } = owner;
  let at = LADDER.indexOf((data.rung as Rung | undefined) ?? 'stop');
  let watchMs = WATCH_MS.least;
  let gentleSince: number | undefined;
  let wordTaken = false;
  let refusals = 0;
  channel.over = false;

  while (!owner.runIsLong) {
    if (data.wish?.now) at = Math.max(at, LADDER.indexOf('kill'));
    const rung = LADDER[at]!;
    data.rung = rung;
    owner.note(data.lastEvent, describeRung(rung));
    const { generation } = data;
    const done = await climb(owner, rung, channel);
    if (data.proof) return;
    if (!done) {
      // Nobody has climbed: the next try is at the same rung. The host whose process it is may take its time to come back.
      await condition(() => owner.runIsLong, setbackMs(++refusals), { summary: `before ${rung} is tried again` });
      continue;
    }
    refusals = 0;
    if (data.generation > generation) {
      forgetFormer(owner, channel);
      if (!data.wish) return owner.enter('starting', 'a later generation lives: this owner was reset', 'adopt it');
      continue;
    }
    gentleSince ??= Date.now(); // counted from the host's first answer: it may have come late

    const hurried = (): boolean => rung === 'stop' && data.wish?.now === true;
    const told = (): boolean => channel.over && !wordTaken;
    const sooner = await condition(() => hurried() || told() || owner.runIsLong, waitAfter(rung), {
      summary: `after ${rung}: wait for the proof`,
    });
    if (sooner) {
      wordTaken ||= channel.over;
    } else if (rung === 'watch') {
      watchMs = Math.min(WATCH_MS.most, watchMs * 2);
      at = LADDER.indexOf('cgroup-kill'); // what has become killable meanwhile, or come up since, is killed
    } else if (rung !== 'stop' || gentleLeft() <= 0) at++;
  }

  function gentleLeft(): number {
    const timeoutMs = data.placement?.stopTimeoutMs ?? UNKNOWN_UNIT.stopTimeoutMs;
    return (gentleSince ?? Date.now()) + timeoutMs + STOP_MARGIN_MS - Date.now();
  }

  function waitAfter(rung: Rung): number {
    if (rung === 'watch') return watchMs;
    if (rung !== 'stop') return AFTER_KILL_MS;
    return Math.max(1, Math.min(gentleLeft(), data.placement ? Infinity : UNKNOWN_UNIT.lookMs));
  }
}

/** What this owner knew is of an earlier generation than the one that lives. */
function forgetFormer({ data }: Owner, channel: HoldChannel): void {
  channel.close();
  data.placement = undefined;
  data.ended = undefined;
  data.rung = undefined;
  data.unresolved = true;
}

/** One rung, for as long as the host takes to answer; returns whether it was done. A new run repeats it. */
async function climb(owner: Owner, rung: Rung, channel: HoldChannel): Promise<boolean> {
  const { data, input } = owner;
  const { generation, placement, instance } = data;
  const scope = new CancellationScope();
  const answer = scope.run(() =>
    stopResource(owner, { resource: input.resource, owner: owner.identity, rung, generation, placement, instance }),
  );
  if (!(await settled(owner, answer, () => owner.runIsLong))) {
    scope.cancel();
    return false;
  }
  try {
    const { proof, exit } = await answer;
    data.proof = proof;
    data.exit = exit;
    return true;
  } catch (error) {
    const failure = failureOf(error);
    const done = failure?.type === FailureType.StillRunning;
    if (done) {
      const details = failure.details?.[0] as StillRunningDetails | undefined;
      data.remaining = details?.processes ?? [];
      // After a reset the host may know later generations of this owner than the owner does.
      data.generation = Math.max(data.generation, details?.highest ?? 0);
      owner.note(`still running after ${rung}: ${details?.reasons.join('; ') ?? failure.message}`);
    } else {
      owner.note(`${rung}: ${failure?.message ?? String(error)}`); // for example that another instance has answered
    }
    // From here on the host watches, and says when it is over.
    channel.open();
    return done;
  }
}

function describeRung(rung: Rung): string {
  switch (rung) {
    case 'stop':
      return 'systemd stops the unit: its signal, then SIGKILL after its stop timeout';
    case 'kill':
      return 'SIGKILL to all processes of the unit';
    case 'cgroup-kill':
      return 'the kernel kills the whole cgroup';
    case 'watch':
      return 'unkillable for now: watch until it is gone';
  }
}
