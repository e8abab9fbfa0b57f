import { readFileSync } from 'node:fs';
import { isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, visit } from 'yaml';
import type { Document, Node, Pair, YAMLError } from 'yaml';
import { ConfigError, DOCUMENT, pathText } from './config-error';
import type { ConfigProblem } from './config-error';

/** A YAML file as data, together with where in the file each piece of it stands. */
export interface ConfigDocument {
  readonly data: unknown;
  /** What is wrong with the YAML although its data can be read: a key that is there twice. */
  readonly problems: readonly ConfigProblem[];
  /** Position of a key path, or of the nearest thing around it that is in the file. */
  locate(path: readonly PropertyKey[]): Position;
}

/** Both count from 1; empty for an empty file. */
export interface Position {
  readonly line?: number;
  readonly column?: number;
}

/** The text of a configuration file. Throws {@link ConfigError} when there is none. */
export function readConfigFile(file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(file));
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const [message, remedy] =
      code === 'ENOENT'
        ? ['does not exist', 'name the file, or start in the folder that holds temporal.yaml']
        : code === 'ERR_ENCODING_INVALID_ENCODED_DATA'
          ? ['is not UTF-8 text', 'save the file as UTF-8']
          : [`can't be read (${code ?? 'unknown error'})`, 'name a file that this user may read'];
    throw new ConfigError([{ file, path: DOCUMENT, value: JSON.stringify(file), message, remedy }]);
  }
}

/** Reads YAML 1.2. Throws {@link ConfigError} when it is none. */
export function readDocument(text: string, file: string): ConfigDocument {
  const lines = new LineCounter();
  // Pretty errors quote the line, which may hold a secret (G9).
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    stringKeys: true,
    logLevel: 'error',
  });
  const position = (offset: number): Position => {
    const { line, col } = lines.linePos(offset);
    return { line, column: col };
  };
  const errors = [...document.errors, ...document.warnings];
  const problems = errors.map((error): ConfigProblem => {
    const [offset] = error.pos;
    const twice = error.code === 'DUPLICATE_KEY';
    // Where the YAML is broken, what looks like a key may be anything, a secret too: line and column have to do.
    const path = twice ? pathText(pathAt(document, offset)) : DOCUMENT;
    return { file, path, value: twice ? 'a key' : 'YAML', ...explain(error), ...position(offset) };
  });
  if (errors.some(({ code }) => code !== 'DUPLICATE_KEY')) throw new ConfigError(problems);
  visit(document, {
    Pair(_key, pair: Pair) {
      if (!isScalar(pair.key) || pair.key.value !== '__proto__') return;
      const offset = pair.key.range?.[0] ?? 0;
      const path = pathText(pathAt(document, offset));
      const message = 'is a name that JavaScript keeps for itself';
      problems.push({ file, path, value: 'a key', message, remedy: 'choose another name', ...position(offset) });
    },
  });
  return {
    data: toData(document, file),
    problems,
    locate: (path) => {
      const offset = offsetOf(document, path);
      return offset === undefined ? {} : position(offset);
    },
  };
}

/** Aliases are resolved here; how much one file may grow by them is limited by the library. */
function toData(document: Document, file: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 100 });
  } catch {
    const message = 'has an alias without an anchor before it, or too many aliases';
    throw new ConfigError([{ file, path: DOCUMENT, value: 'YAML', message, remedy: 'write the values out' }]);
  }
}

/** In words of our own wherever the library's message quotes the file. */
function explain({ code, message }: YAMLError): { message: string; remedy: string } {
  switch (code) {
    case 'DUPLICATE_KEY':
      return { message: 'is there twice', remedy: 'keep one of the two' };
    case 'MULTIPLE_DOCS':
      return { message: 'is followed by a second document', remedy: 'remove the line "---" and what follows' };
    case 'TAG_RESOLVE_FAILED':
    case 'BAD_COLLECTION_TYPE':
      return { message: 'has a tag (!name) that means nothing here', remedy: 'remove the tag, or quote the text' };
    case 'NON_STRING_KEY':
      return { message: 'has a key that is no text', remedy: 'write keys as plain words' };
    case 'BAD_ALIAS':
    case 'BAD_DIRECTIVE':
    case 'BAD_DQ_ESCAPE':
    case 'BAD_PROP_ORDER':
    case 'BAD_SCALAR_START':
    case 'IMPOSSIBLE':
    case 'RESOURCE_EXHAUSTION':
    case 'UNEXPECTED_TOKEN':
      return {
        message: `is not valid YAML (${code})`,
        remedy: 'look at the indentation, the quotes and special characters',
      };
    default:
      return { message: `is not valid YAML: ${message}`, remedy: 'look at this line and the one before it' };
  }
}

/** The key path that an offset of the text lies in. */
function pathAt(document: Document, offset: number): readonly PropertyKey[] {
  const within = (node: unknown): boolean => {
    const range = (node as Node | null)?.range;
    return !!range && range[0] <= offset && offset <= range[1];
  };
  const path: PropertyKey[] = [];
  for (let node: unknown = document.contents; ;) {
    if (isMap(node)) {
      const pair: Pair | undefined = node.items.find(({ key, value }) => within(key) || within(value));
      if (!pair || !isScalar(pair.key)) return path;
      path.push(String(pair.key.value));
      node = pair.value;
    } else if (isSeq(node)) {
      const index: number = node.items.findIndex(within);
      if (index < 0) return path;
      path.push(index);
      node = node.items[index];
    } else return path;
  }
}

/** Where a key path stands: a key's own offset, or the offset of a list's item. */
function offsetOf(document: Document, path: readonly PropertyKey[]): number | undefined {
  let node: unknown = document.contents;
  let offset = document.contents?.range?.[0];
  for (const key of path) {
    if (isAlias(node)) node = node.resolve(document);
    let at: unknown;
    if (isMap(node)) {
      const pair: Pair | undefined = node.items.find((item) => isScalar(item.key) && item.key.value === key);
      [at, node] = [pair?.key, pair?.value];
    } else if (isSeq(node)) {
      at = node = node.items[Number(key)];
    }
    const range = (at as Node | null | undefined)?.range;
    if (!range) return offset;
    offset = range[0];
  }
  return offset;
}
