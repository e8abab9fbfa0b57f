import type { HoldDetails, HoldEvent } from '../contract/activities';
import type { HoldRecord } from './generation-files';

/**
 * How a host speaks to the owners whose holds it has: the one thing that it needs of Temporal, and so that `host/` runs
 * and is tested without one. No call rejects: what is not answered is `unknown`.
 */
export interface OwnerLink {
  /** Says that the process lives, and hears whether its owner does; `unknown` when that takes longer than `withinMs`. */
  heartbeat(hold: HoldRecord, details: HoldDetails, withinMs: number): Promise<HeartbeatAnswer>;
  /** Completes the hold with an event. */
  complete(hold: HoldRecord, event: HoldEvent): Promise<'ok' | 'not-found' | 'unknown'>;
  /** Fails the hold once, so that it comes again. */
  fail(hold: HoldRecord, reason: string): Promise<void>;
  /** Whether a resource has an open owner. Never a reason to touch a process. */
  owner(resource: string): Promise<OwnerReading>;
}

/**
 * - `open`: a workflow of the resource's id is open, whichever owner it is.
 * - `closed`: the last one is closed.
 * - `not-found`: Temporal answered that it knows none: it never was, or its retention is over, or it was deleted.
 * - `unknown`: no answer, or none that this version understands.
 */
export type OwnerReading = 'open' | 'closed' | 'not-found' | 'unknown';

/**
 * - `ok`, `paused`, `cancelled`: answered. Somebody there still knows this hold, whatever a person does to the activity.
 * - `reset`: answered; the hold is to come again.
 * - `not-found`: answered, and says only that this token is no longer good: superseded, continued as new, terminated and
 *   reset all look alike.
 * - `unknown`: anything else, or no answer in time.
 */
export type HeartbeatAnswer = 'ok' | 'paused' | 'cancelled' | 'reset' | 'not-found' | 'unknown';
