import type { PlacedControl } from './control';
import type { Endpoint } from './endpoint';

/** Facts about a process that travel between host, owner and client. Plain JSON; nothing here is a secret (G9). */

/** Where one generation runs, and all that is needed to find, stop and prove it without temporal.yaml. */
export interface Placement {
  readonly host: string;
  /** The host's instance; only its answers count. */
  readonly instance: string;
  readonly bootId: string;
  readonly prefix: string;
  readonly generation: number;
  readonly unit: string;
  readonly slice: string;
  /** 32 hex digits; `''` while unknown. */
  readonly invocation: string;
  /** Inode of the unit's cgroup as a decimal string. */
  readonly cgroupId: string;
  readonly program: string;
  readonly leaseMs: number;
  readonly stopTimeoutMs: number;
  /** The process says itself when it is ready (`ready: notify`). */
  readonly notifies: boolean;
  readonly restart: PlacedRestartPolicy;
  /** Host's protocol number. */
  readonly protocol: number;
  /** Where it listens, where the program declares an endpoint: the host's choice for this generation. */
  readonly endpoint?: Endpoint;
  /** Present where the program is a control server. */
  readonly control?: PlacedControl;
}

/** What `temporal.yaml` says of a process's program, against what it said when the process was started. */
export type ProgramState = 'current' | 'changed' | 'removed';

/** A program with what has become of its definition since the process was started, for people. */
export function programText(program: string, state: ProgramState = 'current'): string {
  switch (state) {
    case 'current':
      return program;
    case 'changed':
      return `${program}: program changed since the start; restart takes the new one`;
    case 'removed':
      return `${program}: program no longer in temporal.yaml; it runs on, and can't be started again`;
  }
}

/** Where a placed process listens, control server or not; undefined where its program declares no endpoint. */
export function placedEndpoint({ control, endpoint }: Placement): Endpoint | undefined {
  return control?.endpoint ?? endpoint;
}

/** The program's restart policy as it was when the generation started; in ms. */
export interface PlacedRestartPolicy {
  readonly policy: 'no' | 'on-failure' | 'always';
  readonly backoffMs: number;
  readonly maxBackoffMs: number;
  readonly limit: number;
  readonly resetAfterMs: number;
}

/** How the process ended: wording for people and for the restart policy, never evidence (G8). */
export interface ExitReport {
  /** `exit 0`, `exit 3 (exit-code)`, `signal 9`, `unowned`, `unknown: no exit record`, … */
  readonly wording: string;
  readonly kind: 'exit' | 'signal' | 'unowned' | 'unknown' | 'never started';
  /** Exit code or signal number, where there is one. */
  readonly status?: number;
  /** Where the words come from. */
  readonly source: 'unit' | 'exit record' | 'lease' | 'boot' | 'none';
}

/** Why the resource is free: the readings that the rule of `host/proof.ts` was applied to. */
export interface Proof {
  /** `empty`: systemd has no unit and the cgroup is gone or empty. `reboot`: the host has booted since. */
  readonly by: 'empty' | 'reboot';
  readonly instance: string;
  readonly bootId: string;
  readonly generation: number;
  readonly invocation: string;
  readonly cgroupId: string;
  /** What systemd said of the resource's units, verbatim. */
  readonly units: string;
  /** What the cgroup said, verbatim: `ENOENT`, `ENODEV` or `populated 0`. */
  readonly cgroup: string;
  /** Epoch ms at which the last of the readings was taken. */
  readonly readAt: number;
}

/** A process that is still there. */
export interface RemainingProcess {
  readonly pid: number;
  readonly command: string;
  /** proc(5) state: R, S, D, Z, T, …; `?` when it could not be read. */
  readonly state: string;
  /** Kernel function it waits in, where it could be read. */
  readonly waitChannel: string;
}

/** The exit report of what never ran. */
export const NEVER_STARTED: ExitReport = { wording: 'never started', kind: 'never started', source: 'none' };

/** Whether two owners' parameters are the same, in whatever order. */
export function sameParameters(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}
