import type { StopAnswer } from '../contract/activities';
import type { Proof } from '../contract/facts';
import { letGo, recordEnd } from './after-proof';
import { readCondition, type Condition } from './condition';
import { Ports } from './control-server';
import { monotonicNow, type HostContext } from './context';
import type { GenerationFiles } from './generation-files';
import { attributesOf, LeaseKeeper, type Held } from './keeper';
import { isArmed } from './lease';
import { messageOf, Sparse } from './log';
import { Observer } from './observer';
import type { OwnerLink } from './owner-link';
import { closeGenerations, tryProve, type StopSubject } from './stopper';
import { Turns, Wakers, within } from './turns';

/** Between two looks at one generation: a program that keeps changing its status line wakes a worker that often, not more. */
const LOOK_AGAIN_MS = 20;

/** So long a worker that closes goes on letting go of what was proven; the next worker goes on with the rest. */
const LETTING_GO_MS = 1000;

/**
 * The generations that a worker process has: looks at one when it is woken, tells its owner what happened, and lets go of
 * it after proof, also when no caller ever asks.
 */
export class Tracker {
  /** Starts, stops and proofs of one resource don't interleave within this process. */
  readonly turns = new Turns();
  /** Woken, by resource, whenever something may have changed. */
  readonly wakers = new Wakers();
  readonly keeper: LeaseKeeper;
  /** Those that control servers listen on. */
  readonly ports = new Ports();
  private readonly observer: Observer;
  private readonly held = new Map<string, Held>();
  /** Generations that are being looked at → whether they were woken meanwhile. */
  private readonly looking = new Map<Held, boolean>();
  private readonly lettingGo = new Set<Promise<void>>();
  private readonly arming = new Map<Held, Promise<void>>();
  private readonly sparse = new Sparse(2000);
  private closed = false;

  constructor(
    private readonly host: HostContext,
    link: OwnerLink,
    resyncMs: number,
  ) {
    this.keeper = new LeaseKeeper(host, link, (held, condition) => void this.react(held, condition));
    host.systemd.onResync(() => this.keeper.managerIsBack());
    this.observer = new Observer(host, {
      resyncMs,
      onWake: (held) => this.wake(held),
      onLeaseMissing: (held) => void this.leaseMissing(held),
    });
  }

  /**
   * What this worker has of a generation, as its files say now: another worker process of this host may have started it,
   * renewed its lease or asked it to stop. Undefined where there is nothing, or nothing any more, to hold.
   */
  async load(files: GenerationFiles): Promise<Held | undefined> {
    const [end, launch, lease, hold, stopRecord] = await Promise.all([
      files.end.read(),
      files.launch.read(),
      files.lease.read(),
      files.hold.read(),
      files.stopping.read(),
    ]);
    if (end || !launch || !lease || launch.placement.bootId !== this.host.identity.bootIds.at(-1)) return undefined;
    const stopping = stopRecord !== undefined;
    const { unit } = launch.placement;
    const known = this.held.get(unit);
    if (known) {
      known.launch = launch;
      known.stopping ||= stopping;
      if (lease.n > known.lease.n) known.lease = lease;
      return known;
    }
    const held: Held = { files, launch, lease, hold, stopping };
    this.held.set(unit, held);
    this.ports.keep(launch.placement.control?.endpoint);
    this.observer.track(held);
    return held;
  }

  /** From now on only the proof of these generations is an event. Arms their watch anew, before the first reading. */
  stopping(subject: StopSubject): void {
    for (const held of this.heldOf(subject)) {
      held.stopping = true;
      this.observer.arm(held.launch.placement.slice);
    }
  }

  /** Looks again, soon, and once for many wake-ups. */
  wake(held: Held): void {
    this.wakers.wake(held.launch.resource);
    if (!this.isTracked(held)) return;
    if (this.looking.has(held)) {
      this.looking.set(held, true);
      return;
    }
    this.looking.set(held, false);
    void readCondition(this.host, held.launch.placement)
      .then((condition) => this.react(held, condition))
      .finally(() => {
        setTimeout(() => {
          const again = this.looking.get(held);
          this.looking.delete(held);
          if (again) this.wake(held);
        }, LOOK_AGAIN_MS).unref();
      });
  }

  /**
   * After proof: writes the end down and tells the hold where nobody else will. What is kept for the resource is let go
   * of in its next turn: whoever waits for the proof does not wait for that.
   */
  async finish(subject: StopSubject, proof: Proof, tellHold: boolean): Promise<StopAnswer> {
    const { resource } = subject;
    const end = await recordEnd(this.host, subject, proof);
    this.host.log.info('proven', { resource, generation: proof.generation, by: proof.by, exit: end.exit.wording });
    for (const held of this.heldOf(subject)) {
      this.held.delete(held.launch.placement.unit);
      this.ports.free(held.launch.placement.control?.endpoint);
      this.observer.untrack(held);
      this.keeper.forget(held);
      if (tellHold && held.hold) void this.keeper.answer(held.hold, { kind: 'proven', ...end });
    }
    this.letGo(subject);
    return end;
  }

  /** Lets go of what was proven, also where the former worker process ended in the middle of it. */
  letGo(subject: StopSubject): void {
    const done = this.turns.take(subject.resource, () => letGo(this.host, subject));
    this.lettingGo.add(done);
    void done.finally(() => this.lettingGo.delete(done));
  }

  /**
   * A living unit without a timer that would end it: arms one for the deadline it had, tries that once more, and where it
   * can't be done, or the deadline has passed, ends the process as its lease would have (G7). Never rejects.
   */
  leaseMissing(held: Held): Promise<void> {
    const under = this.arming.get(held) ?? this.armAgain(held).finally(() => this.arming.delete(held));
    this.arming.set(held, under);
    return under;
  }

  private async armAgain(held: Held): Promise<void> {
    const { placement } = held.launch;
    const log = { ...attributesOf(held), unit: placement.unit };
    try {
      const condition = await readCondition(this.host, placement);
      if (condition.kind !== 'living') return this.wake(held);
      // The list that showed none may be older than the timer.
      if (await isArmed(this.host, placement.unit, held.lease)) return;
      for (let attempt = 1; attempt <= 2 && held.lease.deadline > monotonicNow(); attempt++) {
        try {
          await this.keeper.renew(held, held.lease.deadline);
          this.host.log.warn('the lease timer was gone; armed again', log);
          if (held.hold && !held.stopping)
            await this.keeper.tell(held, { kind: 'noticed', what: 'its lease timer was gone; armed again' });
          return;
        } catch (error) {
          this.host.log.error('the lease timer is gone and could not be armed', { ...log, error: messageOf(error) });
        }
      }
      held.endedFor = held.lease.deadline > monotonicNow() ? 'its lease could not be armed' : 'its lease was over';
      await this.host.systemd.stopInvocation(placement.invocation);
    } catch (error) {
      if (this.closed) return;
      this.host.log.error('a process without a lease could not be stopped', { ...log, error: messageOf(error) });
    }
  }

  /** Says that there is no proof yet, and not more often than somebody would read it. */
  logUnproven(resource: string, reasons: readonly string[]): void {
    if (this.sparse.due(resource)) this.host.log.warn('processes remain, not releasing', { resource, reasons });
  }

  /** Ends the watching, and the connection to the manager; resolves once nothing here is under way any more. */
  async close(): Promise<void> {
    this.closed = true;
    this.keeper.close();
    this.observer.close();
    await within(LETTING_GO_MS, Promise.all(this.lettingGo));
    await this.host.systemd.close();
    await this.turns.idle();
  }

  /** What a seen condition means for whoever holds this generation. Never rejects. */
  private async react(held: Held, condition: Condition): Promise<void> {
    if (!this.isTracked(held)) return;
    const { hold } = held;
    try {
      if (hold && !held.stopping) {
        if (condition.kind === 'over')
          await this.keeper.tell(held, {
            kind: 'ended',
            reason: held.endedFor ?? (await this.reasonOf(held, condition)),
          });
        else if (condition.kind === 'living' && hold.greet) await this.keeper.tell(held, { kind: 'holding' });
        else if (condition.kind === 'living' && condition.ready && !hold.ready && !held.launch.placement.control)
          await this.keeper.tell(held, { kind: 'ready' });
        else if (condition.kind === 'living') await this.notice(held, condition.noticed);
      } else if (hold?.greet) await this.keeper.tell(held, { kind: 'holding' });
      else if (condition.kind === 'over') await this.watchForProof(held);
    } catch (error) {
      if (this.closed) return;
      const log = { ...attributesOf(held), seen: condition.text, error: messageOf(error) };
      this.host.log.warn('could not act on what was seen', log);
    }
  }

  /** Tells the log and the owner what other hands have done to a living unit: once for each change of it. */
  private async notice(held: Held, noticed: string): Promise<void> {
    const former = held.noticed ?? '';
    if (noticed === former) return;
    held.noticed = noticed;
    const what = noticed === '' ? `no longer: ${former}` : noticed;
    this.host.log.warn('other hands', { ...attributesOf(held), what });
    await this.keeper.tell(held, { kind: 'noticed', what });
  }

  /** Why it is over. Its lease can't have stopped it before its deadline, and what an owner has asked for is in the files. */
  private async reasonOf(held: Held, { text, stopped }: Condition & { kind: 'over' }): Promise<string> {
    if (!stopped || held.lease.deadline <= monotonicNow() || (await held.files.stopping.read())) return text;
    return `${text}: stopped by other hands, or by the host’s shutdown`;
  }

  /** Proves what is being stopped, or what nobody holds any more, and lets go of it. */
  private async watchForProof(held: Held): Promise<void> {
    const { resource, placement, owner } = held.launch;
    await this.turns.take(resource, async () => {
      if (!this.isTracked(held) || (held.hold && !held.stopping)) return;
      const subject = { resource, placement, owner, generation: placement.generation };
      await closeGenerations(this.host, subject);
      const verdict = await tryProve(this.host, subject);
      if (verdict.proven) await this.finish(subject, verdict.proof, true);
      else this.logUnproven(resource, verdict.reasons);
    });
  }

  private isTracked(held: Held): boolean {
    return !this.closed && this.held.get(held.launch.placement.unit) === held;
  }

  /** What this worker has of a resource, up to the subject's generation: what is above is another request's. */
  private heldOf(subject: StopSubject): readonly Held[] {
    return [...this.held.values()].filter(
      ({ launch }) => launch.resource === subject.resource && launch.placement.generation <= subject.generation,
    );
  }
}
