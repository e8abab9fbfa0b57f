import { MANAGER_PATH } from './names';

const UNIT_PATH = `${MANAGER_PATH}/unit/`;

/**
 * Escapes one element of an object path as systemd does (sd_bus_path_encode(3)): letters and digits stay, but a digit
 * in front does not; every other byte becomes `_` and two hex digits; the empty string becomes `_`.
 */
export function escapeLabel(label: string): string {
  if (label === '') return '_';
  return Buffer.from(label, 'utf8')
    .toString('latin1')
    .replace(/^[0-9]|[^A-Za-z0-9]/g, (byte) => `_${byte.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** The inverse of {@link escapeLabel}. */
export function unescapeLabel(escaped: string): string {
  if (escaped === '_') return '';
  const bytes = escaped.replace(/_([0-9a-fA-F]{2})/g, (_match, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Buffer.from(bytes, 'latin1').toString('utf8');
}

/**
 * The path that addresses one invocation of a unit (org.freedesktop.systemd1(5)): calls on it fail with
 * NoUnitForInvocationID once the unit is another invocation, which makes them compare-and-act.
 */
export function invocationPath(invocation: string): string {
  return UNIT_PATH + escapeLabel(invocation);
}

/** The name of the unit at a path, or `undefined` for paths that are not a unit's. */
export function unitOfPath(path: string): string | undefined {
  if (!path.startsWith(UNIT_PATH)) return undefined;
  return unescapeLabel(path.slice(UNIT_PATH.length));
}
