import type { Duration } from '@temporalio/common';
import ms from 'ms';

/** A duration in ms; throws a RangeError that names it when it can't be read. */
export function toMs(duration: Duration): number {
  const value = typeof duration === 'number' ? duration : (ms(duration) as number | undefined);
  if (value === undefined || !Number.isFinite(value) || value < 0) {
    throw new RangeError(
      `${JSON.stringify(duration)} is not a duration: give ms as a number, or a text such as "30 s"`,
    );
  }
  return value;
}
