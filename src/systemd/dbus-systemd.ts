import { socketPath } from './address';
import { Bus, toManager, type BusLog } from './bus';
import type { Request, Signal } from './connection';
import { UnsentError } from './errors';
import { Jobs, type JobClass } from './jobs';
import { checkInvocation, checkPattern, checkUnitName, UNIT_INTERFACE } from './names';
import type {
  SystemdError,
  Job,
  JobResult,
  ManagerFacts,
  SystemdPort,
  TransientUnit,
  UnitListing,
  UnitProperties,
  UnitPropertyName,
} from './port';
import { listJobs, listUnits, readInvocation, readManager, readUnit } from './reads';
import { invocationPath, unitOfPath } from './unit-path';
import { settingsOf } from './values';

export interface SystemdOptions {
  /** Address of the manager's bus, `unix:path=PATH`: the system's, or a user's (`/run/user/UID/bus`). */
  readonly busAddress: string;
  /** Within this time every call is answered or rejects. Default 5000. */
  readonly callTimeoutMs?: number;
  /**
   * How long a start or stop waits for one of `maxJobs` before it is sent and `callTimeoutMs` begins. Default 30000;
   * after it the call rejects with kind `busy`.
   */
  readonly queueTimeoutMs?: number;
  /** How often to look for jobs whose end was missed. Default 3000. */
  readonly recheckMs?: number;
  /** Most unfinished jobs on the manager. Default 64; less than 24 counts as 24. */
  readonly maxJobs?: number;
  /** Where losses and reconnections are told. Default: nowhere. */
  readonly log?: BusLog;
}

/**
 * Connects to a systemd manager over its message bus. Rejects with a {@link SystemdError} if that takes longer than
 * `callTimeoutMs`; its kind is `refused` where the bus does not accept the user that this process runs as. Once
 * connected it reconnects by itself, until it is closed.
 */
export async function connectSystemd(options: SystemdOptions): Promise<DBusSystemd> {
  const systemd = new DBusSystemd(options);
  try {
    await systemd.connected();
  } catch (error) {
    await systemd.close();
    throw error;
  }
  return systemd;
}

/** The {@link SystemdPort} of a real manager: org.freedesktop.systemd1(5) through dbus-next's low-level messages. */
export class DBusSystemd implements SystemdPort {
  private readonly bus: Bus;
  private readonly jobs: Jobs;
  private readonly log: BusLog;
  private readonly callTimeoutMs: number;
  private readonly recheckTimer: NodeJS.Timeout;
  private readonly unitListeners = new Set<(unit: string) => void>();
  private readonly resyncListeners = new Set<() => void>();

  /** Begins to connect; calls wait for it. */
  constructor(private readonly options: SystemdOptions) {
    const { callTimeoutMs = 5000, queueTimeoutMs = 30_000, recheckMs = 3000, maxJobs = 64 } = options;
    this.callTimeoutMs = callTimeoutMs;
    this.log = options.log ?? { debug: () => undefined, info: () => undefined, warn: () => undefined };
    this.jobs = new Jobs(Math.max(24, maxJobs), queueTimeoutMs);
    const events = {
      signal: (signal: Signal) => this.onSignal(signal),
      ready: () => this.resync(),
      lost: (reason: SystemdError) => this.jobs.lost(reason),
    };
    this.bus = new Bus(socketPath(options.busAddress), callTimeoutMs, events, this.log);
    this.recheckTimer = setInterval(() => this.recheckJobs(), recheckMs).unref();
  }

  /** Unfinished jobs that this connection has, or may have, on the manager. */
  get jobsInFlight(): number {
    return this.jobs.inFlight;
  }

  /** Resolves once calls can be sent; rejects with the reason if that takes longer than `callTimeoutMs`. */
  async connected(): Promise<void> {
    try {
      await this.bus.whenUsable(`connect to ${this.options.busAddress}`, this.deadline());
    } catch (error) {
      throw this.bus.failure ?? error;
    }
  }

  async manager(): Promise<ManagerFacts> {
    return readManager(this.bus, this.deadline());
  }

  async listUnits(pattern: string): Promise<readonly UnitListing[]> {
    checkPattern('ListUnitsByPatterns', pattern);
    return listUnits(this.bus, pattern, this.deadline());
  }

  async unitProperties(unit: string, names: readonly UnitPropertyName[]): Promise<UnitProperties | undefined> {
    checkUnitName('GetUnit', unit);
    return readUnit(this.bus, unit, names, this.deadline());
  }

  async invocationState(invocation: string): ReturnType<SystemdPort['invocationState']> {
    checkInvocation(`read invocation ${invocation}`, invocation);
    return readInvocation(this.bus, invocation, this.deadline());
  }

  async startTransientUnit(unit: TransientUnit, auxiliary: readonly TransientUnit[]): Promise<Job> {
    const label = `StartTransientUnit ${unit.name}`;
    for (const { name } of [unit, ...auxiliary]) checkUnitName(label, name);
    const others = auxiliary.map((other) => [other.name, settingsOf(other)]);
    const body = [unit.name, 'fail', settingsOf(unit), others];
    const request = toManager(label, 'StartTransientUnit', 'ssa(sv)a(sa(sv))', body);
    return this.job(isTimer(unit.name) ? 'timer' : 'start', request);
  }

  async stopInvocation(invocation: string): Promise<Job> {
    const label = `Stop invocation ${invocation}`;
    checkInvocation(label, invocation);
    const request = toManager(label, 'Stop', 's', ['replace']);
    return this.job('stop', { ...request, path: invocationPath(invocation), interface: UNIT_INTERFACE });
  }

  async stopUnit(unit: string): Promise<Job> {
    const label = `StopUnit ${unit}`;
    checkUnitName(label, unit);
    return this.job(isTimer(unit) ? 'timer' : 'stop', toManager(label, 'StopUnit', 'ss', [unit, 'replace']));
  }

  async killUnit(unit: string, signal: number): Promise<void> {
    const label = `KillUnit ${unit} with signal ${signal}`;
    checkUnitName(label, unit);
    await this.bus.call(toManager(label, 'KillUnit', 'ssi', [unit, 'all', signal]), this.deadline());
  }

  async resetFailedUnit(unit: string): Promise<void> {
    const label = `ResetFailedUnit ${unit}`;
    checkUnitName(label, unit);
    await this.bus.call(toManager(label, 'ResetFailedUnit', 's', [unit]), this.deadline());
  }

  onUnitChanged(listener: (unit: string) => void): () => void {
    this.unitListeners.add(listener);
    return () => this.unitListeners.delete(listener);
  }

  onResync(listener: () => void): () => void {
    this.resyncListeners.add(listener);
    return () => this.resyncListeners.delete(listener);
  }

  async close(): Promise<void> {
    clearInterval(this.recheckTimer);
    this.jobs.close();
    await this.bus.close();
  }

  private deadline(): number {
    return performance.now() + this.callTimeoutMs;
  }

  /** A call that is answered with a job's path: sent once it has a slot, which the job then keeps. */
  private async job(jobClass: JobClass, request: Request): Promise<Job> {
    const slot = await this.jobs.take(jobClass, request.label);
    try {
      // On the answer itself: before the next signal is read, and for one that comes too late for the caller as well.
      await this.bus.call(request, this.deadline(), (reply) =>
        reply ? this.jobs.accept(slot, String(reply[0])) : this.jobs.free(slot),
      );
    } catch (error) {
      if (error instanceof UnsentError) this.jobs.free(slot);
      slot.abandoned = true;
      throw error;
    }
    return slot.job!;
  }

  private onSignal({ member, path, body }: Signal): void {
    switch (member) {
      case 'PropertiesChanged':
        return this.unitChanged(unitOfPath(path));
      case 'UnitRemoved':
        return this.unitChanged(String(body[0]));
      case 'JobRemoved':
        this.jobs.removed(String(body[1]), String(body[3]) as JobResult);
        return this.unitChanged(String(body[2]));
      case 'Reloading':
        // Over a reload, signals about jobs and about emptied cgroups have been lost (systemd#8803, #20198).
        if (body[0] === false) this.resync();
    }
  }

  private unitChanged(unit: string | undefined): void {
    if (unit !== undefined) for (const listener of this.unitListeners) this.tell(() => listener(unit));
  }

  private resync(): void {
    this.recheckJobs();
    for (const listener of this.resyncListeners) this.tell(listener);
  }

  private recheckJobs(): void {
    this.jobs
      .recheck(() => listJobs(this.bus, this.deadline()))
      // No answer says nothing about any job. The next tick, or the next resync, asks again.
      .catch((error: Error) => this.log.debug(`systemd: could not look for jobs: ${error.message}`));
  }

  /** A listener's exception must not reach dbus-next, which would send it to the manager as an error message. */
  private tell(listener: () => void): void {
    try {
      listener();
    } catch (error) {
      this.log.warn(`systemd: a listener threw: ${error instanceof Error ? error.stack : String(error)}`);
    }
  }
}

function isTimer(unit: string): boolean {
  return unit.endsWith('.timer');
}
