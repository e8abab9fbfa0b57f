import { condition } from '@temporalio/workflow';
import type { Owner } from './owner';

/**
 * Waits as a timer that the UI names. Without `ms`, for as long as it takes. Ends early when somebody asks for
 * something, or when the run is long.
 */
export async function pause(owner: Owner, ms: number | undefined, summary: string): Promise<void> {
  const { wish } = owner.data;
  const over = (): boolean => owner.data.wish !== wish || owner.runIsLong;
  if (ms === undefined) await condition(over);
  else await condition(over, ms, { summary });
  owner.step();
}

/** Wait before another attempt: 1 s, doubling up to a minute. */
export function setbackMs(setbacks: number): number {
  return Math.min(60_000, 1_000 * 2 ** Math.min(setbacks - 1, 10));
}
