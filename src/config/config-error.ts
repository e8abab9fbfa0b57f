/** Exit status of a process whose configuration can't be used: EX_CONFIG of sysexits(3). */
export const EXIT_CONFIG = 78;

/** One thing that is wrong in a configuration. */
export interface ConfigProblem {
  /** The configuration file. */
  readonly file: string;
  /** Where in it, e.g. `programs.postgres.lease`; `(document)` for the file as a whole. */
  readonly path: string;
  /** What stands there, printable and shortened. Where it may be a secret, its type alone (G9). */
  readonly value: string;
  /** What is wrong with it: continues a sentence that begins with the key. */
  readonly message: string;
  /** What to do about it. */
  readonly remedy: string;
  /** Both count from 1; absent for what is not in the file. */
  readonly line?: number;
  readonly column?: number;
}

/**
 * A configuration that can't be used. It carries everything that is wrong at once, in the order of the file, and its
 * message lists all of it. A worker that meets one exits with {@link EXIT_CONFIG}: trying again can't help.
 *
 * It has no `cause`: errors of parsers quote the text around them, which may hold a secret (G9).
 */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[]) {
    const ordered = [...problems].sort(
      (a, b) => (a.line ?? Infinity) - (b.line ?? Infinity) || (a.column ?? 0) - (b.column ?? 0) || 0,
    );
    const count = ordered.length === 1 ? 'one problem' : `${ordered.length} problems`;
    super([`${count} in the configuration:`, ...ordered.map(formatProblem)].join('\n'));
    this.problems = ordered;
  }
}

/** The path that stands for the file as a whole. */
export const DOCUMENT = '(document)';

/** A key path as text: `programs.db.exec[0]`; keys that are not plain words are quoted. */
export function pathText(path: readonly PropertyKey[]): string {
  if (path.length === 0) return DOCUMENT;
  return path.reduce<string>((text, key) => {
    if (typeof key === 'number') return `${text}[${key}]`;
    if (!/^[A-Za-z0-9_-]{1,64}$/.test(String(key))) return `${text}[${quoted(String(key))}]`;
    return text === '' ? String(key) : `${text}.${String(key)}`;
  }, '');
}

/** A value for a person to read: text and numbers as they are, shortened; of everything else its type. */
export function valueText(value: unknown): string {
  if (typeof value === 'string') return quoted(value);
  if (typeof value === 'number' || typeof value === 'boolean') return String(value);
  return typeText(value);
}

/** The type of a value, for where the value itself may be a secret. */
export function typeText(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (value === null) return 'an empty value';
  if (Array.isArray(value)) return 'a list';
  return typeof value === 'object' ? 'a map' : `a ${typeof value}`;
}

function quoted(text: string): string {
  const short = text.length > 80 ? `${text.slice(0, 79)}…` : text;
  return JSON.stringify(short).replace(/[\u007f-\u009f\u2028\u2029]/g, '?');
}

function formatProblem({ file, line, column, path, value, message, remedy }: ConfigProblem): string {
  const place = [file, line, column].filter((part) => part !== undefined).join(':');
  return `  ${place}\n    ${path} ${message} (found ${value})\n    → ${remedy}`;
}
