import type { HostDetails } from '../contract/host';
import { hostWorkflowId } from '../contract/names';
import type { HostContext } from './context';
import type { OwnerLink } from './owner-link';

/** At least three heartbeats within the minute after which a host counts as unreachable. */
const MOST_MS = 20_000;

/** A heartbeat without an answer for so long is not waited for any more. */
const ANSWER_MS = 5_000;

/** So many resources are named; all of them are counted. */
const NAMED = 100;

/** Tells the host's workflow that the host is there, and what it holds. Nothing rests on it: leases are another matter. */
export class Presence {
  private token: string | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly host: HostContext,
    private readonly link: OwnerLink,
    private readonly everyMs: number,
  ) {}

  /** Takes the place of what was there before. */
  take(token: string): void {
    this.token = token;
    this.tell();
  }

  close(): void {
    this.token = undefined;
    clearTimeout(this.timer);
  }

  private tell(): void {
    clearTimeout(this.timer);
    const { token } = this;
    if (token === undefined) return;
    const heard = { token, owner: { workflowId: hostWorkflowId(this.host.identity.hostId) } };
    void this.link.heartbeat(heard, this.details(), ANSWER_MS).then((answer) => {
      if (this.token !== token) return;
      // Superseded: the workflow asks anew where it wants to know more.
      if (answer === 'not-found' || answer === 'cancelled') return this.close();
      this.timer = setTimeout(() => this.tell(), Math.min(this.everyMs, MOST_MS));
    });
  }

  private details(): HostDetails {
    const { load, resources, draining } = this.host.capacity;
    return { ...load, resources: [...resources].sort().slice(0, NAMED), ...(draining !== undefined && { draining }) };
  }
}
