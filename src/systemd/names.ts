import { SystemdError } from './port';

/** Bus name of the manager, on the system bus and on a user's. */
export const MANAGER_NAME = 'org.freedesktop.systemd1';
export const MANAGER_PATH = '/org/freedesktop/systemd1';
export const MANAGER_INTERFACE = 'org.freedesktop.systemd1.Manager';
export const UNIT_INTERFACE = 'org.freedesktop.systemd1.Unit';
export const PROPERTIES_INTERFACE = 'org.freedesktop.DBus.Properties';

/** The message bus itself (D-Bus specification, "Message Bus Messages"). */
export const BUS_NAME = 'org.freedesktop.DBus';
export const BUS_PATH = '/org/freedesktop/DBus';

/** systemd.unit(5): at most 255 characters of this set, a known suffix, no instance without a name. */
const UNIT_NAME =
  /^[A-Za-z0-9:_.\\-][A-Za-z0-9:_.\\@-]*\.(service|slice|timer|scope|socket|target|path|mount|automount|swap|device)$/;

/**
 * Rejects a name that no unit can have before anything is sent. Not a nicety: KillUnit with an empty name hits the
 * *caller's own* unit (`bus_get_unit_by_name`).
 */
export function checkUnitName(call: string, unit: unknown): void {
  if (typeof unit === 'string' && unit.length <= 255 && UNIT_NAME.test(unit) && !unit.includes('@.')) return;
  throw new SystemdError(
    'bad-unit',
    `${call}: not sent: ${JSON.stringify(unit)} is no unit name; one is at most 255 characters of [A-Za-z0-9:_.\\@-] ` +
      'with a type as its suffix, e.g. "own-db-g1.service"',
  );
}

/**
 * Rejects what is not the id of one invocation before anything is sent. The null id is refused too: systemd takes it
 * for "the caller".
 */
export function checkInvocation(call: string, invocation: unknown): void {
  if (typeof invocation === 'string' && /^[0-9a-f]{32}$/.test(invocation) && !/^0+$/.test(invocation)) return;
  throw new SystemdError(
    'bad-unit',
    `${call}: not sent: ${JSON.stringify(invocation)} is no invocation id; one is 32 lower-case hex digits, not all zero`,
  );
}

/** Rejects a pattern that matches no unit at all: its empty answer would read like "there is no such unit". */
export function checkPattern(call: string, pattern: unknown): void {
  if (typeof pattern === 'string' && pattern !== '') return;
  throw new SystemdError('bad-unit', `${call}: not sent: ${JSON.stringify(pattern)} is no pattern of unit names`);
}
