import type { HoldDetails, HoldEvent, OwnerIdentity } from '../contract/activities';
import type { Placement } from '../contract/facts';
import type { HostDetails } from '../contract/host';
import type { HoldRecord } from './generation-files';

/**
 * How a host speaks to the owners whose holds it has: the one thing that it needs of Temporal, and so that `host/` runs
 * and is tested without one. No call rejects: what is not answered is `unknown`.
 */
export interface OwnerLink {
  /** Says that the process lives, and hears whether its owner does; `unknown` when that takes longer than `withinMs`. */
  heartbeat(hold: Heard, details: HoldDetails | HostDetails, withinMs: number): Promise<HeartbeatAnswer>;
  /** Completes the hold with an event. */
  complete(hold: HoldRecord, event: HoldEvent): Promise<'ok' | 'not-found' | 'unknown'>;
  /** Fails the hold once, so that it comes again. */
  fail(hold: HoldRecord, reason: string): Promise<void>;
  /** Whether a resource has an owner, by the workflow id of the one it had. */
  standing(owner: OwnerIdentity): Promise<OwnerStanding>;
  /** Begins an owner that brings to an end what was found. Only where there is none: an open one stays the only one (G1). */
  bringToEnd(found: LeftBehind): Promise<'begun' | 'owned' | 'unknown'>;
}

/**
 * - `ok`, `paused`, `cancelled`: answered. Somebody there still knows this hold, whatever a person does to the activity.
 * - `reset`: answered; the hold is to come again.
 * - `not-found`: answered, and says only that this token is no longer good: superseded, continued as new, terminated and
 *   reset all look alike.
 * - `unknown`: anything else, or no answer in time.
 */
export type HeartbeatAnswer = 'ok' | 'paused' | 'cancelled' | 'reset' | 'not-found' | 'unknown';

/** What a heartbeat is for: a hold, or the host's own presence. */
export interface Heard {
  /** base64 */
  readonly token: string;
  /** Whose it is, for the log. */
  readonly owner: Pick<OwnerIdentity, 'workflowId'>;
}

/**
 * - `open`: an owner is open, this one or the next.
 * - `completed`: the last one ended by its own decision. What it has left, it has left on purpose.
 * - `gone`: the last one was terminated, or has failed, or Temporal knows of none.
 * - `unknown`: no answer.
 */
export type OwnerStanding = 'open' | 'completed' | 'gone' | 'unknown';

/** A process without an owner, as its launch record has it. */
export interface LeftBehind {
  readonly owner: OwnerIdentity;
  readonly resource: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly placement: Placement;
}
