import { allHandlersFinished, condition, log, setHandler } from '@temporalio/workflow';
import { FailureType } from '../contract/failures';
import {
  ownUpdate,
  readyUpdate,
  releaseUpdate,
  requestStopSignal,
  restartUpdate,
  statusQuery,
  stopUpdate,
  type OwnAnswer,
  type OwnRequest,
  type ReadyAnswer,
  type ReadyRequest,
  type RequestAnswer,
  type StopRequest,
} from '../contract/owner';
import { checkRequest, oneLine, refuse } from './checks';
import type { Owner, Wish } from './owner';

/** `ready` waits this long at most; the client asks again. */
const READY_WAIT = '5 s';

/** So many `ready` may wait at once: a run takes ten updates in flight, and then even a stop would hang. The others are refused as `Busy`. */
const MAX_WAITING = 4;

/**
 * Registers what people and programs can ask of an owner. Handlers record and answer at once; only `ready` waits, for a
 * few seconds and with room left for others.
 */
export function acceptRequests(owner: Owner): void {
  const { data, input } = owner;
  let waiting = 0;

  setHandler(statusQuery, () => owner.status(), { description: 'What the owner knows and does.' });

  setHandler(
    ownUpdate,
    (request?: OwnRequest): OwnAnswer => {
      owner.step();
      const { program, host, parameters } = input;
      const outcome = request?.requestId === input.requestId ? 'started' : 'joined';
      return { outcome, ownerId: data.ownerId, program, host, parameters };
    },
    { description: 'Used by the client together with the start: tells whether this owner was started or joined.' },
  );

  setHandler(
    readyUpdate,
    async (): Promise<ReadyAnswer> => {
      owner.step();
      if (!isDecided()) {
        waiting++;
        await condition(() => isDecided() || owner.runIsLong, READY_WAIT, { summary: 'somebody waits for ready' });
        waiting--;
      }
      return isReady() ? { ready: true, placement: data.placement! } : { ready: false, status: owner.status() };
    },
    {
      validator: (request?: ReadyRequest) => {
        checkRequest(owner, request);
        if (!isDecided() && waiting >= MAX_WAITING)
          refuse(`${waiting} callers wait already; ask again`, FailureType.Busy);
      },
      description: 'Waits up to 5 s for the process to be ready.',
    },
  );

  setHandler(stopUpdate, (request?: StopRequest) => ask('stop', request), {
    validator: (request?: StopRequest) => checkRequest(owner, request),
    description:
      'Stop the process until it is proven dead. {"reason": "…", "by": "…", "now": true} — now goes to SIGKILL at once.',
  });
  setHandler(restartUpdate, (request?: StopRequest) => ask('restart', request), {
    validator: (request?: StopRequest) => {
      checkRequest(owner, request);
      refuseWhileEnding('restart');
    },
    description: 'Stop the process until it is proven dead, then start the next generation. {"reason": "…", "by": "…"}',
  });
  setHandler(releaseUpdate, (request?: StopRequest) => ask('release', request), {
    validator: (request?: StopRequest) => {
      checkRequest(owner, request);
      refuseWhileEnding('release');
    },
    description:
      'End the owner and leave the process to the next one; unclaimed, it ends with its lease. {"reason": "…"}',
  });
  setHandler(
    requestStopSignal,
    (request?: StopRequest) => {
      // A signal can't be refused: one that names another owner, or makes no sense, is dropped and said.
      try {
        checkRequest(owner, request);
      } catch (error) {
        log.warn('stop request dropped', { error: String(error) });
        owner.step();
        return;
      }
      ask('stop', request);
    },
    { description: 'As the update "stop", without an answer. {"reason": "…", "by": "…", "now": true}' },
  );

  function isReady(): boolean {
    return (
      data.phase === 'running' && data.ready && data.placement !== undefined && data.hostUnreachableSince === undefined
    );
  }

  /** Nothing that a caller could wait for: ready, not going to be, or nobody knows when. */
  function isDecided(): boolean {
    const { phase, hostUnreachableSince } = data;
    return (
      isReady() ||
      owner.isToEnd ||
      phase === 'gave-up' ||
      phase === 'ownership-lost' ||
      phase === 'stopped' ||
      hostUnreachableSince !== undefined
    );
  }

  function ask(what: Wish['what'], request?: StopRequest | null): RequestAnswer {
    makeWish(owner, what, request ?? {});
    return { ownerId: data.ownerId, state: owner.state, message: MEANING[data.wish!.what] };
  }

  function refuseWhileEnding(what: string): void {
    const { wish, phase } = data;
    if (owner.isToEnd || phase === 'stopped') {
      refuse(
        `${what} refused: ${wish?.what ?? 'the end'} was asked before (by ${wish?.by ?? '?'}); own the resource anew afterwards`,
      );
    }
    if (what === 'release' && (wish || phase === 'stopping')) {
      refuse('release refused: the process is being stopped; ask again once the next one runs');
    }
  }
}

/** What happens next, as the one who asked is told. */
const MEANING: Readonly<Record<Wish['what'], string>> = {
  stop: 'noted: the owner stops the process and ends once it is proven dead',
  restart: 'noted: the owner stops the process until it is proven dead, then starts the next one',
  release: 'noted: the owner ends; the process lives until its lease ends or the next owner adopts it',
};

/** Records a wish. A stop outranks a restart; a second stop can only add `now`. */
export function makeWish(owner: Owner, what: Wish['what'], request: StopRequest): void {
  owner.step();
  const { data } = owner;
  const former = data.wish;
  const outranked = former !== undefined && (former.what === 'stop' || what !== 'stop');
  const wish: Wish = outranked
    ? former
    : { what, by: oneLine(request.by) || 'unknown', reason: oneLine(request.reason), at: Date.now(), now: false };
  data.wish = { ...wish, now: wish.now || (former?.now ?? false) || request.now === true };
  owner.note(`${what} asked by ${oneLine(request.by) || 'unknown'}`);
}

/** Waits for the answers that are still owed, before a run ends. */
export async function answersGiven(): Promise<void> {
  await condition(allHandlersFinished);
}
