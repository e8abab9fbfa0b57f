import type { EffectiveLease } from './protocol';

/** Which part of the lease is over: see {@link leaseEnd}. */
export type LeaseEndReason = 'lease' | 'idle' | 'busy-cap';

/** What the end of a lease follows from. All times are of one monotonic clock, in ms. */
export interface LeaseFacts {
  /** Last renewal, adoption included; at first the start. */
  readonly renewedAt: number;
  /** Since when nothing goes on; undefined while something does. */
  readonly idleSince: number | undefined;
}

/** When a server ends itself if nothing changes any more, and why: the rule that {@link effectiveLease} resolves to. */
export function leaseEnd(
  lease: EffectiveLease,
  { renewedAt, idleSince }: LeaseFacts,
): { readonly at: number; readonly reason: LeaseEndReason } {
  const cap = renewedAt + lease.atMostMs;
  if (lease.idleTimeoutMs === 0) return { at: cap, reason: 'lease' };
  const idle = Math.max(renewedAt + lease.leaseMs, (idleSince ?? Infinity) + lease.idleTimeoutMs);
  return idle <= cap ? { at: idle, reason: 'idle' } : { at: cap, reason: 'busy-cap' };
}

/** Longest delay that setTimeout takes; it makes 1 ms of anything longer, and a busy cap may well be. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Says when the lease is over, by the monotonic clock: neither a set clock nor a leap moves it. */
export class LeaseWatch {
  #renewedAt = performance.now();
  #idleSince = this.#renewedAt;
  #active = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    readonly lease: EffectiveLease,
    private readonly onOver: (reason: LeaseEndReason) => void,
  ) {
    this.#arm();
  }

  /** A renewal. The timer stays: it comes too early now, and looks again. */
  renew(): void {
    this.#renewedAt = performance.now();
  }

  /** Something goes on until the answered function is called, which may be done more than once. */
  busy(): () => void {
    this.#active++;
    let released = false;
    return () => {
      if (released) return;
      released = true;
      if (--this.#active > 0) return;
      this.#idleSince = performance.now();
      if (this.#timer) this.#arm(); // the end may be nearer than the cap, which the timer may stand at
    };
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(): void {
    clearTimeout(this.#timer);
    const idleSince = this.#active > 0 ? undefined : this.#idleSince;
    const { at, reason } = leaseEnd(this.lease, { renewedAt: this.#renewedAt, idleSince });
    const left = at - performance.now();
    if (left > 0) {
      this.#timer = setTimeout(() => this.#arm(), Math.min(Math.ceil(left), LONGEST_DELAY_MS));
    } else {
      this.stop();
      this.onOver(reason);
    }
  }
}
