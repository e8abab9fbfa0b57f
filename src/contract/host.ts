import type { SignalDefinition, QueryDefinition, UpdateDefinition } from '@temporalio/common';

/** Workflow type of a host: `host:<id>` is open for as long as the id belongs to somebody. */
export const HOST_WORKFLOW = 'systemd.host';

/** Who has a host id: input and memo (`claim`) of the workflow `host:<id>`. */
export interface HostClaim {
  readonly host: string;
  readonly instance: string;
  readonly machineId: string;
  readonly taskQueue: string;
  /** Set by continue-as-new alone. */
  readonly carried?: unknown;
}

/** What a host's worker says of itself when it starts, and when its programs have changed. */
export interface HostReport {
  readonly instance: string;
  readonly bootId: string;
  /** Of temporal-systemd on the host. */
  readonly version: string;
  /** Number of the protocol between owners and hosts. */
  readonly protocol: number;
  /** Their names. */
  readonly programs: readonly string[];
  /** What it takes on at most; no limit where absent. */
  readonly capacity: { readonly units?: number; readonly memoryBytes?: number };
}

/** Who wants a host to take on no more, and why. */
export interface Drain {
  readonly by: string;
  readonly reason: string;
  /** Epoch ms. */
  readonly at: number;
}

/** Memo of the workflow `host:<id>`: what a list can show without asking it. */
export interface HostMemo {
  readonly claim: HostClaim;
  readonly report?: HostReport;
  readonly draining?: Drain;
}

/** What a host holds, told with each of its heartbeats. */
export interface HostDetails {
  readonly units: number;
  /** Memory limits of what it holds together, in bytes. */
  readonly memoryBytes: number;
  /** The resources that it holds, the first hundred of them by name. */
  readonly resources: readonly string[];
  /** Why it takes on no new ones, where that is so. */
  readonly draining?: string;
}

/** What the host's workflow knows. */
export interface HostStatus {
  readonly host: string;
  readonly instance: string;
  readonly machineId: string;
  readonly report?: HostReport;
  readonly draining?: Drain;
  /** Epoch ms since when its heartbeats are missed. Its processes may live (G4). */
  readonly unreachableSince?: number;
}

/** One small object that a person can type into the UI's dialog. */
export interface DrainRequest {
  readonly reason?: string;
  readonly by?: string;
}

export const hereSignal = { type: 'signal', name: 'here' } as SignalDefinition<[HostReport]>;
export const releaseHostSignal = { type: 'signal', name: 'release' } as SignalDefinition<[]>;
export const drainUpdate = { type: 'update', name: 'drain' } as UpdateDefinition<HostStatus, [DrainRequest?]>;
export const undrainUpdate = { type: 'update', name: 'undrain' } as UpdateDefinition<HostStatus, [DrainRequest?]>;
export const hostStatusQuery = { type: 'query', name: 'status' } as QueryDefinition<HostStatus, []>;
