import { cgroupIdOf, readPopulated } from '../cgroup/cgroup';
import type { OwnerIdentity } from '../contract/activities';
import { parseUnit, prefixSlice, unitPattern } from '../contract/names';
import { SystemdError, type SystemdPort, type UnitListing, type UnitProperties } from '../systemd/port';
import { claimPrefix } from './claim';
import { prefixCgroup, resourceCgroup, resourceControlGroup, type HostContext } from './context';
import { readBootId } from './instance';
import { messageOf } from './log';
import type { Readings, UnknownReading } from './proof';
import { isOwn } from './unit';

/**
 * Takes everything that the proof rule looks at, in the one order that makes it true: the caller has closed the
 * resource's generations (nothing can start any more) and armed its watch; then the manager's list, then the cgroup.
 * So whatever lived at the time of the list and is not in the cgroup afterwards has ended. Errors become readings.
 */
export async function takeReadings(host: HostContext, prefix: string, resource: string): Promise<Readings> {
  const [bootId, root, units] = await Promise.all([
    readBootId(host.root).catch(() => ''), // the id of no boot
    readRoot(host),
    readUnits(host, prefix, resource),
  ]);
  // After the list.
  const [outside, cgroup] = await Promise.all([
    findOutside(host, prefix, resource, units),
    readPopulated(resourceCgroup(host, prefix, resource)),
  ]);
  const { instance, bootIds } = host.identity;
  return { instance, bootId, bootIds, units, cgroup: outside ?? cgroup, root, readAt: Date.now() };
}

/**
 * A unit whose cgroup is not in the resource's slice, as where a drop-in says `Slice=` (systemd.unit(5): drop-ins by prefix
 * and type apply to transient units too): the slice's word is none about it. A unit stays loaded while its cgroup has
 * processes, and its `ControlGroup` is empty once it has no cgroup.
 */
async function findOutside(
  host: HostContext,
  prefix: string,
  resource: string,
  units: Readings['units'],
): Promise<UnknownReading | undefined> {
  if (units.kind === 'unknown') return undefined;
  const slice = `${resourceControlGroup(host, prefix, resource)}/`;
  try {
    const paths = await Promise.all(
      units.list.map(async ({ name }) => (await host.systemd.unitProperties(name, ['ControlGroup']))?.ControlGroup),
    );
    const path = paths.find((one) => one && !one.startsWith(slice));
    return path ? unknown(`a unit of ${resource} is in ${path} and not in ${slice}: see its drop-ins`) : undefined;
  } catch (error) {
    return unknown(error);
  }
}

/** The resource's services as systemd lists them; its lease timers are none of its processes. */
export async function readUnits(host: HostContext, prefix: string, resource: string): Promise<Readings['units']> {
  try {
    return { kind: 'list', list: await listServices(host.systemd, prefix, resource) };
  } catch (error) {
    return unknown(error);
  }
}

/** All services of a prefix that systemd has loaded, whatever they do. */
export async function generationUnits(systemd: SystemdPort, prefix: string): Promise<readonly string[]> {
  return (await listServices(systemd, prefix)).map((unit) => unit.name);
}

/** The services of a prefix, or of one resource, that are loaded. */
async function listServices(systemd: SystemdPort, prefix: string, resource?: string): Promise<readonly UnitListing[]> {
  const units = await systemd.listUnits(unitPattern(prefix, resource));
  return units.filter((unit) => {
    const parsed = parseUnit(prefix, unit.name);
    return parsed?.kind === 'generation' && (resource === undefined || parsed.resource === resource);
  });
}

/** A loaded service of a resource, and whether it is provably the resource's own: a stranger's is never touched (G6, G11). */
export interface ResourceUnit {
  readonly name: string;
  readonly generation: number;
  readonly own: boolean;
  readonly properties: UnitProperties;
}

/** The resource's loaded services with what is needed to stop them. Rejects where systemd gives no answer. */
export async function readResourceUnits(
  host: HostContext,
  prefix: string,
  of: { readonly resource: string; readonly owner: OwnerIdentity },
): Promise<readonly ResourceUnit[]> {
  const reading = await readUnits(host, prefix, of.resource);
  if (reading.kind === 'unknown') throw new SystemdError('unknown', reading.error);
  const units = await Promise.all(
    reading.list.map(async ({ name }) => {
      const parsed = parseUnit(prefix, name);
      const properties = await host.systemd.unitProperties(name, [
        'ActiveState',
        'SubState',
        'InvocationID',
        'LogExtraFields',
      ]);
      if (parsed?.kind !== 'generation' || !properties) return []; // unloaded since the list was made
      const { generation } = parsed;
      return [{ name, generation, own: isOwn(properties, of.resource, generation, of.owner), properties }];
    }),
  );
  return units.flat();
}

/** Inode and ControlGroupId of the prefix's slice: equal only when this worker reads the manager's own cgroup tree. */
async function readRoot(host: HostContext): Promise<Readings['root']> {
  try {
    const name = prefixSlice(host.prefix);
    const read = (): ReturnType<SystemdPort['unitProperties']> =>
      host.systemd.unitProperties(name, ['ActiveState', 'ControlGroupId']);
    let slice = await read();
    if (slice?.ActiveState !== 'active') {
      // Other hands have stopped it with all that was in it, or the manager was started anew: claim it again.
      await claimPrefix(host.systemd, host.prefix, host.identity);
      slice = await read();
    }
    if (slice?.ControlGroupId === undefined) return unknown(`${name} is not loaded`);
    const cgroupId = await cgroupIdOf(prefixCgroup(host, host.prefix));
    return { kind: 'ids', cgroupId, controlGroupId: slice.ControlGroupId };
  } catch (error) {
    return unknown(error);
  }
}

function unknown(error: unknown): UnknownReading {
  return { kind: 'unknown', error: messageOf(error) };
}
