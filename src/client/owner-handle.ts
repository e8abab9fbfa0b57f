import { WorkflowFailedError } from '@temporalio/client';
import { ApplicationFailure, TerminatedFailure, type Duration } from '@temporalio/common';
import type { HoldDetails } from '../contract/activities';
import { FailureType } from '../contract/failures';
import {
  readyUpdate,
  releaseUpdate,
  requestStopSignal,
  restartUpdate,
  stopUpdate,
  type OwnerStatus,
  type OwnResult,
  type ReadyAnswer,
  type RequestAnswer,
  type StopRequest,
} from '../contract/owner';
import type { Endpoint } from '../contract/endpoint';
import { placedEndpoint, type Placement } from '../contract/facts';
import { within } from './deadline';
import { toMs } from './duration';
import {
  HostFullError,
  HostUnreachableError,
  NoAnswerError,
  NoEndpointError,
  NoOwnerError,
  NotReadyError,
  ProgramRefusedError,
  RequestRefusedError,
  StillRunningError,
} from './errors';
import { liveDetails } from './live-details';
import { failureTypeOf, type OwnerCalls } from './owner-calls';

/** Who asks and why; shown to everybody who looks at the owner. */
export interface AskOptions {
  readonly reason?: string;
  /** Default: the client's identity. */
  readonly by?: string;
}

export interface StopOptions extends AskOptions {
  /** How long to wait for the proof before {@link StillRunningError}. Default 1 min. The owner goes on either way. */
  readonly timeout?: Duration;
  /** Go to SIGKILL at once. Default false. */
  readonly now?: boolean;
}

/** What the owner knows, and the live facts of its hold where the host has told some. */
export interface LiveStatus extends OwnerStatus {
  readonly live?: HoldDetails & { readonly heartbeatAt: number };
}

/** Where the resource's process listens, for those who use it. */
export type OwnedEndpoint = Endpoint & {
  /** It runs and is ready; of a control server, that it answered when it was last asked. */
  readonly available: boolean;
  /** Of a control server: path on its host. The credential itself never leaves the host. */
  readonly credentialFile?: string;
};

const DEFAULT_STOP_TIMEOUT = '1 min';
const DEFAULT_READY_TIMEOUT = '1 min';

/** Between two questions whether it is ready, when the owner has too many askers to let this one wait. */
const READY_POLL_MS = 250;

/** Why an owner ends without ever having had a process, as its failure's type says. */
const NOT_STARTED: Readonly<Record<string, typeof ProgramRefusedError | typeof HostFullError | undefined>> = {
  [FailureType.ProgramRefused]: ProgramRefusedError,
  [FailureType.HostFull]: HostFullError,
};

/** One resource's owner, from the outside. Every call races a timer of its own. */
export class OwnerHandle {
  constructor(private readonly calls: OwnerCalls) {}

  get resource(): string {
    return this.calls.resource;
  }

  /** First run id of the owner that is meant; absent, whichever owner is there. */
  get ownerId(): string | undefined {
    return this.calls.ownerId;
  }

  /**
   * Resolves once the process is ready. Rejects with {@link NotReadyError} when it won't become so, with
   * {@link HostUnreachableError} when the owner can't reach its host, with {@link ProgramRefusedError} when the host refuses
   * the program, {@link HostFullError} when it takes on no more; and with {@link NoAnswerError} after `timeout` (default 1 min).
   */
  async ready(options: { readonly timeout?: Duration } = {}): Promise<Placement> {
    const timeoutMs = toMs(options.timeout ?? DEFAULT_READY_TIMEOUT);
    const deadline = Date.now() + timeoutMs;
    for (;;) {
      const answer = await this.askReady(deadline - Date.now());
      if (answer?.ready) return answer.placement;
      const status = answer?.status;
      if (status?.hostUnreachableSince !== undefined) throw new HostUnreachableError(this.resource, status);
      if (status && wontBeReady(status))
        throw new NotReadyError(this.resource, `${status.state}: ${status.lastEvent}`, status);
      if (Date.now() + READY_POLL_MS >= deadline) throw new NoAnswerError(this.resource, 'ready', timeoutMs);
      await new Promise((resolve) => setTimeout(resolve, READY_POLL_MS));
    }
  }

  /**
   * Where the resource's process listens, as its host has allocated it for this generation: ask again after a restart. Of a
   * control server also the path of the file on its host that holds the credential, whose content changes with each
   * adoption: read it again when the server answers 401. Rejects with {@link NoEndpointError} when the program declares no
   * endpoint, or none of it runs.
   */
  async endpoint(): Promise<OwnedEndpoint> {
    const { placement, control, state, ready } = await this.calls.status();
    const endpoint = placement && placedEndpoint(placement);
    if (!endpoint) throw new NoEndpointError(this.resource, state);
    if (!placement.control) return { ...endpoint, available: ready && state === 'running' };
    const { credentialFile } = placement.control;
    return { ...endpoint, available: control?.available ?? false, credentialFile };
  }

  /** What the owner knows, merged with what its host last told. */
  async status(): Promise<LiveStatus> {
    const [status, live] = await Promise.all([
      this.calls.status(),
      this.calls.describe().then((description) => liveDetails(this.calls.client, description)),
    ]);
    return live === undefined ? status : { ...status, live };
  }

  /**
   * Asks for a stop and waits for the proof. Resolves with how it ended; rejects with {@link StillRunningError} after
   * `timeout`, while the owner goes on. Asked twice, both get the same answer.
   */
  async stop(options: StopOptions = {}): Promise<OwnResult> {
    const { timeout = DEFAULT_STOP_TIMEOUT, now, ...ask } = options;
    const waitMs = toMs(timeout);
    try {
      await this.calls.updateAcrossResets(
        stopUpdate,
        this.request({ ...ask, now }),
        Math.min(waitMs, this.calls.timeoutMs),
      );
    } catch (error) {
      if (!(error instanceof NoOwnerError)) throw error; // ended already: its result is the answer
    }
    const late = new Error('late');
    try {
      return await within(
        this.calls.client,
        waitMs,
        () => this.result(),
        () => late,
      );
    } catch (error) {
      if (error !== late) throw error;
      const status = await this.calls.status().catch(() => undefined); // only for the message
      throw new StillRunningError(this.resource, status?.remaining ?? [], status, waitMs);
    }
  }

  /** Asks for a stop without waiting for any answer (a signal). */
  async requestStop(options: Omit<StopOptions, 'timeout'> = {}): Promise<void> {
    await this.calls.signal(requestStopSignal, this.request(options));
  }

  /** Asks for a stop until proven and then the next generation. Resolves once the owner has noted it. */
  async restart(options: AskOptions & { readonly now?: boolean } = {}): Promise<RequestAnswer> {
    return this.calls.update(restartUpdate, this.request(options));
  }

  /** Ends the owner and leaves the process to the next one; unclaimed, it ends with its lease. */
  async release(options: AskOptions = {}): Promise<RequestAnswer> {
    return this.calls.update(releaseUpdate, this.request(options));
  }

  /** Waits, as long as it takes, for how the ownership ends. Rejects with {@link ProgramRefusedError}, {@link HostFullError},
   * {@link NoOwnerError}, or what failed it. */
  async result(): Promise<OwnResult> {
    for (;;) {
      const runId = await this.calls.newestRun();
      try {
        return await this.calls.resultOf(runId);
      } catch (error) {
        if (!(error instanceof WorkflowFailedError)) throw error;
        const NotStarted = error.cause instanceof ApplicationFailure && NOT_STARTED[error.cause.type ?? ''];
        if (NotStarted) throw new NotStarted(this.resource, error.cause.message, { cause: error });
        // A reset ends a run as terminated and goes on in another one of the same owner.
        if (error.cause instanceof TerminatedFailure && (await this.calls.newestRun()) !== runId) continue;
        throw error;
      }
    }
  }

  /** The answer, or undefined when so many callers wait that this one has to ask again. */
  private async askReady(timeoutMs: number): Promise<ReadyAnswer | undefined> {
    try {
      return await this.calls.updateAcrossResets(readyUpdate, {}, timeoutMs);
    } catch (error) {
      if (error instanceof RequestRefusedError && failureTypeOf(error) === FailureType.Busy) return undefined;
      if (!(error instanceof NoOwnerError)) throw error;
      throw new NotReadyError(this.resource, `its ownership has ended: ${await this.howItEnded()}`, undefined);
    }
  }

  /** In words. Rejects where nothing was ever started: that is another matter. */
  private async howItEnded(): Promise<string> {
    try {
      return (await this.result()).exit.wording;
    } catch (error) {
      if (error instanceof WorkflowFailedError) return error.cause?.message ?? error.message;
      throw error;
    }
  }

  private request(options: StopRequest): StopRequest {
    return { by: this.calls.client.options.identity, ...options };
  }
}

/** Ending, ended or given up. One that is stopped for a restart, or to make room for a next generation, goes on. */
function wontBeReady({ state, asked }: OwnerStatus): boolean {
  return (
    state === 'stopped' ||
    state === 'gave-up' ||
    state === 'ownership-lost' ||
    asked?.what === 'stop' ||
    asked?.what === 'release'
  );
}
