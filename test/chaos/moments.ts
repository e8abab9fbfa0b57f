import { monotonicNow } from '../../src/host/context';
import type { Silence, TraceLine } from '../support/oracle';

/** A process that other hands have moved out of its unit's cgroup, until they have ended it. */
export interface MovedOut extends Silence {
  readonly resource: string;
  readonly pid: number;
}

/** Moments that the checks have to know of, beside those of {@link ChaosScene.worker}. */
export class Moments {
  /** While nobody could answer a heartbeat, or no renewal could reach systemd. */
  readonly silences: Silence[] = [];
  /** While systemd itself could do nothing. */
  readonly paused: Silence[] = [];
  /** When other hands stopped a resource's lease timer: until the worker has armed it again, nothing ends the process. */
  readonly timersStopped: { readonly resource: string; readonly at: number }[] = [];
  readonly movedOut: MovedOut[] = [];
  /** For people: what other hands were laid on, and when. */
  readonly hands: { readonly resource: string; readonly what: string; readonly at: number }[] = [];

  /** Notes what lasts from now until `during` settles. */
  async note(in_: Silence[], during: () => Promise<unknown>): Promise<void> {
    const from = monotonicNow();
    try {
      await during();
    } finally {
      in_.push({ from, to: monotonicNow() });
    }
  }

  /**
   * The lines of a trace that a guarantee is about. What has left its cgroup is not proven, nor ended by a lease
   * (docs/proof.md), so it does not count from there on; nor does it that a process begins beside one which may be that.
   */
  accountable(lines: readonly TraceLine[]): readonly TraceLine[] {
    return lines.filter(
      ({ resource, pid, at, event }) =>
        !this.movedOut.some(
          (moved) =>
            moved.resource === resource &&
            (moved.pid === pid || event === 'beside') &&
            at >= moved.from &&
            at <= moved.to,
        ),
    );
  }
}
