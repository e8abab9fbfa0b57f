import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Program } from '../config/config';
import { readIfThere } from './files';
import { expand } from '../config/expand';

/** The merged environment of a process: values for its file on the host, names and layers for the record (G9). */
export interface Environment {
  /** Content for `EnvironmentFile=`. */
  readonly file: string;
  /** Variable name → the layer that its value comes from. */
  readonly layers: Readonly<Record<string, string>>;
}

/**
 * Merges the program's environment files (later ones win), its `environment` over them, and what this project gives
 * every process on top. Read here and not by systemd, so that the record says what the process really got.
 *
 * Rejects when a file can't be read, unless its path begins with `-`; the message names the file and never a value.
 */
export async function mergeEnvironment(
  program: Program,
  values: Readonly<Record<string, string>>,
  own: Readonly<Record<string, string>>,
  root: string,
): Promise<Environment> {
  const merged = new Map<string, { value: string; layer: string }>();
  const put = (variables: Readonly<Record<string, string>>, layer: string): void => {
    for (const [name, value] of Object.entries(variables)) merged.set(name, { value, layer });
  };
  for (const template of program.environmentFiles) {
    const optional = template.startsWith('-');
    const path = expand(optional ? template.slice(1) : template, values);
    const text = optional ? await readIfThere(join(root, path)) : await readFile(join(root, path), 'utf8');
    if (text !== undefined) put(parseEnvironmentFile(text), path);
  }
  put(program.environment, 'environment');
  put(own, 'temporal-systemd');

  const sorted = [...merged].sort(([a], [b]) => (a < b ? -1 : 1));
  return {
    file: sorted.map(([name, { value }]) => `${name}=${quote(value)}\n`).join(''),
    layers: Object.fromEntries(sorted.map(([name, { layer }]) => [name, layer])),
  };
}

/**
 * Reads the format of `EnvironmentFile=` (systemd.exec(5)): `NAME=value` lines, `#` and `;` comments, values plain, in
 * single quotes (taken as they are) or in double quotes (with `\` before `"`, `\`, `$` and the backtick); a quoted value
 * may run over lines, `\` at a line's end joins two. Lines without a valid name are skipped, as systemd does.
 */
export function parseEnvironmentFile(text: string): Record<string, string> {
  const variables: Record<string, string> = {};
  const entry = /[ \t]*(?:[#;][^\r\n]*|([A-Za-z_][A-Za-z0-9_]*)[ \t]*=|[^\r\n]*)/y;
  let at = 0;
  while (at < text.length) {
    entry.lastIndex = at;
    const match = entry.exec(text);
    at = match ? entry.lastIndex : at + 1;
    if (match?.[1] !== undefined) {
      const [value, end] = parseValue(text, at);
      variables[match[1]] = value;
      at = end;
    }
    if (text[at] === '\r' || text[at] === '\n') at++;
  }
  return variables;
}

/** As systemd 252 reads a value (env-file.c): quotes mean something until the first plain character, and are plain after it. */
function parseValue(text: string, start: number): [value: string, end: number] {
  let at = start;
  let value = '';
  let plain = false;
  let kept = 0; // what is quoted or escaped is kept when trailing white space goes
  for (; at < text.length && !'\r\n'.includes(text[at]!); at++) {
    const c = text[at]!;
    if (c === '\\') {
      at++;
      if (at < text.length && text[at] !== '\n') value += text[at];
      plain = true;
      kept = value.length;
    } else if (plain) value += c;
    else if (c === "'" || c === '"') {
      for (at++; at < text.length && text[at] !== c; at++) {
        if (c === '"' && text[at] === '\\' && at + 1 < text.length) {
          at++;
          if (text[at] !== '\n') value += '"\\`$'.includes(text[at]!) ? text[at]! : `\\${text[at]!}`;
        } else value += text[at];
      }
      kept = value.length;
    } else if (c !== ' ' && c !== '\t') {
      plain = true;
      value += c;
    }
  }
  return [value.slice(0, kept) + value.slice(kept).trimEnd(), at];
}

/** In double quotes, with the four characters escaped that the reader unescapes; a line break stands as it is. */
function quote(value: string): string {
  return `"${value.replace(/["\\`$]/g, (c) => `\\${c}`)}"`;
}
