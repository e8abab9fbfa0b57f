import { MANAGER_NAME, UNIT_INTERFACE } from './names';
import type { ActiveState, UnitProperties, UnitPropertyName } from './port';
import { read } from './values';

/** Unit types with a cgroup of their own. */
const WITH_CGROUP = ['service', 'slice', 'scope', 'socket', 'mount', 'swap'];
/** Unit types that execute something (systemd.exec(5)). */
const WITH_EXEC = ['service', 'socket', 'mount', 'swap'];

/** Where a property lives: on every unit, or on the interface of some types; and how its value is read. */
interface Property<T> {
  readonly of: 'every unit' | readonly string[];
  readonly read: (value: unknown) => T | undefined;
}

const PROPERTIES: { readonly [N in UnitPropertyName]-?: Property<NonNullable<UnitProperties[N]>> } = {
  LoadState: { of: 'every unit', read: read.text },
  ActiveState: { of: 'every unit', read: (value) => read.text(value) as ActiveState | undefined },
  SubState: { of: 'every unit', read: read.text },
  Description: { of: 'every unit', read: read.text },
  StopWhenUnneeded: { of: 'every unit', read: read.flag },
  InvocationID: { of: 'every unit', read: read.hex },
  FreezerState: { of: 'every unit', read: read.text },
  Result: { of: [...WITH_EXEC, 'scope', 'timer', 'path', 'automount'], read: read.text },
  ExecMainCode: { of: ['service'], read: read.number },
  ExecMainStatus: { of: ['service'], read: read.number },
  ExecMainExitTimestampMonotonic: { of: ['service'], read: read.number },
  MainPID: { of: ['service'], read: read.number },
  ControlGroup: { of: WITH_CGROUP, read: read.text },
  ControlGroupId: { of: WITH_CGROUP, read: read.decimal },
  LogExtraFields: { of: WITH_EXEC, read: read.texts },
  NextElapseUSecMonotonic: { of: ['timer'], read: read.number },
};

/**
 * The D-Bus interface on which a unit has a property: most on the interface of the unit's type, e.g.
 * `org.freedesktop.systemd1.Service`. `undefined` for a property that units of this type do not have.
 */
export function interfaceOf(unit: string, name: UnitPropertyName): string | undefined {
  const { of } = PROPERTIES[name];
  if (of === 'every unit') return UNIT_INTERFACE;
  const type = unit.slice(unit.lastIndexOf('.') + 1);
  return of.includes(type) ? `${MANAGER_NAME}.${type[0]!.toUpperCase()}${type.slice(1)}` : undefined;
}

/** A property's value as plain JSON; `undefined` when it is of another type than expected. */
export function readProperty(name: UnitPropertyName, value: unknown): UnitProperties[UnitPropertyName] {
  return PROPERTIES[name].read(value);
}
