/**
 * What this project asks of a systemd manager: about ten calls. `host/` depends on this interface alone; the one
 * implementation for production is the D-Bus adapter beside it, and a test may wrap it to cause faults.
 *
 * Every call settles: with an answer of the manager, or with a {@link SystemdError}. An error whose kind is `unknown`
 * says nothing about what happened (G4).
 */
export interface SystemdPort {
  /** Facts about the manager itself. */
  manager(): Promise<ManagerFacts>;

  /** All loaded units whose name matches the glob (`ListUnitsByPatterns`). An answered list is complete. */
  listUnits(pattern: string): Promise<readonly UnitListing[]>;

  /**
   * Chosen properties of one unit by name, or `undefined` when the manager answered that no such unit is loaded.
   * Never loads a unit as a side effect (GetUnit first: reading the path of an unloaded unit would load an empty one).
   */
  unitProperties(unit: string, names: readonly UnitPropertyName[]): Promise<UnitProperties | undefined>;

  /** Where one invocation of a unit stands, or `undefined` when the manager answered that no unit is that invocation. */
  invocationState(invocation: string): Promise<Pick<UnitProperties, 'ActiveState' | 'SubState'> | undefined>;

  /**
   * `StartTransientUnit` in mode `fail`. Resolves with the manager's reply, once the job exists; `done` then tells the
   * job's result. `done` also settles in every case: it rejects with kind `unknown` when the bus is lost meanwhile.
   *
   * PID 1 can't keep too many jobs on its bus, so this and the stops may wait before they are sent: lease timers pass
   * stops, and stops pass starts. One that waits too long rejects with kind `busy`, never sent.
   */
  startTransientUnit(unit: TransientUnit, auxiliary: readonly TransientUnit[]): Promise<Job>;

  /** Stops one invocation (compare-and-stop): rejects with kind `no-such-invocation` once the unit is another one. */
  stopInvocation(invocation: string): Promise<Job>;

  /** Stops a unit by name. Only for units whose names are never reused (numbered lease timers). */
  stopUnit(unit: string): Promise<Job>;

  /** Sends a signal to all processes of a unit (`KillUnit`, who = `all`). Rejects with `no-such-unit` if not loaded. */
  killUnit(unit: string, signal: number): Promise<void>;

  /** Forgets a failed state, so that the unit can be unloaded. Only ever called after proof. */
  resetFailedUnit(unit: string): Promise<void>;

  /** Called with the name of a unit whose state may have changed. A hint, never evidence: read again. */
  onUnitChanged(listener: (unit: string) => void): () => void;

  /**
   * Called when everything known must be read again: after each reconnection to the bus, after the manager changed its
   * bus name (daemon-reexec) and after a daemon-reload, over all of which signals are lost. Not for the first
   * connection, which is there before a listener can be.
   */
  onResync(listener: () => void): () => void;

  /** Ends the connection; calls in flight reject. */
  close(): Promise<void>;
}

export interface ManagerFacts {
  /** e.g. `252.38-1~deb12u1` */
  readonly version: string;
  /** What systemd found it runs in, e.g. `""`, `kvm`, `systemd-nspawn`, `container-other`. */
  readonly virtualization: string;
  /** CLOCK_MONOTONIC in µs at which the manager started in user space. */
  readonly userspaceTimestampMonotonic: number;
  /** Where it keeps the files of transient units, for example `/run/systemd/transient`; absent where it does not say. */
  readonly transientDirectory?: string;
}

/** One row of `ListUnitsByPatterns`. */
export interface UnitListing {
  readonly name: string;
  readonly description: string;
  readonly loadState: string;
  readonly activeState: ActiveState;
  readonly subState: string;
  /** The unit's pending job, e.g. `start`, `stop`; `''` without one. */
  readonly jobType: string;
}

/** org.freedesktop.systemd1(5), property ActiveState; anything newer reads as the string it is and counts as active. */
export type ActiveState =
  'active' | 'reloading' | 'inactive' | 'failed' | 'activating' | 'deactivating' | 'maintenance' | 'refreshing';

/** The properties this project reads, with the interface each one lives on in `properties.ts`. */
export interface UnitProperties {
  readonly LoadState?: string;
  readonly ActiveState?: ActiveState;
  readonly SubState?: string;
  readonly Description?: string;
  readonly StopWhenUnneeded?: boolean;
  /** 32 hex digits, or `''`: never started or freshly loaded. Empty is unknown, not "ours ended". */
  readonly InvocationID?: string;
  readonly Result?: string;
  /** siginfo code: 1 exited, 2 killed, 3 dumped; 0 never ran. */
  readonly ExecMainCode?: number;
  readonly ExecMainStatus?: number;
  /** CLOCK_MONOTONIC in µs; 0 while it runs. */
  readonly ExecMainExitTimestampMonotonic?: number;
  readonly MainPID?: number;
  /** Path below the cgroup root; `''` for an ended unit, which names nothing. */
  readonly ControlGroup?: string;
  /** The cgroup directory's inode as a decimal string; `'0'` where there is none. */
  readonly ControlGroupId?: string;
  /** `KEY=value` fields of the unit's journal entries, decoded as UTF-8. */
  readonly LogExtraFields?: readonly string[];
  /** Timers only: CLOCK_MONOTONIC in µs of the next elapse; 0 or Infinity without one. */
  readonly NextElapseUSecMonotonic?: number;
  /** Freezer state: `running`, `freezing`, `frozen`, `thawing`. */
  readonly FreezerState?: string;
}

export type UnitPropertyName = keyof UnitProperties;

/** A unit to make: its name and its properties, in the types that the bus wants. */
export interface TransientUnit {
  readonly name: string;
  readonly properties: readonly UnitSetting[];
}

/** One property with its D-Bus signature: `['KillSignal', 'i', 15]`. 64-bit integers may be number or bigint. */
export type UnitSetting = readonly [name: string, signature: string, value: unknown];

/** A job that the manager has accepted. */
export interface Job {
  readonly path: string;
  /** Settles when the job was removed (`JobRemoved`): its result, in systemd's words. */
  readonly done: Promise<JobResult>;
}

/** org.freedesktop.systemd1(5), JobRemoved: a word about the *job*, never about processes. */
export type JobResult =
  | 'done'
  | 'canceled'
  | 'timeout'
  | 'failed'
  | 'dependency'
  | 'skipped'
  | 'invalid'
  | 'assert'
  | 'unsupported'
  | 'collected'
  | 'once';

/**
 * - `unknown`: no answer in time, bus lost, manager off the bus: the outcome may be either.
 * - `no-such-unit`, `no-such-invocation`: answered; not loaded, or another invocation by now.
 * - `unit-exists`: a unit of that name (or of an auxiliary's name) is loaded.
 * - `busy`: another job is queued, or too many are; try again soon.
 * - `bad-unit`: the definition is refused; trying again can't help.
 * - `refused`: not allowed on this bus (polkit, permissions).
 * - `shutting-down`: the host is going down.
 */
export type SystemdErrorKind =
  'unknown' | 'no-such-unit' | 'no-such-invocation' | 'unit-exists' | 'busy' | 'bad-unit' | 'refused' | 'shutting-down';

/** The only error that a {@link SystemdPort} rejects with. Its message names the call and the unit. */
export class SystemdError extends Error {
  override readonly name = 'SystemdError';

  constructor(
    readonly kind: SystemdErrorKind,
    message: string,
    options?: { readonly cause?: unknown; readonly dbusName?: string },
  ) {
    super(message, options && 'cause' in options ? { cause: options.cause } : undefined);
    this.dbusName = options?.dbusName;
  }

  /** The D-Bus error's name as the manager or the bus sent it, where there was one. */
  readonly dbusName?: string;
}
