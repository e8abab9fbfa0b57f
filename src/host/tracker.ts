import type { StopAnswer } from '../contract/activities';
import type { Proof } from '../contract/facts';
import { ownerWorkflowId } from '../contract/names';
import { Abandoned } from './abandoned';
import { letGo, recordEnd } from './after-proof';
import { isLiving, needsLease, readCondition, type Condition } from './condition';
import { monotonicNow, type HostContext } from './context';
import { Findings } from './findings';
import type { EndRecord, GenerationFiles, HoldRecord, LaunchRecord } from './generation-files';
import { attributesOf, type Held } from './held';
import { LeaseKeeper } from './keeper';
import { isArmed } from './lease';
import { messageOf, Sparse } from './log';
import { Observer } from './observer';
import { LooseUnits } from './loose-units';
import type { OwnerLink } from './owner-link';
import { Renewals } from './renewals';
import { closeGenerations, tryProve, type StopSubject } from './stopper';
import { Turns, Wakers, within } from './turns';
import { isOwn } from './unit';

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
  readonly renewals: Renewals;
  /** What does not fit together on this host. */
  readonly findings: Findings;
  private readonly observer: Observer;
  /** What has no owner any more. */
  readonly abandoned: Abandoned;
  /** What somebody else made, or nobody has files of. */
  readonly looseUnits: LooseUnits;
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
    private readonly resyncMs: number,
  ) {
    this.findings = new Findings(host.log);
    this.abandoned = new Abandoned(host, link, this.findings, 2 * resyncMs);
    this.looseUnits = new LooseUnits(host, link, this.findings, this.abandoned);
    this.renewals = new Renewals(host);
    this.keeper = new LeaseKeeper(
      host,
      link,
      this.renewals,
      (held, condition) => void this.react(held, condition),
      (held) => this.abandoned.standing(held),
    );
    host.systemd.onResync(() => this.keeper.managerIsBack());
    this.observer = new Observer(host, {
      resyncMs,
      onResynced: (units) => {
        void this.abandoned.look(this.held.values());
        void this.looseUnits.look(units, (unit) => this.held.has(unit));
      },
      onWake: (held) => this.wake(held),
      onLeaseMissing: (held) => void this.leaseMissing(held),
    });
  }

  /**
   * What this worker has of a generation, as its files say now: another worker process of this host may have started it,
   * renewed its lease or asked it to stop. Undefined where there is nothing, or nothing any more, to hold; rejects where the
   * launch record or the lease can't be read. `started` is the launch record of what this worker has just
   * started, whether or not it is `recorded`.
   *
   * The other records are not needed: without its hold a generation waits for the owner's next one, what was proven is
   * proven again, and a stop is asked for again.
   */
  async load(files: GenerationFiles, started?: LaunchRecord, recorded = true): Promise<Held | undefined> {
    const [end, launch, lease, hold, stopRecord] = await Promise.all([
      files.end.read().catch(() => undefined),
      started ?? files.launch.read(),
      files.lease.read(),
      files.hold.read().catch(() => undefined),
      files.stopping.read().catch(() => undefined),
    ]);
    if (end || !launch || !lease || launch.placement.bootId !== this.host.identity.bootIds.at(-1)) return undefined;
    const stopping = stopRecord !== undefined;
    const { unit } = launch.placement;
    const known = this.held.get(unit);
    if (known) {
      // What was started while the disk was full has its invocation in memory alone.
      if (launch.placement.invocation !== '' || known.launch.placement.invocation === '') known.launch = launch;
      known.stopping ||= stopping;
      if (lease.n > known.lease.n) known.lease = lease;
      return known;
    }
    const held: Held = { files, launch, lease, hold, stopping, launchUnwritten: started !== undefined && !recorded };
    this.held.set(unit, held);
    this.host.capacity.keep(launch.resource, launch.memoryBytes);
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

  /** Looks at everything again. */
  wakeAll(): void {
    for (const held of this.held.values()) this.wake(held);
  }

  /**
   * After proof: writes the end down and tells the hold where nobody else will. What is kept for the resource is let go
   * of in its next turn: whoever waits for the proof does not wait for that.
   */
  async finish(subject: StopSubject, proof: Proof, tellHold: boolean): Promise<StopAnswer> {
    const { resource, generation } = subject;
    const known = this.held.get(subject.placement?.unit ?? '');
    const end = await recordEnd(this.host, subject, proof, known?.lease.deadline);
    this.findings.settle(resource, generation);
    this.host.log.info('proven', { resource, generation: proof.generation, by: proof.by, exit: end.exit.wording });
    const renewals: Promise<void>[] = [];
    for (const held of this.heldOf(subject)) {
      this.held.delete(held.launch.placement.unit);
      this.observer.untrack(held);
      renewals.push(this.keeper.end(held));
      if (tellHold && held.hold) void this.keeper.answer(held.hold, { kind: 'proven', ...end });
    }
    this.freeRoom(resource);
    this.letGo(subject, end, Promise.all(renewals));
    return end;
  }

  /** Frees a resource's room on the host, unless this worker has anything of it. */
  freeRoom(resource: string): void {
    const has = [...this.held.values()].some(({ launch }) => launch.resource === resource);
    if (!has) this.host.capacity.free(resource);
  }

  /**
   * Lets go of what was proven, `after` what may still write to it; also where the former worker process ended in the middle
   * of it.
   */
  letGo(subject: StopSubject, end?: EndRecord, after: Promise<unknown> = Promise.resolve()): void {
    const done = this.turns.take(subject.resource, async () => {
      await after;
      if (await letGo(this.host, subject, end)) return;
      // For example in a run directory that is read-only: again, for as long as this worker is there.
      setTimeout(() => void (this.closed || this.letGo(subject, end)), this.resyncMs).unref();
    });
    this.lettingGo.add(done);
    void done.finally(() => this.lettingGo.delete(done));
  }

  /**
   * Lets go of what a worker process left of a start that it had no time to send: a launch record and a lease are written
   * before systemd is asked, and one of them is missing. The generation is closed first, for another worker process may be in
   * the middle of it, and a proof is asked for, for a file may as well have been lost: what lives is left alone.
   */
  dropUnsent(resource: string, files: GenerationFiles): void {
    const { generation } = files;
    const { namespace, taskQueue } = this.host.identity;
    const owner = { namespace, taskQueue, workflowId: ownerWorkflowId(resource), ownerId: '' };
    const done = this.turns.take(resource, async () => {
      const [end, launch, lease] = await Promise.all([files.end.read(), files.launch.read(), files.lease.read()]);
      if (end || (launch && lease)) return;
      const subject = await closeGenerations(this.host, { resource, generation, owner });
      if (!(await tryProve(this.host, subject)).proven) return;
      await files.remove();
      this.findings.settle(resource, generation);
    });
    const said = done.catch((error: unknown) => {
      this.host.log.warn('could not clean up after a start', { resource, generation, error: messageOf(error) });
    });
    this.lettingGo.add(said);
    void said.finally(() => this.lettingGo.delete(said));
  }

  /**
   * A unit that is up without a timer that would end it: arms one for the deadline it had, tries that once more, and where it
   * can't be done, or the deadline has passed, ends the process as its lease would have (G7). So it is with what other hands
   * have restarted, and with the children of a main process that has ended, as long as the unit is the resource's own. Never
   * rejects.
   */
  leaseMissing(held: Held): Promise<void> {
    const under = this.arming.get(held) ?? this.armAgain(held).finally(() => this.arming.delete(held));
    this.arming.set(held, under);
    return under;
  }

  private async armAgain(held: Held): Promise<void> {
    const { placement, resource, owner } = held.launch;
    const log = { ...attributesOf(held), unit: placement.unit };
    try {
      const unit = await this.host.systemd.unitProperties(placement.unit, [
        'ActiveState',
        'SubState',
        'InvocationID',
        'LogExtraFields',
      ]);
      if (!unit?.InvocationID || !needsLease(unit) || !isOwn(unit, resource, placement.generation, owner)) {
        return this.wake(held);
      }
      // Another worker process of this host may have renewed it since.
      const { n, deadline } = (await held.files.lease.read().catch(() => undefined)) ?? held.lease;
      if (n > held.lease.n) held.lease = { n, oldest: n, deadline };
      // The list that showed none may be older than the timer.
      if (await isArmed(this.host, placement.unit, held.lease)) return;
      for (let attempt = 1; attempt <= 2 && held.lease.deadline > monotonicNow(); attempt++) {
        try {
          await this.renewals.renew(held, held.lease.deadline);
          this.host.log.warn('the lease timer was gone; armed again', log);
          if (held.hold && !held.stopping)
            await this.keeper.tell(held, { kind: 'noticed', what: 'its lease timer was gone; armed again' });
          return;
        } catch (error) {
          this.host.log.error('the lease timer is gone and could not be armed', { ...log, error: messageOf(error) });
        }
      }
      const own = unit.InvocationID === placement.invocation && isLiving(unit);
      if (own)
        held.endedFor = held.lease.deadline > monotonicNow() ? 'its lease could not be armed' : 'its lease was over';
      await this.host.systemd.stopInvocation(unit.InvocationID);
    } catch (error) {
      if (this.closed) return;
      this.host.log.error('a process without a lease could not be stopped', { ...log, error: messageOf(error) });
    }
  }

  /** Says that there is no proof yet, and not more often than somebody would read it. */
  logUnproven(resource: string, reasons: readonly string[]): void {
    if (this.sparse.due(resource)) this.host.log.warn('processes remain, not releasing', { resource, reasons });
  }

  get isClosed(): boolean {
    return this.closed;
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
        else if (condition.kind === 'living') await this.tellNews(held, hold, condition.noticed);
      } else if (hold?.greet) await this.keeper.tell(held, { kind: 'holding' });
      else if (condition.kind === 'over') await this.watchForProof(held);
    } catch (error) {
      if (this.closed) return;
      const log = { ...attributesOf(held), seen: condition.text, error: messageOf(error) };
      this.host.log.warn('could not act on what was seen', log);
    }
  }

  /** Tells an owner what it does not know yet of a process that goes on: its program in temporal.yaml, or other hands on it. */
  private async tellNews(held: Held, hold: HoldRecord, noticed: string): Promise<void> {
    const state = this.host.programs.stateOf(held.launch);
    if (hold.programState !== undefined && hold.programState !== state)
      return this.keeper.tell(held, { kind: 'program', state });
    const former = held.noticed ?? '';
    if (noticed === former) return;
    const what = noticed === '' ? `no longer: ${former}` : noticed;
    if (this.sparse.due(`${held.launch.placement.unit} ${what}`))
      this.host.log.warn('other hands', { ...attributesOf(held), what });
    await this.keeper.tell(held, { kind: 'noticed', what });
    if (held.hold !== hold) held.noticed = noticed; // else it was not heard, and is told again
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

  /** Whether this worker has it still: it is not proven, and the worker not closed. */
  isTracked(held: Held): boolean {
    return !this.closed && this.held.get(held.launch.placement.unit) === held;
  }

  /** What this worker has of a resource, up to the subject's generation: what is above is another request's. */
  private heldOf(subject: StopSubject): readonly Held[] {
    return [...this.held.values()].filter(
      ({ launch }) => launch.resource === subject.resource && launch.placement.generation <= subject.generation,
    );
  }
}
