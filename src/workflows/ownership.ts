import { CancellationScope, condition, isCancellation, sleep } from '@temporalio/workflow';
import type { HoldEvent } from '../contract/activities';
import { programText } from '../contract/facts';
import { awaitServer, failureOf, holdOwnership, timeoutOf } from './host-calls';
import type { Owner } from './owner';

/**
 * The owner's end of the channel to its host: one hold activity after the other for as long as the generation lives and
 * until it is proven dead. The host completes a hold when there is something to say.
 */
export class HoldChannel {
  /** The host says that what was to be stopped is over: worth asking for the proof. */
  over = false;
  private scope: CancellationScope | undefined;

  constructor(private readonly owner: Owner) {}

  /** Holds, unless it does already. */
  open(): void {
    if (this.scope || !this.owner.data.placement) return;
    const scope = new CancellationScope();
    this.scope = scope;
    void scope
      .run(() => this.hold())
      .catch((error: unknown) => {
        if (!isCancellation(error)) throw error; // a bug: fails the workflow task, where it is seen
      })
      .finally(() => {
        if (this.scope === scope) this.scope = undefined;
      });
  }

  /** Ends it: the generation is proven dead, or released. The host's lease keeper learns that by its next heartbeat. */
  close(): void {
    this.over = false;
    this.scope?.cancel();
    this.scope = undefined;
  }

  private async hold(): Promise<void> {
    const { owner } = this;
    const { data } = owner;
    for (let failures = 0; data.placement;) {
      const { placement } = data;
      try {
        const event = await holdOwnership(owner, {
          resource: owner.input.resource,
          placement,
          owner: owner.identity,
          ready: data.ready,
          programState: data.programState ?? 'current',
          greet: data.hostUnreachableSince !== undefined,
          ...(data.lost !== undefined && { lost: true }),
        });
        failures = 0;
        owner.step();
        owner.hostAnswers(true);
        if (this.take(event)) return;
      } catch (error) {
        if (isCancellation(error)) throw error;
        owner.step();
        // The next hold waits in the host's queue, at no event, until the host is back.
        if (timeoutOf(error)) {
          owner.hostAnswers(false);
          owner.note('the host has missed its heartbeats');
          continue;
        }
        // One that fails at once is not repeated at once.
        owner.note(`the hold failed: ${failureOf(error)?.message ?? String(error)}`);
        await sleep(Math.min(60_000, 1_000 * 2 ** Math.min(failures++, 10)), { summary: 'wait before holding again' });
      }
    }
  }

  /** Whether the channel has done its work. */
  private take(event: HoldEvent): boolean {
    const { owner } = this;
    switch (event.kind) {
      case 'holding':
        owner.note('the host is back');
        return false;
      case 'ready':
        owner.setReady(true);
        owner.note(owner.data.placement?.control ? 'the server answers' : 'the process says it is ready');
        return false;
      case 'program':
        owner.data.programState = event.state;
        owner.note(programText(owner.input.program, event.state));
        return false;
      case 'noticed':
        owner.note(event.what);
        return false;
      case 'unavailable':
        owner.setReady(false);
        owner.note(`the server does not answer: ${event.reason}`);
        return false;
      case 'refused':
        owner.setReady(false);
        owner.data.lost = event.reason;
        owner.note(`the server refuses this owner: ${event.reason}`);
        return false;
      case 'ended':
        return this.end(event.reason);
      case 'proven':
        this.over = true;
        return this.end(event.exit.wording);
    }
  }

  private end(reason: string): true {
    this.owner.setReady(false);
    this.owner.data.ended = reason;
    this.owner.note(`over: ${reason}`);
    return true;
  }
}

/** Holds the running generation until it is over, its control server refuses this owner, or somebody asks for something. */
export async function ownership(owner: Owner, channel: HoldChannel): Promise<void> {
  const { data } = owner;
  channel.open();
  const check = checkServer(owner);
  const isLost = (): boolean => data.lost !== undefined && data.phase === 'running';
  await condition(() => data.wish !== undefined || data.ended !== undefined || isLost() || owner.runIsLong);
  check?.cancel();
  if (data.wish?.what === 'release' && data.ended === undefined) {
    channel.close();
    owner.enter(
      'stopped',
      `released by ${data.wish.by}`,
      'end; the process goes on until its lease ends or a next owner adopts it',
    );
  } else if (data.wish ?? data.ended) {
    const why = data.ended === undefined ? `${data.wish!.what} asked by ${data.wish!.by}` : `over: ${data.ended}`;
    owner.enter('stopping', why, 'stop until proven dead');
  } else if (isLost()) {
    owner.enter(
      'ownership-lost',
      `the server refuses this owner: ${data.lost}`,
      'nothing renews it any more: wait for its end, or for somebody to ask for restart or stop',
    );
  }
}

/** Waits for a fresh control server beside the hold: a slow one must not be ended by its first lease. */
function checkServer(owner: Owner): CancellationScope | undefined {
  const { data, input } = owner;
  const { placement } = data;
  if (!placement?.control || data.checked) return undefined;
  const { requireHealthy } = placement.control;
  const scope = new CancellationScope();
  void scope
    .run(async () => {
      const answer = await awaitServer(owner, { resource: input.resource, owner: owner.identity, placement });
      owner.step();
      data.checked = true;
      if (answer.healthy) {
        owner.setReady(true);
        owner.note('the server is healthy');
        if (answer.recordFailed) owner.warn(`its endpoint could not be recorded: ${answer.recordFailed}`);
        return;
      }
      owner.warn(`the server is not healthy: ${answer.reason}`);
      if (requireHealthy) data.ended = `not healthy in time: ${answer.reason}`;
    })
    .catch((error: unknown) => {
      if (isCancellation(error)) return;
      owner.step();
      data.checked = true;
      owner.warn(`whether the server is healthy is unknown: ${failureOf(error)?.message ?? String(error)}`);
    });
  return scope;
}
