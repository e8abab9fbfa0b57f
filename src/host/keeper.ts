import { describeProcesses } from '../cgroup/processes';
import type { HoldDetails, HoldEvent } from '../contract/activities';
import { readCondition, type Condition } from './condition';
import { monotonicNow, resourceCgroup, type HostContext } from './context';
import type { HoldRecord } from './generation-files';
import { attributesOf, type Held } from './held';
import { messageOf } from './log';
import { renewalInterval } from '../control-server/protocol';
import { record, renewServer } from './control-server';
import type { HeartbeatAnswer, OwnerLink, OwnerStanding } from './owner-link';
import type { Renewals } from './renewals';

/** After an unknown answer it is tried again soon, but a Temporal that is down is not hammered. */
const RETRY_MS = { least: 300, most: 10_000 };

/** A timer may be that early. */
const EARLY_US = 50_000;

/** A heartbeat without an answer for so long is not waited for any more. */
const ANSWER_MS = 5_000;

/**
 * Keeps the leases of the generations whose owners hold them (G7): every third of a lease it looks at the unit, asks
 * the owner by a heartbeat that is answered, and on an answer renews the lease up to *the moment before it asked* + lease.
 */
export class LeaseKeeper {
  private readonly timers = new Map<Held, NodeJS.Timeout>();
  private readonly telling = new Set<HoldRecord>();
  /** Those whose last renewal came to nothing although the owner had answered: the manager gave no answer. */
  private readonly late = new Set<Held>();
  private closed = false;

  constructor(
    private readonly host: HostContext,
    private readonly link: OwnerLink,
    private readonly renewals: Renewals,
    /** Told what a beat saw of a generation. */
    private readonly onSeen: (held: Held, condition: Condition) => void,
    /** Told that the owner of a generation no longer knows its hold. */
    private readonly onUnheld: (held: Held) => Promise<OwnerStanding> = () => Promise.resolve('unknown'),
  ) {}

  /** Takes a hold. A newer one replaces an older; an older one that arrives late is dropped. */
  async take(held: Held, hold: HoldRecord): Promise<void> {
    if (held.hold && held.hold.scheduledAt > hold.scheduledAt) return;
    held.hold = hold;
    await this.renewals.writeHold(held);
    const left = held.lease.deadline - monotonicNow();
    const third = this.third(held);
    const isMissed = held.launch.placement.control && !hold.ready; // it does not answer: asked again sooner
    // Fresh from its start the lease is nearly whole; after an outage it may be nearly over.
    if (left <= 2 * third * 1000) this.schedule(held, 0);
    else this.schedule(held, isMissed ? this.retry(held) : third);
  }

  /** Goes on with a hold of the former worker process, before its heartbeat timeout. */
  resume(held: Held): void {
    this.schedule(held, 0);
  }

  /** Tells the owner an event. Keeps the hold when the answer is unknown, so that it can be told again. */
  async tell(held: Held, event: HoldEvent): Promise<void> {
    const { hold } = held;
    if (!hold || this.closed || this.telling.has(hold)) return;
    this.telling.add(hold);
    try {
      const answer = await this.link.complete(hold, event);
      const reason = 'reason' in event ? { reason: event.reason } : {};
      this.host.log.info('told the owner', { ...attributesOf(held), event: event.kind, ...reason, answer });
      if (answer === 'unknown') this.schedule(held, RETRY_MS.least);
      else await this.drop(held, hold);
    } finally {
      this.telling.delete(hold);
    }
  }

  /**
   * Answers a hold of which this host keeps nothing any more: tried a few times, then left to its heartbeat timeout, after
   * which the owner's next hold is answered from the end record.
   */
  async answer(hold: HoldRecord, event: HoldEvent): Promise<void> {
    for (let attempt = 0; attempt < 5 && !this.closed; attempt++) {
      if ((await this.link.complete(hold, event)) !== 'unknown') return;
      await new Promise<void>((resolve) => setTimeout(resolve, RETRY_MS.least * 2 ** attempt).unref());
    }
  }

  /** The manager answers again (a new connection, daemon-reexec): what it gave no answer for is tried again at once. */
  managerIsBack(): void {
    for (const held of this.late) this.schedule(held, 0);
  }

  /**
   * A generation is proven dead. Resolves once no renewal of it is under way, which would leave a file and a timer behind
   * whoever has removed them.
   */
  async end(held: Held): Promise<void> {
    held.over = true;
    this.forget(held);
    await this.renewals.inTurn(held, async () => undefined);
  }

  private forget(held: Held): void {
    clearTimeout(this.timers.get(held));
    this.timers.delete(held);
    this.late.delete(held);
  }

  close(): void {
    this.closed = true;
    for (const timer of this.timers.values()) clearTimeout(timer);
    this.timers.clear();
  }

  private schedule(held: Held, afterMs: number): void {
    if (this.closed) return;
    clearTimeout(this.timers.get(held));
    const timer = setTimeout(() => {
      this.timers.delete(held);
      this.late.delete(held);
      void this.beat(held).catch((error: unknown) => {
        this.host.log.error('lease keeper', { ...attributesOf(held), error: messageOf(error) });
        if (held.hold) this.schedule(held, this.retry(held));
      });
    }, afterMs);
    this.timers.set(held, timer);
  }

  private async beat(held: Held): Promise<void> {
    const { hold } = held;
    if (!hold) return;
    const asked = monotonicNow();
    const condition = await readCondition(this.host, held.launch.placement);
    const answer = await this.link.heartbeat(hold, await this.details(held, condition), this.patience(held));
    if (this.closed || held.over || held.hold !== hold) return; // a newer hold came meanwhile, and has its own beat
    const again = await this.act(held, hold, answer, condition, asked);
    if (again !== undefined && held.hold === hold)
      this.schedule(held, Math.max(0, again - (monotonicNow() - asked) / 1000));
    this.onSeen(held, condition);
  }

  /** The table of answers. Returns after how many ms, counted from `asked`, the next beat is due. */
  private async act(
    held: Held,
    hold: HoldRecord,
    answer: HeartbeatAnswer,
    condition: Condition,
    asked: number,
  ): Promise<number | undefined> {
    switch (answer) {
      case 'ok':
      case 'paused':
      case 'cancelled':
        if (await this.renewAfter(held, hold, condition, asked)) return this.third(held);
        this.late.add(held);
        return this.retry(held);
      case 'reset':
        await this.renewAfter(held, hold, condition, asked);
        await this.link.fail(hold, 'the activity was reset; holding again');
        await this.drop(held, hold);
        return undefined;
      case 'not-found':
        await this.drop(held, hold);
        this.host.log.warn('the owner no longer knows this hold; waiting for its next one', {
          ...attributesOf(held),
          owner: await this.onUnheld(held),
        });
        return undefined;
      case 'unknown':
        return this.retry(held);
    }
  }

  /** Whether the lease is as long as the answer allows, or needs no renewal. Unknown or refused, the former one stays. */
  private async renewAfter(held: Held, hold: HoldRecord, condition: Condition, asked: number): Promise<boolean> {
    if (condition.kind !== 'living') return condition.kind === 'over';
    if (hold.lost) return true; // nothing renews it any more
    if (held.launch.placement.control && !held.stopping) {
      if (hold.ready && !this.isServerDue(held, asked)) return true;
      if (!(await this.renewServer(held, hold))) return false;
      held.serverRenewedAt = asked;
    }
    const deadline = asked + held.launch.placement.leaseMs * 1000;
    if (deadline <= held.lease.deadline) return true; // an answer to an earlier question never shortens a lease
    try {
      await this.renewals.renew(held, deadline);
      return true;
    } catch (error) {
      this.host.log.warn('lease not renewed', { ...attributesOf(held), error: messageOf(error) });
      return false;
    }
  }

  /**
   * Renews a control server's own lease: without that, systemd's is not renewed either, so that a server that hangs ends with
   * it. Its owner is told when it stops answering, answers again, or has another owner.
   */
  private async renewServer(held: Held, hold: HoldRecord): Promise<boolean> {
    const renewal = await renewServer(this.host, held.launch, this.patience(held));
    if (held.hold !== hold) return renewal.kind === 'renewed';
    if (renewal.kind === 'renewed') {
      held.serverLeaseMs = renewal.leaseMs;
      // One that was healthy too late to be recorded is to be found by the next owner as well.
      if (!held.serverAnswers) await this.record(held, renewal);
      held.serverAnswers = true;
      if (!hold.ready) await this.tell(held, { kind: 'ready' });
      return true;
    }
    const { kind, reason } = renewal;
    this.host.log.warn('control server not renewed', { ...attributesOf(held), kind, error: reason });
    // Before it has ever answered it is not expected to, and a stranger may have been faster at its port.
    if (!hold.ready && !held.serverAnswers) return false;
    await this.tell(held, { kind: kind === 'refused' ? kind : 'unavailable', reason });
    if (held.hold !== hold) held.serverAnswers = false; // the owner knows
    return false;
  }

  /** In turn with what lets go of the generation, as a renewal of its lease. */
  private record(held: Held, renewal: Parameters<typeof record>[3]): Promise<void> {
    return this.renewals.inTurn(held, async () => {
      if (!held.over) await record(this.host, held.files, held.launch, renewal);
    });
  }

  private async drop(held: Held, hold: HoldRecord): Promise<void> {
    if (held.hold !== hold) return;
    held.hold = undefined;
    this.forget(held);
    // Where it stays, the next worker hears from its first heartbeat that it is no longer good.
    await held.files.hold.remove().catch((error: unknown) => {
      this.host.log.warn('a hold could not be removed', { ...attributesOf(held), error: messageOf(error) });
    });
  }

  private async details(held: Held, condition: Condition): Promise<HoldDetails> {
    const { placement, resource } = held.launch;
    const leaseUntil = Date.now() + Math.round((held.lease.deadline - monotonicNow()) / 1000);
    const details = { leaseUntil, unit: placement.unit, state: condition.text };
    if (condition.kind === 'living') return details;
    const processes = await describeProcesses(resourceCgroup(this.host, placement.prefix, resource)).catch(
      () => undefined,
    );
    return processes === undefined ? details : { ...details, processes }; // for people; unreadable is simply not shown
  }

  /** Until the next heartbeat: a third of the lease, so that two of them fit into the heartbeat timeout. */
  private third(held: Held): number {
    const { control } = held.launch.placement;
    return Math.min(this.renewalMs(held), (control?.leaseMs ?? Infinity) / 3);
  }

  /** Until the next renewal. What a control server reports decides, whatever is configured. */
  private renewalMs(held: Held): number {
    const { leaseMs, control } = held.launch.placement;
    return Math.min(leaseMs / 3, control ? renewalInterval(held.serverLeaseMs) : Infinity);
  }

  /** A server that reports a longer lease than is configured has more heartbeats than renewals. */
  private isServerDue(held: Held, asked: number): boolean {
    const { serverRenewedAt = -Infinity } = held;
    return asked + EARLY_US >= serverRenewedAt + this.renewalMs(held) * 1000;
  }

  /** How long one heartbeat may take: with a short lease, an unanswered one must leave time for the next. */
  private patience(held: Held): number {
    return Math.min(ANSWER_MS, this.third(held));
  }

  /** Several tries before the lease is over, however short it is. */
  private retry(held: Held): number {
    return Math.min(RETRY_MS.most, Math.max(RETRY_MS.least, this.third(held) / 4));
  }
}
