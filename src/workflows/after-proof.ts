import type { ExitReport, PlacedRestartPolicy } from '../contract/facts';
import type { Owner } from './owner';

/** What comes after a proof: the end that was asked for, the next generation, or the restart policy's word. */
export function afterProof(owner: Owner): void {
  const { data } = owner;
  const { wish, placement, proof, unresolved } = data;
  // What came of a start that nobody has answered for is not known, and unknown is not "never".
  if (!placement && unresolved)
    data.exit = { wording: 'unknown: its start was never answered', kind: 'unknown', source: 'none' };
  const { exit } = data;
  const ranMs = Date.now() - data.runningSince;
  const wording = exit?.wording ?? 'unknown';
  data.rung = undefined;
  data.remaining = [];
  data.ended = undefined;
  owner.setReady(false);
  data.lost = undefined;
  data.programState = undefined;
  data.waitsForLease = false;
  if (placement) data.recovery = undefined; // it told how the one that ended was come by
  data.unresolved = false;
  data.placement = undefined;
  data.proof = undefined; // the next generation needs its own
  if (proof) data.proven = { generation: placement?.generation ?? data.generation, proof };

  if (owner.isToEnd) return owner.enter('stopped', `proven dead: ${wording}`, 'end');
  if (!placement) return again('what was found on the host is proven dead');
  if (wish?.what === 'restart') {
    data.wish = undefined;
    data.restarts++;
    data.restartsInRow = 0;
    return again(`proven dead: ${wording}; restart asked by ${wish.by}`);
  }

  const { restart } = placement;
  if (!wantsRestart(restart, exit)) return owner.enter('stopped', `ended by itself: ${wording}`, 'end');
  if (ranMs >= restart.resetAfterMs) data.restartsInRow = 0;
  if (data.restartsInRow >= restart.limit) {
    return owner.enter(
      'gave-up',
      `${wording}, after ${data.restartsInRow} restarts in a row`,
      'wait for somebody to ask for restart or stop',
    );
  }
  data.backoffMs = Math.min(restart.maxBackoffMs, restart.backoffMs * 2 ** Math.min(data.restartsInRow, 20));
  data.restartsInRow++;
  owner.enter('backing-off', `ended by itself: ${wording}`, `restart in ${data.backoffMs} ms`);

  function again(lastEvent: string): void {
    owner.enter('starting', lastEvent, 'start the next generation');
  }
}

/** `on-failure` restarts after everything but a clean exit: unknown is never success. */
export function wantsRestart(restart: PlacedRestartPolicy, exit: ExitReport | undefined): boolean {
  switch (restart.policy) {
    case 'no':
      return false;
    case 'always':
      return true;
    case 'on-failure':
      return !(exit?.kind === 'exit' && exit.status === 0);
  }
}
