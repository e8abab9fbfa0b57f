import type { QueryDefinition, SignalDefinition, UpdateDefinition } from '@temporalio/common';
import type { ControlStatus } from './control';
import type { Endpoint } from './endpoint';
import type { ExitReport, Placement, ProgramState, Proof, RemainingProcess } from './facts';

/** Workflow type of the owner. */
export const OWNER_WORKFLOW = 'systemd.own';

/** What an owner is started with. */
export interface OwnInput {
  readonly resource: string;
  readonly program: string;
  readonly host: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** Id of the `own` call that started this owner; lets the answer say `started` or `joined`. */
  readonly requestId: string;
  /** `stopped`: owns what was left behind only to bring it to an end. Nothing is started. Default: a running process. */
  readonly wish?: 'stopped';
  /** With a wish: who has it, and what was left behind, where that is known. */
  readonly by?: string;
  readonly found?: Placement;
  /** A new run is begun after so many requests, host calls and waits; for tests. Default 500. */
  readonly stepsPerRun?: number;
  /** Set by continue-as-new alone. */
  readonly carried?: unknown;
}

/** `own`: sent together with the start; tells the caller what it got. */
export interface OwnRequest {
  readonly requestId: string;
}

export interface OwnAnswer {
  readonly outcome: 'started' | 'joined';
  readonly ownerId: string;
  readonly program: string;
  readonly host: string;
  readonly parameters: Readonly<Record<string, string>>;
}

/** One small object that a person can type into the UI's dialog. */
export interface StopRequest {
  readonly reason?: string;
  readonly by?: string;
  /** Go to SIGKILL at once. */
  readonly now?: boolean;
  /** Only this owner (its first run id) is meant; another one refuses. */
  readonly ownerId?: string;
}

export type ReleaseRequest = Omit<StopRequest, 'now'>;
export type ReadyRequest = Pick<StopRequest, 'ownerId'>;

/** What a request is answered with, at once. */
export interface RequestAnswer {
  readonly ownerId: string;
  readonly state: OwnerState;
  /** What will happen, in words. */
  readonly message: string;
}

/**
 * `ownership-lost`: its control server takes somebody else for its owner. It lives on until its lease ends, a person
 * asks for `stop` or `restart`, or it ends.
 */
export type OwnerState = 'starting' | 'running' | 'ownership-lost' | 'stopping' | 'backing-off' | 'gave-up' | 'stopped';

/** How `ready` is answered: yes, no longer possible, or not yet (ask again). */
export type ReadyAnswer =
  { readonly ready: true; readonly placement: Placement } | { readonly ready: false; readonly status: OwnerStatus };

/** What the owner knows, from the workflow alone. */
export interface OwnerStatus {
  readonly resource: string;
  readonly program: string;
  /** Whether the host's `temporal.yaml` still says of the program what it said when the process was started. */
  readonly programState?: ProgramState;
  readonly host: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly ownerId: string;
  readonly state: OwnerState;
  readonly ready: boolean;
  /** Epoch ms since when it has been in this state. */
  readonly since: number;
  /** The host has not answered since (epoch ms). A state, never an end (G4). */
  readonly hostUnreachableSince?: number;
  readonly placement?: Placement;
  /** Where the process listens, where its program declares that. */
  readonly endpoint?: Endpoint;
  /** Present where the program is a control server. */
  readonly control?: ControlStatus;
  /** The rung of the ladder that a stop has come to. */
  readonly rung?: string;
  /** Who asked for what is going on. */
  readonly asked?: {
    readonly what: 'stop' | 'restart' | 'release';
    readonly by: string;
    readonly reason: string;
    readonly at: number;
  };
  /** The last thing that happened, in words, and what comes next. */
  readonly lastEvent: string;
  readonly next: string;
  /** Processes seen at the last unproven stop. */
  readonly remaining: readonly RemainingProcess[];
  readonly restarts: number;
  readonly lastExit?: ExitReport;
}

/** How ownership ended. */
export interface OwnResult {
  readonly resource: string;
  /**
   * `stopped`: somebody asked. `exited`: the process ended and its restart policy says no more. `released`: the owner
   * let go and the process goes on until its lease ends or a next owner adopts it. `never started`: stopped before this
   * owner had started anything.
   */
  readonly end: 'stopped' | 'exited' | 'released' | 'never started';
  readonly exit: ExitReport;
  /** Absent where nothing was ever looked at on the host, and after `released`. */
  readonly proof?: Proof;
  readonly generation?: number;
  readonly restarts: number;
}

export const ownUpdate = update<OwnAnswer, [OwnRequest]>('own');
export const readyUpdate = update<ReadyAnswer, [ReadyRequest?]>('ready');
export const stopUpdate = update<RequestAnswer, [StopRequest?]>('stop');
export const restartUpdate = update<RequestAnswer, [StopRequest?]>('restart');
export const releaseUpdate = update<RequestAnswer, [ReleaseRequest?]>('release');
export const requestStopSignal = signal<[StopRequest?]>('requestStop');
export const statusQuery = { type: 'query', name: 'status' } as QueryDefinition<OwnerStatus, []>;

function update<R, A extends unknown[]>(name: string): UpdateDefinition<R, A> {
  return { type: 'update', name } as UpdateDefinition<R, A>;
}

function signal<A extends unknown[]>(name: string): SignalDefinition<A> {
  return { type: 'signal', name } as SignalDefinition<A>;
}
