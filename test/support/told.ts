import type { Payload } from '@temporalio/common';
import {
  ActivityName,
  type AwaitServerInput,
  type HoldInput,
  type RecoverAnswer,
  type RecoverInput,
  type StartAnswer,
  type StartInput,
  type StillRunningDetails,
  type StopInput,
} from '../../src/contract/activities';
import { FailureType } from '../../src/contract/failures';
import type { OwnResult } from '../../src/contract/owner';
import type { History } from './scene';

/** A call to the host, from being asked for to its answer. */
interface Call {
  readonly name: string;
  readonly generation: number;
  /** What nobody had answered for before this start. */
  readonly before?: number;
  takenBack: boolean;
}

/**
 * What an owner was told and what it asked, by its histories alone: events stand there in the order in which the owner saw
 * them. Reading on, it notes whatever an owner must not do, knowing that.
 */
export class Told {
  readonly wrong: string[] = [];
  /** All of it, in words. */
  readonly said: string[] = [];
  /** What came to pass, in words to count. */
  readonly kinds = new Set<string>();
  end?: OwnResult['end'] | 'failed';
  /** Lives, for all that the owner was told. */
  private lives?: number;
  /** Its hold has said that it is over: nothing to leave to anybody else, and no proof. */
  private over = false;
  /** Something was found that has to be stopped first. */
  private found = false;
  /** A start that nobody has answered for: there may be a process. */
  private unanswered?: number;
  /** The highest generation that was asked for or told of. */
  private highest = 0;
  /** What was asked for and accepted; a restart until its start. */
  private stop = false;
  private release = false;
  private restart = false;
  /** Of a process that was started: whether it comes with the next workflow task, or came with this one. */
  private news?: 'to come' | 'now';
  private readonly calls = new Map<string, Call>();
  /** Updates that were accepted and have no answer yet, by id. */
  private readonly owed = new Map<string, string>();
  private first = 0;

  /** There is, or may be, a process: it must not end without a proof. */
  get fears(): boolean {
    return this.lives !== undefined || this.found || this.unanswered !== undefined;
  }

  /** Reads one run: what is known goes along to the next one, what is under way does not. */
  read({ events }: History): void {
    for (const event of events!) this.take(event);
    for (const name of this.owed.values()) this.no(`${name} was accepted and has no answer`);
    this.owed.clear();
    this.calls.clear();
  }

  /** Reads one event. */
  take(event: HistoryEvent): void {
    if (event.workflowTaskStartedEventAttributes) {
      this.news = this.news === 'to come' ? 'now' : undefined;
    } else if (event.activityTaskScheduledEventAttributes) {
      const { activityType, input } = event.activityTaskScheduledEventAttributes;
      const call = this.ask(activityType!.name!, content(input?.payloads?.[0]));
      this.calls.set(String(event.eventId), call);
    } else if (event.activityTaskCancelRequestedEventAttributes) {
      this.callOf(event.activityTaskCancelRequestedEventAttributes).takenBack = true;
    } else if (event.activityTaskCompletedEventAttributes) {
      const { result } = event.activityTaskCompletedEventAttributes;
      this.answer(this.callOf(event.activityTaskCompletedEventAttributes), content(result?.payloads?.[0]));
    } else if (event.activityTaskFailedEventAttributes) {
      const { applicationFailureInfo: info } = event.activityTaskFailedEventAttributes.failure!;
      this.failure(
        this.callOf(event.activityTaskFailedEventAttributes),
        info?.type ?? '?',
        content(info?.details?.payloads?.[0]),
      );
    } else if (event.activityTaskTimedOutEventAttributes) {
      this.failure(this.callOf(event.activityTaskTimedOutEventAttributes), 'timeout', undefined);
    } else if (event.activityTaskCanceledEventAttributes) {
      this.neverStarted(this.callOf(event.activityTaskCanceledEventAttributes));
    } else if (event.workflowExecutionUpdateAcceptedEventAttributes) {
      const { input, meta } = event.workflowExecutionUpdateAcceptedEventAttributes.acceptedRequest!;
      const name = input!.name!;
      if (ownerIdIn(input!.args) === 'another') this.no(`takes ${name} for another owner`);
      this.owed.set(meta!.updateId!, name);
      this.accepted(name);
    } else if (event.workflowExecutionUpdateCompletedEventAttributes) {
      this.owed.delete(event.workflowExecutionUpdateCompletedEventAttributes.meta!.updateId!);
    } else if (event.workflowExecutionSignaledEventAttributes) {
      const { input } = event.workflowExecutionSignaledEventAttributes;
      if (ownerIdIn(input) !== 'another') this.accepted('stop');
    } else if (event.workflowExecutionCancelRequestedEventAttributes) {
      this.accepted('stop');
    } else if (event.workflowExecutionCompletedEventAttributes) {
      const { result } = event.workflowExecutionCompletedEventAttributes;
      this.ended(content(result?.payloads?.[0]) as OwnResult);
    } else if (event.workflowExecutionFailedEventAttributes) {
      const { failure } = event.workflowExecutionFailedEventAttributes;
      this.refused(failure?.applicationFailureInfo?.type ?? failure?.message ?? '?');
    } else if (event.workflowExecutionContinuedAsNewEventAttributes) {
      this.say('continues in a new run');
      this.kinds.add('continues');
    }
  }

  private ask(name: string, input: unknown): Call {
    const takenBack = false;
    switch (name) {
      case ActivityName.startGeneration: {
        const { generation } = input as StartInput;
        this.first ||= generation;
        this.say(`asks to start ${this.short(generation)}`);
        const what = `starts ${this.short(generation)}`;
        if (generation <= this.highest) this.no(`${what}, having asked for or heard of ${this.short(this.highest)}`);
        if (this.lives !== undefined) this.no(`${what}, and ${this.short(this.lives)} is not proven dead`);
        if (this.found) this.no(`${what} over what it was told to stop first`);
        if (this.stop || this.release) this.no(`${what}, asked to end`);
        const call = { name, generation, before: this.unanswered, takenBack };
        this.highest = Math.max(this.highest, generation);
        this.unanswered = generation;
        this.restart = false;
        return call;
      }
      case ActivityName.stopResource: {
        const { generation, placement, rung } = input as StopInput;
        this.first ||= generation;
        this.say(`asks to stop up to ${this.short(generation)} (${rung})`);
        if (generation < this.highest)
          this.no(`stops up to ${this.short(generation)}, having asked for or heard of ${this.short(this.highest)}`);
        if (placement?.generation !== this.lives)
          this.no(`stops ${this.short(placement?.generation)}, and ${this.short(this.lives)} lives`);
        return { name, generation, takenBack };
      }
      case ActivityName.readEndpoint:
      case ActivityName.adoptServer: {
        const { epoch } = input as RecoverInput;
        this.say(`asks to ${name} for ${this.short(epoch)}`);
        if (name === ActivityName.readEndpoint) return { name, generation: epoch, takenBack };
        if (this.stop || this.release) this.no('adopts, asked to end');
        if (this.lives !== undefined || this.found) this.no('adopts over what is not proven dead');
        const call = { name, generation: epoch, before: this.unanswered, takenBack };
        this.unanswered = epoch; // it may be this owner's from now on
        return call;
      }
      case ActivityName.awaitServer:
        return { name, generation: (input as AwaitServerInput).placement.generation, takenBack };
      default: {
        const { generation } = (input as HoldInput).placement;
        this.say(`holds ${this.short(generation)}`);
        if (generation !== this.lives) this.no(`holds ${this.short(generation)}, and ${this.short(this.lives)} lives`);
        return { name, generation, takenBack };
      }
    }
  }

  private answer(call: Call, answer: unknown): void {
    const { name, generation, takenBack } = call;
    if (name === ActivityName.startGeneration) return this.started(call, answer as StartAnswer);
    if (name === ActivityName.readEndpoint || name === ActivityName.awaitServer) return;
    if (name === ActivityName.adoptServer) return this.recovered(call, answer as RecoverAnswer);
    if (name === ActivityName.holdOwnership) {
      const { kind } = answer as { readonly kind: string };
      this.kinds.add(`hold ${kind}`);
      if (generation === this.lives && !takenBack) this.over = kind === 'ended' || kind === 'proven';
      return this.say(`is told of ${this.short(generation)}: ${kind}`);
    }
    this.say(`is told that all up to ${this.short(generation)} is proven dead${takenBack ? ', unheard' : ''}`);
    if (takenBack) return;
    this.kinds.add('proven');
    this.lives = undefined;
    this.found = false;
    this.unanswered = undefined;
  }

  private recovered(call: Call, { recovery, placement }: RecoverAnswer): void {
    this.say(`is told: ${recovery.scope}`);
    this.kinds.add(recovery.scope);
    if (call.takenBack) return; // unheard
    this.unanswered = placement ? undefined : call.before;
    if (!placement) return;
    this.lives = placement.generation;
    this.over = false;
  }

  private started(call: Call, answer: StartAnswer): void {
    this.say(`is told: ${answer.kind}`);
    this.kinds.add(answer.kind);
    switch (answer.kind) {
      case 'started':
      case 'adopted':
        this.lives = answer.placement.generation;
        this.over = false;
        this.unanswered = undefined;
        if (answer.kind !== 'started') return;
        this.restart = false; // this is the new one
        this.news = 'to come';
        return;
      case 'stop-first':
        this.found = !answer.living; // else it may wait for the lease of that
        this.unanswered = undefined;
        return;
      case 'outdated': // the host has done nothing, and what it has seen may be this owner's own, from before a reset
        this.highest = Math.max(this.highest, answer.highest);
        return;
      case 'blocked':
      case 'full':
        this.unanswered = undefined;
        return;
      case 'recover': // nothing was done
        this.unanswered = call.before;
        return;
    }
  }

  private failure(call: Call, type: string, details: unknown): void {
    if (call.name === ActivityName.holdOwnership) return this.say(`its hold ends: ${type}`);
    if (call.name === ActivityName.awaitServer || call.name === ActivityName.readEndpoint) return;
    this.say(`is told: ${type}`);
    this.kinds.add(type);
    if (call.name === ActivityName.startGeneration) {
      if (type === FailureType.ProgramRefused) this.unanswered = call.before;
      else this.kinds.add('unknown');
    } else if (type === FailureType.StillRunning && !call.takenBack) {
      const { highest = 0 } = details as StillRunningDetails;
      if (highest <= call.generation) return;
      this.say(`is told that ${this.short(highest)} lives`);
      this.kinds.add('reset');
      this.highest = Math.max(this.highest, highest);
      this.lives = undefined;
      this.found = false;
      this.unanswered = highest;
    }
  }

  private neverStarted(call: Call): void {
    if (call.name !== ActivityName.startGeneration) return;
    this.say('is told: never started');
    this.kinds.add('taken back');
    this.unanswered = call.before;
  }

  private accepted(what: string): void {
    this.say(`is asked: ${what}`);
    if (what === 'stop') this.stop = true;
    if (what === 'release') this.release = true;
    // One that comes in the very task in which the owner learns of its new process may be taken to mean that one.
    if (what === 'restart') this.restart = this.news !== 'now';
  }

  private ended({ end, proof }: OwnResult): void {
    this.end = end;
    this.say(`ends: ${end}`);
    this.kinds.add(`ends ${end}`);
    if (end === 'released') {
      if (!this.release || this.stop) this.no(`is released, and was asked to ${this.stop ? 'stop' : 'do nothing'}`);
      if (this.over) this.no('is released, and was told that it is over');
      if (this.lives === undefined || proof) this.no('is released, and nothing lives');
      return;
    }
    if (end === 'exited' && (this.stop || this.release || this.restart))
      this.no('ends as exited, and was asked for more');
    if (end === 'stopped' && !(this.stop || this.release)) this.no('ends as stopped, and nobody has asked');
    if (end !== 'never started' && !proof) this.no(`ends as ${end} without a proof`);
    this.nothingIsLeft();
  }

  private refused(type: string): void {
    this.end = 'failed';
    this.say(`fails: ${type}`);
    this.kinds.add(`fails ${type}`);
    if (type !== FailureType.ProgramRefused && type !== FailureType.HostFull) this.no(`fails: ${type}`);
    // Whoever waits for ready is answered by the failure itself: the client asks what it was.
    for (const [id, name] of this.owed) if (name === 'ready') this.owed.delete(id);
    this.nothingIsLeft();
  }

  private nothingIsLeft(): void {
    if (this.lives !== undefined) this.no(`ends, and ${this.short(this.lives)} is not proven dead`);
    if (this.found) this.no('ends over what it was told to stop first');
    if (this.unanswered !== undefined) this.no(`ends, and nobody has answered for ${this.short(this.unanswered)}`);
  }

  private callOf({ scheduledEventId }: { scheduledEventId?: unknown }): Call {
    return this.calls.get(String(scheduledEventId))!;
  }

  private no(what: string): void {
    this.wrong.push(what);
    this.say(`!!! ${what}`);
  }

  private say(what: string): void {
    this.said.push(what);
  }

  /** Generations are milliseconds: shown from the first one on. */
  private short(generation: number | undefined): string {
    return generation === undefined ? 'nothing' : `g+${generation - this.first}`;
  }
}

interface Payloads {
  readonly payloads?: Payload[] | null;
}

/** The owner that a request says it is for. */
function ownerIdIn(request: Payloads | undefined | null): string | undefined {
  return (content(request?.payloads?.[0]) as { readonly ownerId?: string }).ownerId;
}

type HistoryEvent = NonNullable<History['events']>[number];

function content(payload: Payload | undefined | null): unknown {
  return payload?.data ? JSON.parse(Buffer.from(payload.data).toString()) : {};
}
