import { activityInfo, CompleteAsyncError, heartbeat } from '@temporalio/activity';
import type { Client } from '@temporalio/client';
import { ApplicationFailure } from '@temporalio/common';
import {
  ActivityName,
  PROTOCOL,
  type AwaitServerAnswer,
  type HoldEvent,
  type HoldInput,
  type HostActivities,
  type RecoverAnswer,
  type RecoverInput,
  type StartAnswer,
  type StartInput,
  type StillRunningDetails,
  type StopAnswer,
  type StopInput,
} from '../../src/contract/activities';
import type { PlacedControl } from '../../src/contract/control';
import { NEVER_STARTED, type ExitReport, type PlacedRestartPolicy, type Placement } from '../../src/contract/facts';
import { FailureType } from '../../src/contract/failures';
import { generationUnit, resourceSlice } from '../../src/contract/names';

/** What comes of one start. What can't be, given what lives on the host, becomes the nearest that can. */
export interface StartTurn {
  readonly outcome:
    | 'fine'
    | 'stop-first'
    | 'outdated'
    | 'blocked'
    | 'full'
    | 'unknown'
    | 'unknown, made'
    | 'never answered'
    | 'never answered, made'
    | 'wrong instance'
    | 'refused';
  /** Answers only once the next request has been answered, if there is one. */
  readonly waits: boolean;
}

export interface StopTurn {
  readonly outcome: 'proven' | 'still running' | 'later generation' | 'unknown' | 'wrong instance';
  readonly exit: 'clean' | 'failed' | 'unknown';
  readonly waits: boolean;
}

/** What comes of looking for a control server that survived; what can't be, becomes the nearest that can. */
export interface RecoverTurn {
  readonly outcome: 'fine' | 'not adopted' | 'unknown' | 'adopted, unknown';
  readonly waits: boolean;
}

export interface HoldTurn {
  readonly event:
    | 'silence'
    | 'ended'
    | 'proven'
    | 'ready'
    | 'program'
    | 'unavailable'
    | 'refused'
    | 'holding'
    | 'hold again'
    | 'unknown';
  readonly afterMs: number;
}

/** What a host is like, and how it answers, call by call. Once a list is used up, all goes well. */
export interface HostScript {
  /** What an earlier owner has left on the host. */
  readonly found: 'nothing' | 'its own' | 'a left-over' | 'a later generation';
  /** A lease so short that a silent hold misses its heartbeats. */
  readonly shortLease: boolean;
  readonly notifies: boolean;
  /** The program is a control server: what is left is adopted by its protocol. */
  readonly control: 'no' | 'stop' | 'wait';
  readonly policy: PlacedRestartPolicy['policy'];
  readonly starts: readonly StartTurn[];
  readonly stops: readonly StopTurn[];
  readonly recoveries: readonly RecoverTurn[];
  readonly holds: readonly HoldTurn[];
}

const INSTANCE = 'this-instance';
const PREFIX = 'own';
const FINE = { outcome: 'fine', waits: false } as const;
const PROVEN = { outcome: 'proven', exit: 'unknown', waits: false } as const;
const CONTROL: PlacedControl = {
  endpoint: { host: '127.0.0.1', port: 7_700 },
  credentialFile: '/run/credential',
  home: '/srv',
  startedBy: 'somebody',
  health: { intervalMs: 250, timeoutMs: 1_000, withinMs: 10_000 },
  onCancel: 'stop',
  requireHealthy: false,
};
const SILENCE = { event: 'silence', afterMs: 0 } as const;

/** A request that never comes is not waited for. */
const REQUEST_MS = 1_500;

interface Life {
  /** Whether a start may take it over; otherwise it has to be stopped first. */
  adoptable: boolean;
  /** The owner has made it, and must not end before this one is proven dead, whatever it has forgotten in a reset. */
  readonly owned: boolean;
}

/**
 * A host as one owner sees it, without any systemd: it keeps to what a host promises (a start closes all generations below
 * its own and makes nothing over what lives), and otherwise does as its script says. It knows what really lives.
 */
export class ScriptedHost {
  /** Generations that may have a process, for all that this host has proven. */
  readonly living = new Map<number, Life>();
  /** Starts and stops that it was asked for. */
  calls = 0;
  private highest = 0;
  private readonly turns: {
    starts: StartTurn[];
    stops: StopTurn[];
    recoveries: RecoverTurn[];
    holds: HoldTurn[];
  };
  /** So often somebody who waits for a lease finds it not over yet. */
  private lapses = 1;
  private underWay = 0;
  private eventsToCome = 0;
  private isHeld = false;
  private requestAnswered = new Set<() => void>();
  private readonly waiters = new Set<() => void>();

  constructor(
    private readonly script: HostScript,
    private readonly client: Client,
  ) {
    const { starts, stops, recoveries, holds } = script;
    this.turns = { starts: [...starts], stops: [...stops], recoveries: [...recoveries], holds: [...holds] };
    if (script.found === 'nothing') return;
    this.highest = Date.now() + (script.found === 'a later generation' ? 3_600_000 : -1_000);
    this.living.set(this.highest, { adoptable: script.found !== 'a left-over', owned: false });
  }

  /** Nothing will happen here before somebody asks the owner for something. */
  get rests(): boolean {
    return this.isHeld && this.underWay === 0 && this.eventsToCome === 0;
  }

  async start(input: StartInput): Promise<StartAnswer> {
    const turn = this.turns.starts.shift() ?? FINE;
    return this.answering(turn, () => this.startNow(input, turn));
  }

  async stop(input: StopInput): Promise<StopAnswer> {
    const turn = this.turns.stops.shift() ?? PROVEN;
    return this.answering(turn, () => this.stopNow(input, turn));
  }

  /** Looks for a control server, and takes it over. */
  async adoptServer(input: RecoverInput): Promise<RecoverAnswer> {
    const turn = this.turns.recoveries.shift() ?? FINE;
    return this.answering(turn, () => this.adoptNow(input, turn));
  }

  async awaitServer(): Promise<AwaitServerAnswer> {
    return this.answering({ waits: false }, () => {
      const { outcome } = this.turns.recoveries.shift() ?? FINE;
      if (outcome === 'unknown') throw ApplicationFailure.nonRetryable('scripted', FailureType.Unknown);
      return outcome === 'fine' ? { healthy: true } : { healthy: false, reason: 'scripted' };
    });
  }

  /** Takes a hold; what its turn says completes it later. */
  hold(input: HoldInput): void {
    const { placement } = input;
    const turn = this.turns.holds.shift() ?? SILENCE;
    const life = this.living.get(placement.generation);
    this.isHeld = true;
    if (turn.event === 'unknown') throw unknown('could not take the hold');
    if (!life) return this.tell({ kind: 'ended', reason: 'this host has no files of it' }, 0);
    switch (turn.event) {
      case 'silence':
        return this.wake();
      case 'ended':
        life.adoptable = false;
        return this.tell({ kind: 'ended', reason: 'scripted' }, turn.afterMs);
      case 'proven':
        life.adoptable = false;
        return this.tell(
          { kind: 'proven', proof: proofOf(placement.generation, placement), exit: exitOf('failed') },
          turn.afterMs,
        );
      case 'ready':
      case 'holding':
        return this.tell({ kind: turn.event }, turn.afterMs);
      case 'unavailable':
      case 'refused':
        if (this.script.control === 'no') return this.wake();
        return this.tell({ kind: turn.event, reason: 'scripted' }, turn.afterMs);
      case 'program':
        return this.tell({ kind: 'program', state: 'changed' }, turn.afterMs);
      case 'hold again':
        return this.tell(ApplicationFailure.retryable('reset', FailureType.HoldAgain), turn.afterMs);
    }
  }

  /** To be called when a request to the owner has been answered. */
  answered(): void {
    for (const wake of this.requestAnswered) wake();
    this.requestAnswered.clear();
  }

  /** Resolves when it is so, or when nothing was heard of the owner for so long. */
  async until(condition: () => boolean, silentMs: number): Promise<void> {
    while (!condition()) {
      let timer: NodeJS.Timeout | undefined;
      const heard = await Promise.race([
        new Promise<true>((resolve) => this.waiters.add(() => resolve(true))),
        new Promise<false>((resolve) => (timer = setTimeout(() => resolve(false), silentMs))),
      ]);
      clearTimeout(timer);
      if (!heard && this.underWay === 0) return;
    }
  }

  /** Something has happened that somebody may wait for. */
  wake(): void {
    for (const waiter of this.waiters) waiter();
    this.waiters.clear();
  }

  private adoptNow({ resource, program }: RecoverInput, { outcome }: RecoverTurn): RecoverAnswer {
    if (outcome === 'unknown') throw unknown('no answer from the bus');
    const [found] = this.living;
    if (!found?.[1].adoptable || outcome === 'not adopted') {
      const scope = found ? 'own-server' : 'no-server';
      return { recovery: { adopted: false, scope, reason: found ? 'refused' : 'record-missing' } };
    }
    if (outcome === 'adopted, unknown') throw unknown('the answer was lost');
    const placement = this.placement(resource, program, found[0]);
    return { recovery: { adopted: true, scope: 'adopted', reason: 'adopted' }, placement };
  }

  private startNow(
    { resource, program, generation, instance, recovered }: StartInput,
    { outcome }: StartTurn,
  ): StartAnswer {
    const { control } = this.script;
    if (outcome === 'wrong instance' && instance !== undefined) throw wrongInstance();
    if (outcome === 'outdated' && this.living.size === 0) this.highest = generation + 3;
    if (this.highest >= generation) return { kind: 'outdated', highest: this.highest, instance: INSTANCE };
    // Not sooner: a start that is sent again after a reset may have made something the first time.
    if (outcome === 'refused') throw ApplicationFailure.nonRetryable('no such program', FailureType.ProgramRefused);
    if (control !== 'no' && !recovered)
      return { kind: 'recover', instance: INSTANCE, plan: { survive: true, onRefused: control } };
    this.highest = generation - 1;
    const isClear = this.living.size === 0;
    switch (outcome) {
      case 'unknown, made':
      case 'never answered, made':
        if (isClear) this.make(generation);
        throw outcome === 'unknown, made' ? unknown('the answer was lost') : new CompleteAsyncError();
      case 'unknown':
        throw unknown('no answer from the bus');
      case 'never answered':
        throw new CompleteAsyncError();
      case 'blocked':
        if (isClear) return { kind: 'blocked', reason: 'scripted', instance: INSTANCE };
        break;
      case 'full':
        if (isClear) return { kind: 'full', reason: 'scripted', instance: INSTANCE };
        break;
      case 'stop-first':
        if (isClear) this.living.set(generation - 1, { adoptable: false, owned: false });
        for (const life of this.living.values()) life.adoptable = false;
        break;
      default:
        break;
    }
    if (isClear && this.living.size === 0) {
      this.make(generation);
      return { kind: 'started', placement: this.placement(resource, program, generation) };
    }
    const [[found, life]] = this.living as unknown as [[number, Life]];
    if (life.adoptable && control === 'no')
      return { kind: 'adopted', placement: this.placement(resource, program, found) };
    const living = control === 'wait' && this.lapses-- > 0;
    return { kind: 'stop-first', reason: 'scripted', instance: INSTANCE, living };
  }

  private stopNow({ generation, placement, instance }: StopInput, turn: StopTurn): StopAnswer {
    if (turn.outcome === 'wrong instance' && (placement?.instance ?? instance) !== undefined) throw wrongInstance();
    if (turn.outcome === 'unknown') throw unknown('no answer from the bus');
    if (turn.outcome === 'later generation' && this.living.size > 0) {
      // The owner's other life, before a reset: it stopped this one, and started the next.
      this.living.clear();
      this.make(generation + 2);
    }
    const highest = Math.max(...this.living.keys());
    if (highest > generation) throw stillRunning({ reasons: ['a later one lives'], processes: [], highest });
    for (const life of this.living.values()) life.adoptable = false;
    this.highest = Math.max(this.highest, generation);
    if (turn.outcome !== 'proven') {
      const processes = [{ pid: 7, command: 'sh', state: 'D', waitChannel: '?' }];
      throw stillRunning({ reasons: ['scripted'], processes });
    }
    const wasThere = placement !== undefined || this.living.size > 0;
    this.living.clear();
    return { proof: proofOf(generation, placement), exit: wasThere ? exitOf(turn.exit) : NEVER_STARTED };
  }

  private make(generation: number): void {
    if (this.living.size > 0) throw new Error('a host makes nothing over what lives');
    this.highest = generation;
    this.living.set(generation, { adoptable: true, owned: true });
  }

  private placement(resource: string, program: string, generation: number): Placement {
    const { shortLease, notifies, policy, control } = this.script;
    return {
      host: 'scripted',
      instance: INSTANCE,
      bootId: 'boot',
      prefix: PREFIX,
      generation,
      unit: generationUnit(PREFIX, resource, generation),
      slice: resourceSlice(PREFIX, resource),
      invocation: '',
      cgroupId: '',
      program,
      leaseMs: shortLease ? 1_500 : 600_000,
      stopTimeoutMs: 200,
      notifies,
      restart: { policy, backoffMs: 50, maxBackoffMs: 100, limit: 2, resetAfterMs: 600_000 },
      protocol: PROTOCOL,
      ...(control !== 'no' && { control: CONTROL }),
    };
  }

  private async answering<T>({ waits }: { readonly waits: boolean }, answer: () => T): Promise<T> {
    this.calls++;
    this.underWay++;
    this.isHeld = false;
    this.wake();
    try {
      if (waits) await this.nextRequest();
      return answer();
    } finally {
      this.underWay--;
      this.wake();
    }
  }

  private async nextRequest(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.requestAnswered.add(resolve);
      timer = setTimeout(resolve, REQUEST_MS);
    });
    clearTimeout(timer);
  }

  /** Completes the hold whose activity this is, or fails it. */
  private tell(what: HoldEvent | ApplicationFailure, afterMs: number): void {
    const token = Buffer.from(activityInfo().base64TaskToken, 'base64');
    const { activity } = this.client;
    const send = async (): Promise<void> => {
      try {
        if (what instanceof ApplicationFailure) await activity.fail(token, what);
        else await activity.complete(token, what);
      } catch {
        // The owner has gone on meanwhile, or its server has: this host's word is not waited for.
      } finally {
        this.eventsToCome--;
        this.wake();
      }
    };
    this.eventsToCome++;
    setTimeout(() => void send(), afterMs);
  }
}

/** The host activities of many owners, each with a host of its own. */
export function scriptedActivities(hostOf: (resource: string) => ScriptedHost): HostActivities {
  return {
    async [ActivityName.startGeneration](input: StartInput) {
      heartbeat({ instance: INSTANCE });
      return hostOf(input.resource).start(input);
    },
    async [ActivityName.stopResource](input: StopInput) {
      return hostOf(input.resource).stop(input);
    },
    async [ActivityName.holdOwnership](input: HoldInput) {
      hostOf(input.resource).hold(input);
      throw new CompleteAsyncError();
    },
    async [ActivityName.readEndpoint]() {
      return { kind: 'missing', detail: 'scripted' };
    },
    async [ActivityName.adoptServer](input: RecoverInput) {
      return hostOf(input.resource).adoptServer(input);
    },
    async [ActivityName.reclaimServer]() {
      throw ApplicationFailure.nonRetryable('its servers survive', FailureType.InvalidRequest);
    },
    async [ActivityName.serveHost]() {
      throw ApplicationFailure.nonRetryable('no owner asks for this', FailureType.InvalidRequest);
    },
    async [ActivityName.awaitServer](input) {
      return hostOf(input.resource).awaitServer();
    },
  };
}

function proofOf(generation: number, placement: Placement | undefined): StopAnswer['proof'] {
  const { instance = INSTANCE, bootId = 'boot' } = placement ?? {};
  return {
    by: 'empty',
    instance,
    bootId,
    generation: placement?.generation ?? generation,
    invocation: '',
    cgroupId: '',
    units: 'none loaded',
    cgroup: 'ENOENT',
    readAt: Date.now(),
  };
}

function exitOf(exit: StopTurn['exit']): ExitReport {
  switch (exit) {
    case 'clean':
      return { wording: 'exit 0', kind: 'exit', status: 0, source: 'unit' };
    case 'failed':
      return { wording: 'exit 3 (exit-code)', kind: 'exit', status: 3, source: 'unit' };
    case 'unknown':
      return { wording: 'unknown: no exit record', kind: 'unknown', source: 'none' };
  }
}

function unknown(message: string): ApplicationFailure {
  return ApplicationFailure.create({ type: FailureType.Unknown, message });
}

function wrongInstance(): ApplicationFailure {
  return ApplicationFailure.create({ type: FailureType.WrongInstance, message: 'another machine has answered' });
}

function stillRunning(details: StillRunningDetails): ApplicationFailure {
  const { reasons } = details;
  const message = `still running: ${reasons.join('; ')}`;
  return ApplicationFailure.create({ type: FailureType.StillRunning, message, details: [details], category: 'BENIGN' });
}
