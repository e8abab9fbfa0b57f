import type { RecordReading, Recovery } from './control';
import type { ExitReport, Placement, ProgramState, Proof, RemainingProcess } from './facts';

/** Names of the activities, prefixed: a plugin's activity silently wins over a user's of the same name. */
export const ActivityName = {
  startGeneration: 'systemd.startGeneration',
  holdOwnership: 'systemd.holdOwnership',
  stopResource: 'systemd.stopResource',
  readEndpoint: 'systemd.readEndpoint',
  adoptServer: 'systemd.adoptServer',
  reclaimServer: 'systemd.reclaimServer',
  awaitServer: 'systemd.awaitServer',
  serveHost: 'systemd.serveHost',
} as const;

/** Number of the protocol that these types are. Inputs only grow; upgrade hosts before owners. */
export const PROTOCOL = 1;

/** Who asks: stands in the unit and in the generation's files, so that a process can be told from a stranger's (G6). */
export interface OwnerIdentity {
  readonly namespace: string;
  /** Task queue of the owners. */
  readonly taskQueue: string;
  readonly workflowId: string;
  /** The first run id of the owner's chain of runs; it stays over continue-as-new and reset. */
  readonly ownerId: string;
}

export interface StartInput {
  readonly resource: string;
  readonly program: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly owner: OwnerIdentity;
  /** The number to start under. The owner alone picks it; a host that has seen as high a one answers `outdated`. */
  readonly generation: number;
  /** The instance that served an earlier attempt, once known: another one with the same host id refuses. */
  readonly instance?: string;
  /** Of a control server: what an earlier owner may have left was looked for, and is not to be adopted by this start. */
  readonly recovered?: boolean;
  /** This owner had a process here before: a host that is being drained lets it have the next one as well. */
  readonly goesOn?: boolean;
}

/** What the program says of a control server that an earlier owner has left. */
export interface RecoveryPlan {
  /** It is adopted; otherwise shut down. */
  readonly survive: boolean;
  /** What becomes of it when it can't be adopted. */
  readonly onRefused: 'stop' | 'wait';
}

/** What starting came to. */
export type StartAnswer =
  | { readonly kind: 'started' | 'adopted'; readonly placement: Placement }
  /** Something of this resource is not proven dead: stop until proven, then start again. */
  | {
      readonly kind: 'stop-first';
      readonly reason: string;
      readonly instance: string;
      /** It lives, under a lease that nobody renews: it can be waited for as well. */
      readonly living?: boolean;
    }
  /** The program is a control server: first look for one that survived, then start with `recovered`. Nothing was done. */
  | { readonly kind: 'recover'; readonly instance: string; readonly plan: RecoveryPlan }
  /** The host has seen this generation or a later one; start again above `highest`. */
  | { readonly kind: 'outdated'; readonly highest: number; readonly instance: string }
  /** systemd answered that nothing was started; `reason` is for people. Wait and try again. */
  | { readonly kind: 'blocked'; readonly reason: string; readonly instance: string }
  /** The host takes on no more: nothing of this resource runs, and nothing was started. */
  | { readonly kind: 'full'; readonly reason: string; readonly instance: string };

export interface HoldInput {
  readonly resource: string;
  readonly placement: Placement;
  readonly owner: OwnerIdentity;
  /** The owner knows that the process is ready. */
  readonly ready: boolean;
  /** The owner lost sight of the host and wants a word at once: completes with `holding` when all is well. */
  readonly greet: boolean;
  /** The control server refuses this owner: its lease is not to be renewed, only its end to be told. */
  readonly lost?: boolean;
  /** What the owner knows of its program's definition; an owner that sends none is told none. */
  readonly programState?: ProgramState;
}

/** Why a hold completed. The owner acts and, where the process goes on, holds again. */
export type HoldEvent =
  /** The host is there, and the process lives or is not proven dead yet (answer to `greet`). */
  | { readonly kind: 'holding' }
  /** The process says it is ready. */
  | { readonly kind: 'ready' }
  /** `temporal.yaml` says something else of the program by now, or again what it said at the start. The process goes on. */
  | { readonly kind: 'program'; readonly state: ProgramState }
  /** The control server gave no answer to a renewal. Its lease runs on; `ready` follows once it answers again. */
  | { readonly kind: 'unavailable'; readonly reason: string }
  /** The control server no longer takes this owner for its own: another epoch or credential is in force there. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** Other hands did something to it, in words; it goes on and is held on. An owner that does not know this holds again. */
  | { readonly kind: 'noticed'; readonly what: string }
  /** The unit is over, its lease could not be armed, or other hands were on it: stop until proven. */
  | { readonly kind: 'ended'; readonly reason: string }
  /** It is over and was proven dead then. The owner asks for a proof of now: after a reset it may know of too little. */
  | { readonly kind: 'proven'; readonly proof: Proof; readonly exit: ExitReport };

/** Rungs of the ladder, gentlest first. */
export type Rung = 'stop' | 'kill' | 'cgroup-kill' | 'watch';

export interface StopInput {
  readonly resource: string;
  readonly owner: OwnerIdentity;
  readonly rung: Rung;
  /**
   * The highest generation that the owner has asked for: it and all below are closed before anything else, and nothing
   * above it is touched, so that a stop which arrives late can't hit the next generation.
   */
  readonly generation: number;
  /** What the owner knows to run; absent where no start has answered yet. */
  readonly placement?: Placement;
  /** As in {@link StartInput}. */
  readonly instance?: string;
}

/** The resource is free: no process of it is left, and nothing that was started for it can come up any more. */
export interface StopAnswer {
  readonly proof: Proof;
  readonly exit: ExitReport;
}

/** Details of a `StillRunning` failure. */
export interface StillRunningDetails {
  /** Why there is no proof, for people. */
  readonly reasons: readonly string[];
  readonly processes: readonly RemainingProcess[];
  /** A generation above the one that was to be stopped lives: the owner was reset, and has to ask for that one. */
  readonly highest?: number;
}

/** Details of a hold's heartbeat: the live facts that the workflow itself can't see. */
export interface HoldDetails {
  /** Epoch ms until which the process may live without another renewal. */
  readonly leaseUntil: number;
  readonly unit: string;
  readonly state: string;
  readonly processes?: readonly RemainingProcess[];
}

/** A control server that may have survived its owner, and who asks for it. */
export interface RecoverInput {
  readonly resource: string;
  readonly program: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly owner: OwnerIdentity;
  /** Epoch of the adoption: the number that a start would get now, the workflow's time in ms. */
  readonly epoch: number;
  readonly instance?: string;
}

export interface RecoverAnswer {
  readonly recovery: Recovery;
  /** Present when it was adopted. */
  readonly placement?: Placement;
}

export interface AwaitServerInput {
  readonly resource: string;
  readonly owner: OwnerIdentity;
  readonly placement: Placement;
}

/** What waiting for a fresh control server came to. */
export type AwaitServerAnswer =
  | {
      readonly healthy: true;
      /** Why the record of its endpoint could not be written; the server runs all the same. */
      readonly recordFailed?: string;
    }
  | { readonly healthy: false; readonly reason: string };

/** What the workflow of a host has its worker do: be there, and say what it holds. */
export interface ServeHostInput {
  readonly host: string;
  readonly instance: string;
  /** Why it takes on no new resources; absent: it does. */
  readonly draining?: string;
  /** Nothing was heard of the host for a while: completes at once when it is there. */
  readonly greet: boolean;
}

/** The activities as owners, and the workflow of a host, call them. */
export interface HostActivities {
  [ActivityName.startGeneration](input: StartInput): Promise<StartAnswer>;
  [ActivityName.holdOwnership](input: HoldInput): Promise<HoldEvent>;
  [ActivityName.stopResource](input: StopInput): Promise<StopAnswer>;
  [ActivityName.readEndpoint](input: RecoverInput): Promise<RecordReading>;
  [ActivityName.adoptServer](input: RecoverInput): Promise<RecoverAnswer>;
  [ActivityName.reclaimServer](input: RecoverInput): Promise<RecoverAnswer>;
  [ActivityName.awaitServer](input: AwaitServerInput): Promise<AwaitServerAnswer>;
  [ActivityName.serveHost](input: ServeHostInput): Promise<void>;
}
