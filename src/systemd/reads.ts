import type { Variant } from 'dbus-next';
import { toManager, type Bus } from './bus';
import { MANAGER_INTERFACE, MANAGER_PATH, PROPERTIES_INTERFACE, UNIT_INTERFACE } from './names';
import {
  SystemdError,
  type ActiveState,
  type ManagerFacts,
  type SystemdPort,
  type UnitListing,
  type UnitProperties,
  type UnitPropertyName,
} from './port';
import { interfaceOf, readProperty } from './properties';
import { invocationPath } from './unit-path';
import { read } from './values';

/** Facts about the manager. Rejects when one can't be read: a wrong clock would be a wrong lease. */
export async function readManager(bus: Bus, deadline: number): Promise<ManagerFacts> {
  const get = (name: string) => getProperty(bus, MANAGER_PATH, MANAGER_INTERFACE, name, 'the manager', deadline);
  const [version, virtualization, userspaceTimestampMonotonic, unitPath] = await Promise.all([
    get('Version').then(read.text),
    get('Virtualization').then(read.text),
    get('UserspaceTimestampMonotonic').then(read.number),
    get('UnitPath').then(read.strings),
  ]);
  if (version === undefined || virtualization === undefined || userspaceTimestampMonotonic === undefined) {
    throw new SystemdError('unknown', 'the manager answered, but not with its version, virtualization and clock');
  }
  const transientDirectory = unitPath?.find((path) => path.endsWith('/systemd/transient'));
  return { version, virtualization, userspaceTimestampMonotonic, transientDirectory };
}

/** The loaded units whose name matches a glob (ListUnitsByPatterns, for units in any state). */
export async function listUnits(bus: Bus, pattern: string, deadline: number): Promise<readonly UnitListing[]> {
  const request = toManager(`ListUnitsByPatterns ${pattern}`, 'ListUnitsByPatterns', 'asas', [[], [pattern]]);
  const [rows] = (await bus.call(request, deadline)) as [string[][]];
  return rows.map(([name, description, loadState, activeState, subState, , , , jobType]) => ({
    name: name!,
    description: description!,
    loadState: loadState!,
    activeState: activeState as ActiveState,
    subState: subState!,
    jobType: jobType!,
  }));
}

/** The paths of all jobs (ListJobs). */
export async function listJobs(bus: Bus, deadline: number): Promise<ReadonlySet<string>> {
  const [rows] = (await bus.call(toManager('ListJobs', 'ListJobs'), deadline)) as [string[][]];
  return new Set(rows.map((row) => row[4]!));
}

/**
 * Properties of a unit as one picture, or `undefined` when it is not loaded. Single Gets: GetAll of a service is 300
 * properties and 2.5 ms of PID 1.
 */
export async function readUnit(
  bus: Bus,
  unit: string,
  names: readonly UnitPropertyName[],
  deadline: number,
): Promise<UnitProperties | undefined> {
  for (;;) {
    const path = await pathOfUnit(bus, unit, deadline);
    if (path === undefined) return undefined;
    if (names.length === 1) return readProperties(bus, unit, path, names, deadline);
    // Between two Gets the manager does other things, and a start, a stop or a restart among them would mix two states
    // into one answer. Each of them changes this stamp: equal before and after, it makes the Gets one picture.
    const stamp = () => getProperty(bus, path, UNIT_INTERFACE, 'StateChangeTimestampMonotonic', unit, deadline);
    const [before, values, after] = await Promise.all([
      stamp(),
      readProperties(bus, unit, path, names, deadline),
      stamp(),
    ]);
    if (before !== after) continue;
    // Never changed its state: just loaded, or unloaded since GetUnit and loaded again, empty, by the Gets themselves.
    if (read.number(before) === 0 && (await pathOfUnit(bus, unit, deadline)) === undefined) return undefined;
    return values;
  }
}

/**
 * State of an invocation. Its path is one only while the unit is that invocation, so that this needs neither a look-up nor
 * a stamp: read one after the other, the two tell of a moment in between whether it lived.
 */
export async function readInvocation(
  bus: Bus,
  invocation: string,
  deadline: number,
): ReturnType<SystemdPort['invocationState']> {
  const path = invocationPath(invocation);
  try {
    return await readProperties(bus, `invocation ${invocation}`, path, ['ActiveState', 'SubState'], deadline);
  } catch (error) {
    if (error instanceof SystemdError && error.kind === 'no-such-invocation') return undefined;
    throw error;
  }
}

/** GetUnit, which loads nothing, unlike a call to the path of a unit that is not loaded. */
async function pathOfUnit(bus: Bus, unit: string, deadline: number): Promise<string | undefined> {
  try {
    const [path] = await bus.call(toManager(`GetUnit ${unit}`, 'GetUnit', 's', [unit]), deadline);
    return String(path);
  } catch (error) {
    if (error instanceof SystemdError && error.kind === 'no-such-unit') return undefined;
    throw error;
  }
}

/** One Get for each, sent in this order. `of` is a unit, or an invocation, which has what every unit has. */
async function readProperties(
  bus: Bus,
  of: string,
  path: string,
  names: readonly UnitPropertyName[],
  deadline: number,
): Promise<UnitProperties> {
  const values = await Promise.all(
    names.map(async (name) => [name, await unitProperty(bus, of, path, name, deadline)] as const),
  );
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

async function unitProperty(
  bus: Bus,
  of: string,
  path: string,
  name: UnitPropertyName,
  deadline: number,
): Promise<UnitProperties[UnitPropertyName]> {
  const iface = interfaceOf(of, name);
  if (iface === undefined) return undefined;
  try {
    return readProperty(name, await getProperty(bus, path, iface, name, of, deadline));
  } catch (error) {
    // This version of systemd does not have it: absent, which is unknown.
    if (error instanceof SystemdError && error.dbusName === 'org.freedesktop.DBus.Error.UnknownProperty') {
      return undefined;
    }
    throw error;
  }
}

async function getProperty(
  bus: Bus,
  path: string,
  iface: string,
  name: string,
  of: string,
  deadline: number,
): Promise<unknown> {
  const request = toManager(`read ${name} of ${of}`, 'Get', 'ss', [iface, name]);
  const [value] = (await bus.call({ ...request, path, interface: PROPERTIES_INTERFACE }, deadline)) as [Variant];
  return value.value;
}
