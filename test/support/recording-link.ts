import type { HoldDetails, HoldEvent } from '../../src/contract/activities';
import type { HostDetails } from '../../src/contract/host';
import type { HoldRecord } from '../../src/host/generation-files';
import type { Heard, HeartbeatAnswer, LeftBehind, OwnerLink, OwnerStanding } from '../../src/host/owner-link';

/** The owners' end of a host, for tests with no Temporal in sight: answers as it is told, and remembers what it heard. */
export class RecordingLink implements OwnerLink {
  /** What the next heartbeats are answered with. */
  answer: HeartbeatAnswer = 'ok';
  /** What the next completions are answered with. */
  completion: 'ok' | 'not-found' | 'unknown' = 'ok';
  /** Awaited before each heartbeat is answered: a slow way to the owner. */
  onTheWay: () => Promise<void> = async () => undefined;
  readonly beats: { readonly token: string; readonly details: HoldDetails }[] = [];
  /** The same of the host's own presence. */
  readonly presence: { readonly token: string; readonly details: HostDetails }[] = [];
  readonly events: { readonly token: string; readonly event: HoldEvent }[] = [];
  readonly failed: string[] = [];
  /** The resources whose owners were asked for. */
  readonly asked: string[] = [];
  /** What is said of the owner of a resource. */
  owners: (resource: string) => OwnerStanding | Promise<OwnerStanding> = () => 'unknown';
  /** What an owner was to be begun for. */
  readonly broughtToEnd: LeftBehind[] = [];
  private readonly waiters = new Set<() => void>();

  async heartbeat(hold: Heard, details: HoldDetails | HostDetails): Promise<HeartbeatAnswer> {
    if ('units' in details) this.presence.push({ token: hold.token, details });
    else this.beats.push({ token: hold.token, details });
    const { answer } = this;
    this.wake();
    await this.onTheWay();
    return answer;
  }

  async complete(hold: HoldRecord, event: HoldEvent): Promise<'ok' | 'not-found' | 'unknown'> {
    this.events.push({ token: hold.token, event });
    this.wake();
    return this.completion;
  }

  async fail(hold: HoldRecord): Promise<void> {
    this.failed.push(hold.token);
    this.wake();
  }

  async standing(resource: string): Promise<OwnerStanding> {
    this.asked.push(resource);
    return this.owners(resource);
  }

  async bringToEnd(left: LeftBehind): Promise<'begun' | 'owned' | 'unknown'> {
    this.broughtToEnd.push(left);
    this.wake();
    return 'begun';
  }

  /** Resolves once an owner was to be begun for so many. */
  async abandoned(count: number): Promise<void> {
    await this.until(() => this.broughtToEnd.length >= count);
  }

  /** The first event of this kind, now or later. */
  async event<K extends HoldEvent['kind']>(kind: K): Promise<Extract<HoldEvent, { kind: K }>> {
    await this.until(() => this.events.some(({ event }) => event.kind === kind));
    return this.events.find(({ event }) => event.kind === kind)!.event as Extract<HoldEvent, { kind: K }>;
  }

  /** Resolves once so many events were told. */
  async told(events: number): Promise<void> {
    await this.until(() => this.events.length >= events);
  }

  /** Resolves once so many heartbeats have come. */
  async heard(beats: number): Promise<void> {
    await this.until(() => this.beats.length >= beats);
  }

  /** Resolves at the first heartbeat from now on that comes by this token. */
  async heardFrom(token: string): Promise<void> {
    const before = this.beats.length;
    await this.until(() => this.beats.slice(before).some((beat) => beat.token === token));
  }

  /** Resolves once this token was handed back. */
  async handedBack(token: string): Promise<void> {
    await this.until(() => this.failed.includes(token));
  }

  private async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.waiters.add(resolve));
  }

  private wake(): void {
    for (const waiter of this.waiters) waiter();
    this.waiters.clear();
  }
}
