import { posix } from 'node:path';
import { z } from 'zod';
import { placeholders, RESOURCE } from './expand';

/** What is wrong with one value, and what to do about it. */
export class Misfit {
  constructor(
    readonly message: string,
    readonly remedy: string,
    /** Shown in place of the value. */
    readonly shown?: string,
  ) {}
}

/**
 * A zod type for one value, read by a function that answers with what it makes of the value or with a {@link Misfit}.
 * All values are read this way: zod's own messages know no remedy.
 */
export function scalar<T>(read: (input: unknown) => T | Misfit): z.ZodType<T> {
  return z.unknown().transform((input, context) => {
    const result = read(input);
    if (!(result instanceof Misfit)) return result;
    context.addIssue(misfitIssue(result));
    return z.NEVER;
  });
}

/** A misfit as zod carries it. */
export function misfitIssue(
  { message, remedy, shown }: Misfit,
  path: PropertyKey[] = [],
): { code: 'custom'; message: string; path: PropertyKey[]; params: { remedy: string; shown?: string } } {
  return { code: 'custom', message, path, params: { remedy, shown } };
}

/** Text without control characters: none of what is configured here may hold a line break or a NUL. */
export function readText(input: unknown, remedy: string): string | Misfit {
  if (input === undefined) return new Misfit('is missing', remedy);
  if (input === null) return new Misfit('has no value', `${remedy}, or remove the key`);
  if (typeof input !== 'string')
    return new Misfit('is not text', `${remedy}; quote it where YAML takes it for something else`);
  if (/\p{Cc}/u.test(input))
    return new Misfit('has a control character', `${remedy}, without line breaks, tabs and the like`);
  if (/\p{Surrogate}/u.test(input)) return new Misfit('is not valid Unicode', remedy);
  return input;
}

/** Text that matches a pattern whole. */
export function matching(pattern: RegExp, remedy: string): z.ZodType<string> {
  return scalar((input) => {
    const text = readText(input, remedy);
    if (text instanceof Misfit || pattern.test(text)) return text;
    return new Misfit(`does not match ${pattern.source}`, remedy);
  });
}

/** One of a few words. */
export function oneOf<const T extends string>(...words: readonly T[]): z.ZodType<T> {
  const remedy = `write ${words.join(' or ')}`;
  return scalar((input) => {
    const text = readText(input, remedy);
    if (text instanceof Misfit) return text;
    return words.find((word) => word === text) ?? new Misfit('is none of the words that are known here', remedy);
  });
}

const DURATION =
  /^(-?\d*\.?\d+) *(?:(milliseconds?|msecs?|ms)|(seconds?|secs?|s)|(minutes?|mins?|m)|(hours?|hrs?|h)|(days?|d)|(weeks?|w)|(years?|yrs?|y))$/i;
const UNIT_MS = [1, 1_000, 60_000, 3_600_000, 86_400_000, 604_800_000, 31_557_600_000];

/**
 * A duration in ms, rounded: text as everywhere in Temporal's SDK (`30s`, `5 min`, `1.5 hours`), within bounds. A
 * number without a unit is refused, quoted or not: Temporal would take it for milliseconds, systemd for seconds.
 */
export function duration(minimum: string, maximum: string): z.ZodType<number> {
  const bounds = `between ${minimum} and ${maximum}`;
  const remedy = `write a duration ${bounds} with its unit, e.g. "30s" or "5 min"`;
  const [least, most] = [parseDuration(minimum)!, parseDuration(maximum)!];
  return scalar((input) => {
    const text = typeof input === 'number' ? String(input) : readText(input, remedy);
    if (text instanceof Misfit) return text;
    if (text.trim() !== '' && Number.isFinite(Number(text))) return new Misfit('has no unit', remedy);
    const ms = parseDuration(text);
    if (ms === undefined) return new Misfit('is no duration', remedy);
    return ms >= least && ms <= most ? ms : new Misfit(`is not ${bounds}`, remedy);
  });
}

function parseDuration(text: string): number | undefined {
  const match = text.length <= 100 ? DURATION.exec(text) : null;
  if (!match) return undefined;
  return Math.round(Number(match[1]) * UNIT_MS[match.slice(2).findIndex((unit) => unit !== undefined)]!);
}

/** A duration as a person would write it, in the largest unit without a fraction: `10 min`. */
export function durationText(ms: number): string {
  for (const [each, unit] of [
    [3_600_000, 'h'],
    [60_000, 'min'],
    [1_000, 's'],
  ] as const)
    if (ms % each === 0) return `${ms / each} ${unit}`;
  return `${ms} ms`;
}

/** A size in bytes with a unit to the base of 1,024, as systemd.resource-control(5) reads it: `512M`, `1.5G`. */
export function size(): z.ZodType<number> {
  const remedy = 'write a size of at least 1M with K, M, G or T, e.g. "512M"';
  return scalar((input) => {
    const text = typeof input === 'number' ? String(input) : readText(input, remedy);
    if (text instanceof Misfit) return text;
    const match = /^(\d+(?:\.\d+)?)([KMGT])$/.exec(text);
    if (!match) return new Misfit(/^\d+$/.test(text) ? 'has no unit' : 'is no size', remedy);
    const bytes = Math.floor(Number(match[1]) * 1024 ** ('KMGT'.indexOf(match[2]!) + 1));
    return bytes >= 1024 ** 2 && Number.isSafeInteger(bytes) ? bytes : new Misfit('is out of range', remedy);
  });
}

/** Cores: a number (`0.5`) or a share of one core as in `CPUQuota=` (`50%`, `200%`). */
export function cores(): z.ZodType<number> {
  const remedy = 'write a number of cores from 0.01 to 4096, e.g. 0.5 or "50%"';
  return scalar((input) => {
    const percent = typeof input === 'string' ? /^(\d+(?:\.\d+)?)%$/.exec(input) : null;
    const value = percent ? Number(percent[1]) / 100 : input;
    if (typeof value !== 'number') return new Misfit('is no number of cores', remedy);
    return value >= 0.01 && value <= 4096 ? value : new Misfit('is out of range', remedy);
  });
}

/** A whole number within bounds. */
export function whole(minimum: number, maximum: number): z.ZodType<number> {
  const remedy = `write a whole number from ${minimum} to ${maximum}`;
  return scalar((input) => {
    if (typeof input !== 'number' || !Number.isInteger(input)) return new Misfit('is no whole number', remedy);
    return input >= minimum && input <= maximum ? input : new Misfit('is out of range', remedy);
  });
}

/** True or false, as YAML 1.2 has them: `yes` and `no` are texts. */
export function flag(): z.ZodType<boolean> {
  return scalar((input) => {
    return typeof input === 'boolean' ? input : new Misfit('is neither true nor false', 'write true or false');
  });
}

export interface PathOptions {
  /** Whether `${resource}` may stand in it. */
  readonly resource?: boolean;
  /** What may stand before it, e.g. `-` for a file that need not exist. */
  readonly prefix?: string;
}

/** An absolute, normalised path. */
export function path(options: PathOptions = {}): z.ZodType<string> {
  return scalar((input) => readPath(input, options));
}

/** See {@link path}. */
export function readPath(input: unknown, { resource = false, prefix = '' }: PathOptions = {}): string | Misfit {
  const remedy = 'write the whole path, beginning with "/"';
  const text = readText(input, remedy);
  if (text instanceof Misfit) return text;
  const bare = prefix !== '' && text.startsWith(prefix) ? text.slice(prefix.length) : text;
  if (!bare.startsWith('/')) return new Misfit('is not an absolute path', remedy);
  for (const name of placeholders(bare)) {
    if (!resource) return new Misfit('may hold no placeholder', 'write the path out');
    if (name === RESOURCE) continue;
    // What a workflow may fill in must not choose the file: only the resource is known to name something below.
    return new Misfit(`asks for "\${${name}}"`, 'use "${resource}", the only placeholder in a path');
  }
  // A resource's segments are never empty, "." or "..": whatever it is, the path goes on below.
  const filled = bare.replaceAll(`\${${RESOURCE}}`, 'r/s');
  const normal = posix.normalize(filled);
  if (normal === filled && (normal === '/' || !normal.endsWith('/'))) return text;
  return new Misfit('is not a normalised path', 'write it without "//", "/./", "/../" and a "/" at its end');
}

/** A map with keys of one kind. Without a prototype: what a workflow names is looked up in it. */
export function entries<T>(key: z.ZodType<string>, value: z.ZodType<T>): z.ZodType<Readonly<Record<string, T>>> {
  return z.record(key as z.ZodType<string, string>, value).transform((record) => {
    return Object.assign(Object.create(null) as Record<string, T>, record);
  });
}

/** A map with the keys named here and no others. */
export function keys<S extends z.ZodRawShape>(shape: S): z.ZodObject<S, z.core.$strict> {
  const known = `remove it, or use one of: ${Object.keys(shape).join(', ')}`;
  return z.strictObject(shape, { error: (issue) => (issue.code === 'unrecognized_keys' ? known : undefined) });
}

/** Whether a value of a file that may be wrong in every way is a map. */
export function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
