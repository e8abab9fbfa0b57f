import { UnsentError } from './errors';
import { SystemdError, type Job, type JobResult } from './port';

/**
 * What a job is for, in the order in which waiting ones are served:
 * - `timer`: a lease timer starts or stops. It takes milliseconds, and a process dies of one that waits too long.
 * - `stop`: a stop must not wait behind a thousand starts.
 * - `start`: all others. A start may last as long as the process needs to be ready.
 */
export type JobClass = 'timer' | 'stop' | 'start';

const CLASSES: readonly JobClass[] = ['timer', 'stop', 'start'];

/** Of all slots, how many each class leaves to the classes before it. */
const RESERVED: Readonly<Record<JobClass, number>> = { timer: 0, stop: 8, start: 16 };

/** A place for one job: taken before the call is sent, given back when its job is known to be over. */
export interface Slot {
  /** Names the call and the unit in messages. */
  readonly label: string;
  /** The job, once the manager has accepted the call. */
  job?: Job;
  /** The call was given up without an answer: a job may or may not have come of it. */
  abandoned?: boolean;
  /** Settles `job.done`. */
  end?: (result: JobResult | SystemdError) => void;
}

interface Waiter {
  readonly label: string;
  readonly resolve: (slot: Slot) => void;
  readonly reject: (error: SystemdError) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Keeps the jobs on the manager below a limit. Jobs, not calls: each unfinished job of ours holds a match rule of PID 1
 * on the bus, and at 512 the bus refuses the next and PID 1 falls off it.
 *
 * A slot comes back by JobRemoved, by an error as the answer, or by {@link recheck}, for a JobRemoved can be lost over a
 * daemon-reload, a daemon-reexec and a disconnect (systemd#8803, #27024).
 */
export class Jobs {
  private readonly slots = new Set<Slot>();
  private readonly waiting: Readonly<Record<JobClass, Set<Waiter>>> = {
    timer: new Set(),
    stop: new Set(),
    start: new Set(),
  };
  /** Jobs that ended while calls were unanswered: an end may be read before the answer that names the job. */
  private readonly ended = new Map<string, JobResult>();
  private closed = false;

  constructor(
    private readonly limit: number,
    private readonly queueTimeoutMs: number,
  ) {}

  /** Jobs that exist or may exist. */
  get inFlight(): number {
    return this.slots.size;
  }

  /**
   * A slot for one job, in turn within its class. Rejects with kind `busy` when none becomes free in time: then nothing
   * was sent. A lost bus rejects nobody who waits here, for nothing of theirs was on it.
   */
  take(jobClass: JobClass, label: string): Promise<Slot> {
    if (this.closed) return Promise.reject(new UnsentError(label, 'the connection was closed'));
    return new Promise((resolve, reject) => {
      const waiting = this.waiting[jobClass];
      const timer = setTimeout(() => {
        waiting.delete(waiter);
        reject(new SystemdError('busy', `${label}: not sent: ${this.inFlight} other jobs did not end in time`));
      }, this.queueTimeoutMs);
      const waiter: Waiter = { label, resolve, reject, timer };
      waiting.add(waiter);
      this.serve();
    });
  }

  /** The manager has accepted the call: the slot is its job's from now on. */
  accept(slot: Slot, path: string): void {
    const done = new Promise<JobResult>((resolve, reject) => {
      slot.end = (result) => (result instanceof SystemdError ? reject(result) : resolve(result));
    });
    // Not every caller waits for the end of its job, and a lost bus must not end the process over it.
    done.catch(() => undefined);
    slot.job = { path, done };
    const result = this.ended.get(path);
    if (result !== undefined) this.finish(slot, result);
  }

  /** Gives a slot back whose call certainly made no job. */
  free(slot: Slot): void {
    if (!this.slots.delete(slot)) return;
    if (!this.unanswered()) this.ended.clear();
    this.serve();
  }

  /** JobRemoved, for any job of the manager. */
  removed(path: string, result: JobResult): void {
    if (this.unanswered()) this.ended.set(path, result);
    for (const slot of this.slots) {
      // Not only one: two stops of a unit share a job.
      if (slot.job?.path === path) this.finish(slot, result);
    }
  }

  /** The bus is lost: how these jobs end will not be told. They keep their slots until {@link recheck} misses them. */
  lost(reason: SystemdError): void {
    for (const { label, end } of this.slots) {
      end?.(
        new SystemdError('unknown', `${label}: the end of its job is unknown: ${reason.message}`, { cause: reason }),
      );
    }
  }

  /**
   * Ends what the manager no longer has. `list` asks for the paths of all jobs (ListJobs). The manager handles our calls
   * in order, and sends JobRemoved before a list without the job: a job from before the question that is not in the
   * answer is over, and whoever still waits for its signal waits in vain.
   */
  async recheck(list: () => Promise<ReadonlySet<string>>): Promise<void> {
    const suspects = [...this.slots].filter((slot) => slot.job || slot.abandoned);
    if (suspects.length === 0) return;
    const jobs = await list();
    for (const slot of suspects) {
      if (!this.slots.has(slot) || (slot.job && jobs.has(slot.job.path))) continue;
      this.finish(slot, new SystemdError('unknown', `${slot.label}: its job is over, but its result was not seen`));
    }
  }

  /** Rejects whatever waits, and all that still comes. */
  close(): void {
    this.closed = true;
    for (const jobClass of CLASSES) {
      for (const { label, reject, timer } of this.waiting[jobClass]) {
        clearTimeout(timer);
        reject(new UnsentError(label, 'the connection was closed'));
      }
      this.waiting[jobClass].clear();
    }
  }

  private finish(slot: Slot, result: JobResult | SystemdError): void {
    slot.end?.(result);
    this.free(slot);
  }

  private unanswered(): boolean {
    for (const slot of this.slots) if (!slot.job) return true;
    return false;
  }

  private serve(): void {
    for (const jobClass of CLASSES) {
      for (const waiter of this.waiting[jobClass]) {
        if (this.slots.size >= this.limit - RESERVED[jobClass]) break;
        this.waiting[jobClass].delete(waiter);
        clearTimeout(waiter.timer);
        const slot: Slot = { label: waiter.label };
        this.slots.add(slot);
        waiter.resolve(slot);
      }
    }
  }
}
