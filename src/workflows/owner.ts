import { log, setCurrentDetails, upsertMemo, workflowInfo } from '@temporalio/workflow';
import type { OwnerIdentity, RecoveryPlan } from '../contract/activities';
import type { ControlStatus, Recovery } from '../contract/control';
import {
  placedEndpoint,
  type ExitReport,
  type Placement,
  type ProgramState,
  type Proof,
  type RemainingProcess,
} from '../contract/facts';
import { hostTaskQueue } from '../contract/names';
import type { OwnerState, OwnerStatus, OwnInput } from '../contract/owner';
import { detailsTable } from './details';

/** What somebody has asked for; at most one at a time, a stop outranks the others. */
export interface Wish {
  readonly what: 'stop' | 'restart' | 'release';
  readonly by: string;
  readonly reason: string;
  readonly at: number;
  /** Go to SIGKILL at once. */
  readonly now: boolean;
}

/** All that an owner knows: one plain JSON object, carried through continue-as-new. Times are epoch ms. */
export interface OwnerData {
  readonly ownerId: string;
  phase: OwnerState;
  since: number;
  wish?: Wish;
  /** The highest generation that was ever asked for. */
  generation: number;
  /** The instance that answers for the host, once one has. */
  instance?: string;
  /** A start was sent whose outcome nobody has told: there may be a process. */
  unresolved: boolean;
  placement?: Placement;
  /** Of a control server: that it answered when it was last asked. */
  ready: boolean;
  /** Epoch ms since when it is, or is not. */
  readySince?: number;
  /** Of a control server, as the following ones: how an earlier owner's is to be looked for, which is not done yet. */
  plan?: RecoveryPlan;
  /** It was looked for. */
  recovered?: boolean;
  /** What came of that. */
  recovery?: Recovery;
  /** One that can't be adopted is to end by its lease, and not be stopped. */
  waitsForLease?: boolean;
  /** It was waited for, once: it is healthy, or people were told that it is not. */
  checked?: boolean;
  /** It has answered this owner: only then are renewals possible. */
  confirmed?: boolean;
  /** Why it refuses this owner. */
  lost?: string;
  warnings?: readonly string[];
  /** What its host says of the program that it was started with; absent: nothing else. */
  programState?: ProgramState;
  /** 0 while nothing has run under this owner. */
  runningSince: number;
  hostUnreachableSince?: number;
  /** The unit is over, says the host; it is stopped and proven next. */
  ended?: string;
  rung?: string;
  remaining: readonly RemainingProcess[];
  /** Of what is being stopped right now; only the ladder writes it, only `afterProof` clears it. */
  proof?: Proof;
  /** How the last process ended. */
  exit?: ExitReport;
  /** The last generation that was proven dead, and the proof: what the result says. */
  proven?: { readonly generation: number; readonly proof: Proof };
  restarts: number;
  /** Restarts in a row, without a long enough run in between. */
  restartsInRow: number;
  /** Wait before the next restart. */
  backoffMs?: number;
  /** `stop-first` answers since the last start. */
  stopFirsts: number;
  /** Attempts in a row that came to nothing; sets the wait before the next one. */
  setbacks: number;
  lastEvent: string;
  next: string;
}

/** After so many steps a new run is begun: about 3,000 events, and well below the 2,000 updates that one run takes. */
const STEPS_PER_RUN = 500;

/** What an owner begins with that is there to bring something to an end. */
function toBeEnded({ found, by = 'unknown' }: OwnInput): Partial<OwnerData> {
  const reason = 'nobody owned it any more';
  return {
    phase: 'stopping',
    wish: { what: 'stop', by, reason, at: Date.now(), now: false },
    placement: found,
    instance: found?.instance,
    generation: Math.max(Date.now(), found?.generation ?? 0),
    unresolved: !found,
    lastEvent: `stop asked by ${by}: ${reason}`,
    next: 'stop until proven dead',
  };
}

/** One owner: its input, its data, and what all its parts do alike. */
export class Owner {
  readonly data: OwnerData;
  private steps = 0;
  /** The queue that its host's worker serves. */
  readonly hostQueue: string;

  constructor(readonly input: OwnInput) {
    const info = workflowInfo();
    this.hostQueue = hostTaskQueue(info.taskQueue, input.host);
    this.data = (input.carried as OwnerData | undefined) ?? {
      ownerId: info.firstExecutionRunId,
      phase: 'starting',
      since: Date.now(),
      generation: 0,
      unresolved: false,
      ready: false,
      runningSince: 0,
      remaining: [],
      restarts: 0,
      restartsInRow: 0,
      setbacks: 0,
      stopFirsts: 0,
      lastEvent: 'asked to own',
      next: 'start or adopt the process',
      ...(input.wish === 'stopped' && toBeEnded(input)),
    };
  }

  get identity(): OwnerIdentity {
    const { namespace, taskQueue, workflowId } = workflowInfo();
    return { namespace, taskQueue, workflowId, ownerId: this.data.ownerId };
  }

  /** Somebody wants this owner to end: nothing is to be started any more. */
  get isToEnd(): boolean {
    const what = this.data.wish?.what;
    return what === 'stop' || what === 'release';
  }

  /**
   * Time for a new run: long histories cost the server and every replay. Only the main function acts on it.
   *
   * Counted here, and neither `historyLength` nor `continueAsNewSuggested` asked: those change in *every* activation, also
   * in one whose only job was an update that a validator refused. That one is in no history, so a condition which it had
   * unblocked would not be unblocked by a replay, and the owner would be stuck.
   */
  get runIsLong(): boolean {
    return this.steps >= (this.input.stepsPerRun ?? STEPS_PER_RUN);
  }

  /** Counts one thing that history has: an accepted request, a call to the host that settled, a wait that ended. */
  step(): void {
    this.steps++;
  }

  enter(phase: OwnerState, lastEvent: string, next: string): void {
    const { data } = this;
    if (data.phase !== phase) data.since = Date.now();
    data.phase = phase;
    this.note(lastEvent, next);
  }

  /** Says what happened and what comes next, in the words that people read in the UI. */
  note(lastEvent: string, next = this.data.next): void {
    this.data.lastEvent = lastEvent;
    this.data.next = next;
    this.show();
  }

  hostAnswers(answers: boolean): void {
    if (answers === (this.data.hostUnreachableSince === undefined)) return;
    this.data.hostUnreachableSince = answers ? undefined : Date.now();
    this.show();
  }

  /** Whether the process is ready; of a control server, whether it answers. */
  setReady(ready: boolean): void {
    const { data } = this;
    if (ready) data.confirmed = true;
    if (data.ready !== ready) data.readySince = Date.now();
    data.ready = ready;
  }

  /** Something that people should know although the process runs. */
  warn(warning: string): void {
    this.data.warnings = [...(this.data.warnings ?? []), warning];
    log.warn(warning);
    this.note(warning);
  }

  /** Writes where processes are or may be into the memo: a terminated owner can say nothing any more. */
  recordPlacement(): void {
    const { host, program, parameters } = this.input;
    const { instance, generation, placement } = this.data;
    upsertMemo({
      owned: { host, program, parameters, instance, generation, unit: placement?.unit, running: placement?.generation },
    });
  }

  /** The phase, as others see it: a control server that has not answered yet can't be renewed, so it does not count as running. */
  get state(): OwnerState {
    const { phase, placement, confirmed } = this.data;
    return phase === 'running' && placement?.control && !confirmed ? 'starting' : phase;
  }

  private get control(): ControlStatus | undefined {
    const { phase, placement, ready, readySince, since, plan, recovered, recovery, warnings } = this.data;
    // Also between two generations: that none of it runs is what people ask for.
    if (!placement?.control && !plan && !recovered && !recovery) return undefined;
    const available = ready && phase === 'running';
    const isPhase = phase !== 'running' || readySince === undefined;
    return { available, since: isPhase ? since : readySince, recovery, warnings: warnings ?? [] };
  }

  status(): OwnerStatus {
    const { resource, program, host, parameters } = this.input;
    const { data } = this;
    return {
      resource,
      program,
      programState: data.placement && (data.programState ?? 'current'),
      host,
      parameters,
      ownerId: data.ownerId,
      state: this.state,
      ready: data.ready,
      since: data.since,
      hostUnreachableSince: data.hostUnreachableSince,
      placement: data.placement,
      endpoint: data.placement && placedEndpoint(data.placement),
      control: this.control,
      rung: data.rung,
      asked: data.wish,
      lastEvent: data.lastEvent,
      next: data.next,
      remaining: data.remaining,
      restarts: data.restarts,
      lastExit: data.exit,
    };
  }

  private show(): void {
    setCurrentDetails(detailsTable(this.status()));
  }
}
