import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isFrozen } from '../cgroup/cgroup';
import type { Placement } from '../contract/facts';
import type { UnitProperties } from '../systemd/port';
import { prefixCgroup, type HostContext } from './context';
import { entriesIfThere } from './files';
import { messageOf } from './log';

/** How a generation is, read from its unit at this moment. */
export type Condition =
  /** It runs under the recorded invocation. */
  | {
      readonly kind: 'living';
      readonly ready: boolean;
      readonly text: string;
      /** What other hands have done to it while it goes on, in words; `''` for nothing that could be seen. */
      readonly noticed: string;
    }
  /** It is over, being ended, or no longer the one that was started: to be stopped until proven. */
  | {
      readonly kind: 'over';
      readonly text: string;
      /** Its unit was stopped, which a process that ends by itself never causes: by its lease, or by other hands. */
      readonly stopped?: boolean;
    }
  | { readonly kind: 'unknown'; readonly text: string };

/** Reads the unit and compares it with what was started. Never rejects: an error is a condition (G4). */
export async function readCondition(host: HostContext, placement: Placement): Promise<Condition> {
  let unit: UnitProperties | undefined;
  try {
    // What nearly always is the case costs two short questions; all that is said of anything else, one long one.
    const state = placement.invocation && (await host.systemd.invocationState(placement.invocation));
    if (state && isLiving(state)) return await living(host, placement, state);
    unit = await host.systemd.unitProperties(placement.unit, ['ActiveState', 'SubState', 'InvocationID', 'Result']);
  } catch (error) {
    return { kind: 'unknown', text: messageOf(error) };
  }
  // A unit that ends by itself stays loaded: `active (exited)` or failed.
  if (unit === undefined) return { kind: 'over', text: 'the unit is gone', stopped: true };
  const text = stateText(unit);
  if (placement.invocation === '' && isLiving(unit)) {
    // Not written down: the worker that started it died, or its disk was full. Says nothing about other hands.
    return { kind: 'unknown', text: `${text}, its invocation is not on record` };
  }
  if (unit.InvocationID !== placement.invocation) {
    return { kind: 'over', text: `${text}, restarted by other hands: invocation ${unit.InvocationID || 'none'}` };
  }
  if (isLiving(unit)) return living(host, placement, unit);
  // A unit of ours is started once (`unit.ts`), and its start limit refuses every other start.
  if (unit.Result === 'start-limit-hit')
    return { kind: 'over', text: `${text}, restarted by other hands, which was refused` };
  // `active (exited)` is an end of its own; one that fails by itself has another result while it deactivates.
  const stopped = (unit.ActiveState === 'deactivating' || unit.ActiveState === 'inactive') && unit.Result === 'success';
  return { kind: 'over', text: `${text}, result ${unit.Result ?? '?'}`, stopped };
}

async function living(host: HostContext, placement: Placement, unit: UnitProperties): Promise<Condition> {
  const noticed = await readNoticed(host, placement, unit);
  const text = noticed === '' ? stateText(unit) : `${stateText(unit)}, ${noticed}`;
  return { kind: 'living', ready: unit.ActiveState !== 'activating', text, noticed };
}

/** What can be seen of other hands on a living unit: three short reads of files, and more only where something is odd. */
async function readNoticed(host: HostContext, placement: Placement, unit: UnitProperties): Promise<string> {
  const seen = await Promise.all([
    processesNoticed(host, placement, unit),
    settingsNoticed(host, placement.unit, 'its'),
    settingsNoticed(host, placement.slice, 'its slice’s'),
  ]);
  return seen.filter((text) => text !== '').join('; ');
}

async function processesNoticed(host: HostContext, placement: Placement, unit: UnitProperties): Promise<string> {
  const cgroup = join(prefixCgroup(host, placement.prefix), placement.slice, placement.unit);
  // Frozen processes live, and so their lease goes on.
  if (await isFrozen(cgroup)) return 'frozen by other hands';
  if (unit.SubState !== 'running') return '';
  const former = mainPids.get(placement);
  if (former !== undefined && (await isInside(host, placement, former))) return '';
  // Asked anew: it may be another one by now. What systemd has not reaped keeps its pid, so that pid is no other's.
  const main = await host.systemd.unitProperties(placement.unit, ['MainPID', 'InvocationID']).catch(() => undefined);
  if (!main?.MainPID || main.InvocationID !== placement.invocation) return '';
  mainPids.set(placement, main.MainPID);
  return (await isInside(host, placement, main.MainPID)) === false
    ? 'its main process was moved out of its cgroup'
    : '';
}

/** The main process of a placement as systemd has told it last, so that a look need not ask again. */
const mainPids = new WeakMap<Placement, number>();

/** Whether a process is in the unit's cgroup; undefined where that can't be read, as of one that has ended. */
async function isInside(host: HostContext, { unit }: Placement, pid: number): Promise<boolean | undefined> {
  const where = await readFile(join(host.root, 'proc', String(pid), 'cgroup'), 'utf8').catch(() => '');
  const path = /^0::(.*)$/m.exec(where)?.[1];
  return path === undefined ? undefined : path.includes(`/${unit}`);
}

/** `systemctl set-property` writes a drop-in per property, and beside the unit's own file where that is transient (systemctl(1)). */
async function settingsNoticed(host: HostContext, unit: string, whose: string): Promise<string> {
  if (host.transientDirectory === undefined) return '';
  const dropIns = join(host.root, host.transientDirectory, `${unit}.d`);
  const names = (await entriesIfThere(dropIns).catch(() => undefined)) ?? []; // for words alone
  const set = names.flatMap((name) => /^50-(\w+)\.conf$/.exec(name)?.[1] ?? []).sort();
  return set.length === 0 ? '' : `${whose} ${set.join(', ')} set by other hands`;
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
