import { Variant } from 'dbus-next';
import type { TransientUnit } from './port';

/** What systemd sends for "never" and "no limit" in a 64-bit property (USEC_INFINITY). */
const INFINITE = 2n ** 64n - 1n;

/** A unit's properties in the form of `a(sv)`. */
export function settingsOf(unit: TransientUnit): [string, Variant][] {
  return unit.properties.map(([name, signature, value]) => [name, new Variant(signature, value)]);
}

/**
 * Readers from what dbus-next makes of a value to plain JSON values: 64-bit integers come as BigInt, which
 * JSON.stringify refuses, and byte arrays as Buffer. Each answers `undefined` for a value of another type than expected:
 * a property that can't be read is unknown, and must not read as something it is not (G4).
 */
export const read = {
  text: (value: unknown): string | undefined => (typeof value === 'string' ? value : undefined),

  flag: (value: unknown): boolean | undefined => (typeof value === 'boolean' ? value : undefined),

  /** Numbers of any width; Infinity for systemd's "never". Exact to 2^53, in µs 285 years. */
  number: (value: unknown): number | undefined => {
    if (typeof value === 'number') return value;
    if (typeof value !== 'bigint') return undefined;
    return value === INFINITE ? Infinity : Number(value);
  },

  /** 64-bit numbers that are identities (inodes), where rounding would be a mistake. */
  decimal: (value: unknown): string | undefined =>
    typeof value === 'bigint' || typeof value === 'number' ? value.toString() : undefined,

  /** `ay` as hex; `''` for an empty array. */
  hex: (value: unknown): string | undefined => (Buffer.isBuffer(value) ? value.toString('hex') : undefined),

  /** `as` */
  strings: (value: unknown): readonly string[] | undefined =>
    Array.isArray(value) && value.every((one) => typeof one === 'string') ? value : undefined,

  /** `aay`, each decoded as UTF-8. */
  texts: (value: unknown): readonly string[] | undefined =>
    Array.isArray(value) && value.every((bytes) => Buffer.isBuffer(bytes))
      ? value.map((bytes) => bytes.toString('utf8'))
      : undefined,
};
