import { leaseUnits } from '../contract/names';
import { monotonicNow, type HostContext } from './context';
import { attributesOf, type Held } from './held';
import { armLease, deadlineOf, stopLeaseUnit } from './lease';
import { messageOf, Sparse } from './log';
import type { JsonRecord } from './records';
import { SystemdError } from '../systemd/port';
import { Turns } from './turns';

/** Renews leases, one renewal of a unit at a time, and writes down what this worker has of a generation. */
export class Renewals {
  private readonly turns = new Turns();
  private readonly sparse = new Sparse(60_000);

  constructor(private readonly host: HostContext) {}

  /** Runs when no renewal of the generation is under way. */
  inTurn<T>(held: Held, run: () => Promise<T>): Promise<T> {
    return this.turns.take(held.launch.placement.unit, run);
  }

  /**
   * Arms the next lease pair and stops the former ones, so there is no moment without one. Rejects where that is not
   * certain; then the former lease holds, and the next renewal stops what this one may have left behind. Which ones those
   * are is what systemd says, and not the record: that may be older than the last renewal, where it could not be written.
   * Does nothing for what is over: a beat may have seen it alive, and have had its answer since.
   */
  renew(held: Held, deadline: number): Promise<void> {
    const { placement } = held.launch;
    return this.inTurn(held, async () => {
      if (held.over) return;
      const until = Math.max(deadline, held.lease.deadline); // one that waited for another renewal takes nothing of it away
      let others: readonly number[] = [];
      let n: number;
      do {
        n = await this.takeNumber(held, others);
        others = await this.arm(held, n, until, others);
        // Not below this one: the record was of an earlier renewal, or another worker process of this host renews as well.
      } while (Math.max(...others) >= n);
      for (const former of others) await stopLeaseUnit(this.host, leaseUnits(placement.unit, former).timer);
      held.lease = { n, oldest: n, deadline: until };
      const written = await this.write(held, held.files.lease, held.lease);
      if (written && held.holdUnwritten) await this.writeHold(held);
      if (written && held.launchUnwritten)
        held.launchUnwritten = !(await this.write(held, held.files.launch, held.launch));
      this.host.log.debug('renewed', { ...attributesOf(held), lease: n });
    });
  }

  /** As {@link armLease}; a number that another worker process of this host has just used counts among the others, once. */
  private async arm(held: Held, n: number, until: number, before: readonly number[]): Promise<readonly number[]> {
    try {
      return await armLease(this.host, held.launch.placement, n, until);
    } catch (error) {
      if (!(error instanceof SystemdError) || error.kind !== 'unit-exists' || before.length > 0) throw error;
      return [n];
    }
  }

  /**
   * The next lease number, which was never used. It is written down first; where it can't be, or the record is known to be
   * old, it is taken from the clock, in ms since the boot: there are fewer renewals than that, so the number is above every
   * one that any worker of this boot has ever used, whether that was written down or not.
   */
  private async takeNumber(held: Held, others: readonly number[]): Promise<number> {
    const next = Math.max(held.lease.n, ...others) + 1;
    const byClock = Math.max(next, Math.ceil(monotonicNow() / 1000));
    const n = others.length === 0 ? next : byClock;
    held.lease = { ...held.lease, n };
    if (await this.write(held, held.files.lease, held.lease)) return n;
    held.lease = { ...held.lease, n: byClock };
    return byClock;
  }

  /**
   * Corrects the lease of a generation by what systemd has: the record is older where the former worker process could not
   * write. `numbers` are those of the timers that wait.
   */
  correct(held: Held, numbers: readonly number[]): Promise<void> {
    const { unit } = held.launch.placement;
    const n = Math.max(0, ...numbers);
    // The record's number only grows. Whoever begins again waits for none of the renewals that are under way by then.
    if (n <= held.lease.n) return Promise.resolve();
    return this.inTurn(held, async () => {
      if (n <= held.lease.n) return;
      const deadline = (await deadlineOf(this.host, unit, n)) ?? 0;
      held.lease = { ...held.lease, n, deadline: Math.max(held.lease.deadline, deadline) };
    });
  }

  async writeHold(held: Held): Promise<void> {
    if (held.hold) held.holdUnwritten = !(await this.write(held, held.files.hold, held.hold));
  }

  /**
   * Writes what this worker also knows by itself; returns whether it could. A disk that is full or read-only ends nothing: it
   * is written with the next renewal, and until then only this process knows it.
   */
  private async write<T extends object>(held: Held, record: JsonRecord<T>, value: T): Promise<boolean> {
    try {
      await record.write(value);
      return true;
    } catch (error) {
      const log = { ...attributesOf(held), error: messageOf(error) };
      if (this.sparse.due(held.launch.placement.unit)) this.host.log.warn('not written, going on from memory', log);
      return false;
    }
  }
}
