import { join } from 'node:path';
import { findCgroupRoot } from '../cgroup/cgroup';
import type { CapacityConfig, Program } from '../config/config';
import type {
  AwaitServerAnswer,
  AwaitServerInput,
  HoldEvent,
  HoldInput,
  RecoverAnswer,
  RecoverInput,
  ServeHostInput,
  StartAnswer,
  StartInput,
  StopAnswer,
  StopInput,
} from '../contract/activities';
import type { RecordReading } from '../contract/control';
import type { Placement } from '../contract/facts';
import type { SystemdPort } from '../systemd/port';
import { Capacity } from './capacity';
import { claimPrefix } from './claim';
import { filesOf, monotonicNow, type HostContext } from './context';
import { adoptServer, readEndpoint, reclaimServer } from './control-recovery';
import { awaitServer } from './control-server';
import { Ports } from './endpoint';
import { provideExitScript } from './exit-record';
import { makeDirectory } from './files';
import type { Finding } from './findings';
import { readCondition } from './condition';
import { ResourceFiles, type HoldRecord } from './generation-files';
import { openInstance, type Instance } from './instance';
import type { Held } from './held';
import { bootBaseOf } from './lease';
import { messageOf, type HostLog } from './log';
import type { OwnerLink } from './owner-link';
import { Presence } from './presence';
import { ProgramRefusedError, Programs } from './programs';
import type { Verdict } from './proof';
import { generationUnits } from './readings';
import { resume } from './resume';
import { NothingStartedError, startGeneration } from './starter';
import { climb, stillRunning, StillRunningError, tryProve, tryToClose } from './stopper';
import { Tracker } from './tracker';
import { within } from './turns';

export interface HostOptions {
  readonly id: string;
  readonly namespace: string;
  /** Task queue of the owners that this host serves. */
  readonly taskQueue: string;
  readonly programs: Readonly<Record<string, Program>>;
  readonly systemd: SystemdPort;
  readonly manager: 'system' | 'user';
  readonly unitPrefix: string;
  readonly runDirectory: string;
  readonly stateDirectory: string;
  /** Mount point of cgroup2 as the host's processes see it; `auto` finds it in the mount table. */
  readonly cgroupRoot: string;
  /** Where the host's root directory is seen from here. Default `/`; `/proc/PID/root` for a host in namespaces. */
  readonly root?: string;
  readonly resyncMs: number;
  /** Default: no limit. */
  readonly capacity?: CapacityConfig;
  /** Claims the host id for this instance where hosts are known by it; rejects with `ClaimedError`. Default: nowhere. */
  readonly claimId?: (instance: Instance) => Promise<void>;
  readonly link: OwnerLink;
  readonly log: HostLog;
}

/** The request was meant for another machine or manager that goes by the same host id. Nothing was done. */
export class WrongInstanceError extends Error {
  override readonly name = 'WrongInstanceError';
}

/** How long a rung of the ladder waits for the proof before it answers `StillRunning`; the hold reports it afterwards. */
const SETTLE_MS = 500;

/** Kept short, so that a missed event costs little while somebody waits for the proof. */
const SETTLE_POLL_MS = 50;

/** What a worker does on its host. Everything here works without Temporal; see {@link OwnerLink}. */
export class Host {
  private readonly tracker: Tracker;
  private readonly presence: Presence;
  private asked = Promise.resolve();

  private constructor(
    readonly context: HostContext,
    options: HostOptions,
  ) {
    this.tracker = new Tracker(context, options.link, options.resyncMs);
    this.presence = new Presence(context, options.link, options.resyncMs);
  }

  /**
   * Opens the host: its instance, the claim on its prefix, and what the former worker process left to go on with.
   * Rejects with `ClaimedError` when somebody else has the state directory or the prefix.
   */
  static async open(options: HostOptions): Promise<Host> {
    const { id: hostId, namespace, taskQueue, systemd, root = '/', runDirectory, unitPrefix, log } = options;
    const manager = options.manager === 'system' ? 'system' : `user:${process.getuid?.() ?? 0}`;
    const who = { hostId, manager, namespace, taskQueue, unitPrefix };
    const identity = await openInstance(options.stateDirectory, root, who, {
      claimId: options.claimId,
      unitsOf: async (former) => {
        await ResourceFiles.closeAll(root, runDirectory, former);
        return generationUnits(systemd, former);
      },
    });
    const managerCgroup = await claimPrefix(systemd, unitPrefix, identity);
    const cgroupRoot = join(root, options.cgroupRoot === 'auto' ? await findCgroupRoot(root) : options.cgroupRoot);
    await makeDirectory(join(root, runDirectory, unitPrefix), 0o711);
    // Where it can't be written nothing starts, and what runs goes on all the same.
    await provideExitScript(root, runDirectory).catch((error: unknown) => {
      log.error('the run directory can’t be written, nothing can be started', {
        runDirectory,
        error: messageOf(error),
      });
    });
    const facts = await systemd.manager();
    const context = {
      systemd,
      identity,
      prefix: unitPrefix,
      root,
      runDirectory,
      cgroupRoot,
      managerCgroup,
      bootBase: bootBaseOf(facts),
      transientDirectory: facts.transientDirectory,
      capacity: new Capacity(options.capacity),
      programs: new Programs(options.programs),
      ports: new Ports(join(root, runDirectory)),
      log,
    };
    const host = new Host(context, options);
    host.asked = (await resume(context, host.tracker, options.link)).asked;
    return host;
  }

  /** What does not fit together on this host; those that ask Temporal come a little later than the host is open. */
  get findings(): readonly Finding[] {
    return this.tracker.findings.list;
  }

  /** Resolves once Temporal was asked for the owners of what nobody holds, as far as it answers. */
  reconciled(): Promise<void> {
    return this.asked;
  }

  get instance(): string {
    return this.context.identity.instance;
  }

  /** Starts or adopts; see `starter.ts`. `received` is µs of CLOCK_MONOTONIC at which the request arrived. */
  async start(input: StartInput, received = monotonicNow()): Promise<StartAnswer> {
    this.checkInstance(input.instance);
    return this.tracker.turns.take(input.resource, async () => {
      const { answer, files, launch, recorded, leased } = await startGeneration(this.context, input, received);
      const held = files && (await this.tracker.load(files, launch, recorded));
      if (held) this.tracker.findings.settle(input.resource, held.launch.placement.generation);
      else this.tracker.freeRoom(input.resource);
      if (held && answer.kind === 'adopted') held.stopping = false; // whoever wanted it stopped is its owner no more
      if (held && leased === false) await this.tracker.leaseMissing(held);
      return answer;
    });
  }

  /** Where an earlier owner's control server was; see `control-recovery.ts`. */
  async readEndpoint(input: RecoverInput): Promise<RecordReading> {
    this.checkInstance(input.instance);
    return readEndpoint(this.context, this.controlProgram(input), input.resource);
  }

  /** Adopts the control server that an earlier owner left, if it is the resource's own; see `control-recovery.ts`. */
  async adoptServer(input: RecoverInput): Promise<RecoverAnswer> {
    this.checkInstance(input.instance);
    const program = this.controlProgram(input);
    return this.tracker.turns.take(input.resource, async () => {
      const { recovery, adopted } = await adoptServer(this.context, program, input);
      if (!adopted) return { recovery };
      const held = await this.tracker.load(adopted.files);
      if (held) {
        held.stopping = false; // whoever wanted it stopped is its owner no more
        held.serverLeaseMs = recovery.lease;
        held.serverAnswers = true;
      }
      return { recovery, placement: adopted.launch.placement };
    });
  }

  /** Asks it to shut down instead. Its end is proven by the ladder. */
  async reclaimServer(input: RecoverInput): Promise<RecoverAnswer> {
    this.checkInstance(input.instance);
    const program = this.controlProgram(input);
    return this.tracker.turns.take(input.resource, () => reclaimServer(this.context, program, input));
  }

  /** Waits until a fresh control server is healthy, and records its endpoint; see `control-server.ts`. */
  async awaitServer({ resource, placement }: AwaitServerInput): Promise<AwaitServerAnswer> {
    this.checkInstance(placement.instance);
    const files = filesOf(this.context, placement.prefix, resource).generation(placement.generation);
    const launch = await files.launch.read();
    if (!launch?.placement.control) return { healthy: false, reason: notHeld(placement, true) };
    const { program: name, generation, unit } = launch.placement;
    const program = this.controlProgram({ resource, program: name, parameters: launch.parameters });
    const answer = await awaitServer(this.context, program, files, launch);
    const held = await this.tracker.load(files);
    if (held && answer.healthy) held.serverAnswers = true;
    if (!answer.healthy) this.context.log.warn('not healthy in time', { resource, generation, unit, ...answer });
    return answer;
  }

  private controlProgram(input: Pick<StartInput, 'resource' | 'program' | 'parameters'>): Program {
    const program = this.context.programs.find(input);
    if (program.control) return program;
    throw new ProgramRefusedError(
      `program "${input.program}" is no control server: it has no "control" in temporal.yaml`,
    );
  }

  /**
   * Does one rung of the ladder and proves the resource free, or rejects with {@link StillRunningError}: then the proof
   * reaches the owner through its hold, whenever it comes.
   */
  async stop(input: StopInput): Promise<StopAnswer> {
    this.checkInstance(input.placement?.instance ?? input.instance);
    const { tracker, context } = this;
    return tracker.turns.take(input.resource, async () => {
      tracker.stopping(input);
      const { subject, open } = await tryToClose(context, input);
      const { failed, jobs } = await climb(context, subject, input.rung);
      const deadline = performance.now() + (input.rung === 'watch' ? 0 : SETTLE_MS);
      await within(SETTLE_POLL_MS, jobs);
      for (;;) {
        const woken = tracker.wakers.next(input.resource, SETTLE_POLL_MS); // before the reading
        const verdict: Verdict = open ? { proven: false, reasons: [open] } : await tryProve(context, subject);
        if (verdict.proven) return tracker.finish(subject, verdict.proof, false);
        if (performance.now() >= deadline) {
          const error = await stillRunning(context, subject, [...failed, ...verdict.reasons]);
          tracker.logUnproven(input.resource, error.details.reasons);
          throw error;
        }
        await woken;
      }
    });
  }

  /** Takes the hold of a generation; events complete it. `scheduledAt` is epoch ms of this attempt. */
  async hold(input: HoldInput, token: string, scheduledAt: number): Promise<void> {
    const { placement, owner, resource } = input;
    this.checkInstance(placement.instance);
    const { ready, greet, lost, programState } = input;
    const record: HoldRecord = { token, owner, ready, greet, lost, programState, scheduledAt };
    const files = filesOf(this.context, placement.prefix, resource).generation(placement.generation);
    const served = placement.prefix === this.context.prefix;
    // In turn: what is being let go of at this moment must not be held on.
    const event = await this.tracker.turns.take<HoldEvent | undefined>(resource, async () => {
      const end = await files.end.read().catch(() => undefined); // unreadable: proven anew
      if (end) return { kind: 'proven', ...end };
      let held: Held | undefined;
      try {
        if (served) held = await this.tracker.load(files);
      } catch (error) {
        return this.notHeld(input, served, error);
      }
      if (!held) return this.notHeld(input, served);
      if (held.launch.placement.invocation === '') {
        held.launch = { ...held.launch, placement }; // which this host has answered and could not record
        held.launchUnwritten = true;
      }
      await this.tracker.keeper.take(held, record);
      this.tracker.findings.settle(resource, placement.generation);
      this.tracker.wake(held);
      return undefined;
    });
    if (event) await this.tracker.keeper.answer(record, event);
  }

  /** Is there for its own workflow, and tells it with each heartbeat what it holds. */
  serve({ instance, draining, greet }: ServeHostInput, token: string): void {
    this.checkInstance(instance);
    this.drain(draining);
    if (!greet) this.presence.take(token);
  }

  /** Takes on no new resources, with a reason, or does so again without one. What it has goes on. */
  drain(reason: string | undefined): void {
    this.context.capacity.draining = reason;
  }

  /**
   * Takes other programs than before: starts are made from them from now on. What runs keeps what it was started with, and
   * its owner is told that its program has changed. Returns whether anything is different.
   */
  reload(programs: Readonly<Record<string, Program>>): boolean {
    const changed = this.context.programs.replace(programs);
    if (changed.length === 0) return false;
    this.context.log.info('programs changed', { changed, programs: Object.keys(programs) });
    this.tracker.wakeAll();
    return true;
  }

  /** Ends the watching; resolves once nothing is under way any more. Every unit goes on, and the next worker holds it on. */
  async close(): Promise<void> {
    this.presence.close();
    await this.tracker.close();
  }

  /**
   * A generation that this host has nothing of, or nothing that can be read: proven by a reboot, over, or left to its lease.
   * An owner that waits for a stop to do its work would not ask again before its time is over; a proof makes it ask at once.
   */
  private async notHeld(input: HoldInput, served: boolean, error?: unknown): Promise<HoldEvent> {
    const { placement, resource, owner } = input;
    if (placement.bootId !== this.context.identity.bootIds.at(-1)) {
      const subject = { resource, owner, placement, generation: placement.generation };
      const verdict = await tryProve(this.context, subject);
      if (verdict.proven) return { kind: 'proven', ...(await this.tracker.finish(subject, verdict.proof, false)) };
    }
    const why = error === undefined ? notHeld(placement, served) : `its files can't be read: ${messageOf(error)}`;
    const condition = await readCondition(this.context, placement);
    // The owner of what runs is not told that it is over for its files alone (G4): it asks again until it is.
    if (served && condition.kind !== 'over') throw new Error(`${why}; it is left to its lease, ${condition.text}`);
    return { kind: 'ended', reason: served ? `${why}, and ${condition.text}` : why };
  }

  private checkInstance(expected: string | undefined): void {
    if (expected === undefined || expected === this.instance) return;
    throw new WrongInstanceError(
      `this is instance ${this.instance} of host id "${this.context.identity.hostId}", the request is for ${expected}: ` +
        'two hosts go by one id, or the state directory was lost; give each host its own host.id',
    );
  }
}

function notHeld({ generation, prefix }: Placement, served: boolean): string {
  if (served) return `this host has no files of generation ${generation}`;
  return `it runs under the prefix "${prefix}", which this worker no longer has`;
}

export { NothingStartedError, ProgramRefusedError, StillRunningError };
