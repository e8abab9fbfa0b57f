import type { GenerationFiles, HoldRecord, LaunchRecord, LeaseRecord } from './generation-files';

/** What the worker has of one generation. */
export interface Held {
  readonly files: GenerationFiles;
  launch: LaunchRecord;
  lease: LeaseRecord;
  hold?: HoldRecord;
  /** The owner wants it stopped: only its proof is an event now. */
  stopping: boolean;
  /** It is proven dead: nothing is armed or written for it any more. */
  over?: boolean;
  /** Its hold is in this worker's memory alone: it could not be written yet. So with the launch record. */
  holdUnwritten?: boolean;
  launchUnwritten?: boolean;
  /** Why this host ended it; said with its end. */
  endedFor?: string;
  /** What its owner and the log were last told of other hands; see `condition.ts`. */
  noticed?: string;
  /** Of a control server: the period that it reported with its last renewal, in ms. */
  serverLeaseMs?: number;
  /** µs of CLOCK_MONOTONIC at which that renewal was asked for. */
  serverRenewedAt?: number;
  /** It answered when it was last asked, and may have told its owner so beside the hold. */
  serverAnswers?: boolean;
}

/** What the log says of every line about a generation. */
export function attributesOf(held: Held): { readonly resource: string; readonly generation: number } {
  return { resource: held.launch.resource, generation: held.launch.placement.generation };
}
