import { rm } from 'node:fs/promises';
import { readIfThere, writeFileWhole } from './files';
import { messageOf } from './log';

/** Why a record can't be used. */
export type RecordFlaw = 'malformed' | 'other-version' | 'other-subject';

/** A record is there and says nothing that may be believed. Its other errors are those of the file system. */
export class RecordError extends Error {
  override readonly name = 'RecordError';

  constructor(
    readonly flaw: RecordFlaw,
    message: string,
    options?: { readonly cause?: unknown },
  ) {
    super(message, options);
  }
}

/** One JSON file: an object. */
export class JsonRecord<T extends object> {
  /** `flawOf` says what is wrong with what was read; a text stands for `malformed`. */
  constructor(
    private readonly path: string,
    private readonly flawOf: (record: Partial<T>) => string | RecordError | undefined = () => undefined,
  ) {}

  async write(value: T): Promise<void> {
    await writeFileWhole(this.path, JSON.stringify(value));
  }

  /** Undefined where there is no file; rejects when it can't be read or understood. */
  async read(): Promise<T | undefined> {
    const text = await readIfThere(this.path).catch((cause: unknown) => {
      throw new Error(`${this.path} can't be read: ${messageOf(cause)}`, { cause }); // whose own message has no path
    });
    if (text === undefined) return undefined;
    let record: unknown;
    try {
      record = JSON.parse(text);
    } catch (cause) {
      throw new RecordError('malformed', `${this.path} is not JSON`, { cause });
    }
    const flaw = isObject(record) ? this.flawOf(record) : 'it is no object';
    if (flaw === undefined) return record as T;
    throw flaw instanceof RecordError ? flaw : new RecordError('malformed', `${this.path} can't be used: ${flaw}`);
  }

  async remove(): Promise<void> {
    await rm(this.path, { recursive: true, force: true }); // somebody may have made a directory of it
  }
}

/** Whether a value is what JSON calls an object. */
export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
