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
  /** Whether a resource has an owner. Never a reason to touch a process; it may be one to begin an owner for it. */
  standing(resource: string): Promise<OwnerStanding>;
  /** Begins an owner that brings to an end what was found. Only where there is none: an open one stays the only one (G1). */
  bringToEnd(left: LeftBehind): Promise<'begun' | 'owned' | 'unknown'>;
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
 * - `open`: a workflow of the resource's id is open, whichever owner it is.
 * - `completed`: the last one ended by its own decision. What it has left, it has left on purpose.
 * - `gone`: the last one was terminated or has failed; or Temporal answered that it knows none: it never was, its retention is
 *   over, or it was deleted.
 * - `unknown`: no answer, or none that this version understands.
 */
export type OwnerStanding = 'open' | 'completed' | 'gone' | 'unknown';

/** What is left of a resource that nobody owns. */
export interface LeftBehind {
  readonly resource: string;
  readonly host: string;
  /** Of the owners. */
  readonly taskQueue: string;
  readonly program: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** As its launch record has it; absent where there is none that can be read. */
  readonly placement?: Placement;
}
