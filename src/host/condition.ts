import type { Placement } from '../contract/facts';
import type { UnitProperties } from '../systemd/port';
import type { HostContext } from './context';
import { messageOf } from './log';

/** How a generation is, read from its unit at this moment. */
export type Condition =
  /** It runs under the recorded invocation. */
  | { readonly kind: 'living'; readonly ready: boolean; readonly text: string }
  /** It is over, being ended, or no longer the one that was started: to be stopped until proven. */
  | { readonly kind: 'over'; readonly text: string }
  | { readonly kind: 'unknown'; readonly text: string };

/** Reads the unit and compares it with what was started. Never rejects: an error is a condition (G4). */
export async function readCondition(host: HostContext, placement: Placement): Promise<Condition> {
  let unit: UnitProperties | undefined;
  try {
    // What nearly always is the case costs two short questions; all that is said of anything else, one long one.
    const state = placement.invocation && (await host.systemd.invocationState(placement.invocation));
    if (state && isLiving(state)) return living(state);
    unit = await host.systemd.unitProperties(placement.unit, ['ActiveState', 'SubState', 'InvocationID', 'Result']);
  } catch (error) {
    return { kind: 'unknown', text: messageOf(error) };
  }
  if (unit === undefined) return { kind: 'over', text: 'the unit is gone' };
  const text = stateText(unit);
  if (placement.invocation === '' && isLiving(unit)) {
    // Not written down: the worker that started it died, or its disk was full. Says nothing about other hands.
    return { kind: 'unknown', text: `${text}, its invocation is not on record` };
  }
  if (unit.InvocationID !== placement.invocation) {
    return { kind: 'over', text: `${text}, restarted by other hands: invocation ${unit.InvocationID || 'none'}` };
  }
  if (isLiving(unit)) return living(unit);
  return { kind: 'over', text: `${text}, result ${unit.Result ?? '?'}` };
}

function living(unit: UnitProperties): Condition {
  return { kind: 'living', ready: unit.ActiveState !== 'activating', text: stateText(unit) };
}

function stateText({ ActiveState, SubState }: UnitProperties): string {
  return `${ActiveState ?? '?'} (${SubState ?? '?'})`;
}

/** Running, or on the way there; not stopping, and not the shell of an `active (exited)` unit. */
export function isLiving(unit: Pick<UnitProperties, 'ActiveState' | 'SubState'>): boolean {
  const { ActiveState, SubState } = unit;
  return (
    ActiveState === 'activating' || ActiveState === 'reloading' || (ActiveState === 'active' && SubState !== 'exited')
  );
}

/**
 * Whether a lease has to end it: everything that is up and not on its way down. Also the shell of an `active (exited)` unit,
 * whose children may live on.
 */
export function needsLease({ ActiveState, SubState }: Pick<UnitProperties, 'ActiveState' | 'SubState'>): boolean {
  return isLiving({ ActiveState, SubState }) || ActiveState === 'active';
}
