import { randomBytes } from 'node:crypto';
import { capabilitiesOf, endpointOf, matching, parseObject, pathOf } from '../control-server/form';
import { CREDENTIAL, type Endpoint } from '../control-server/protocol';
import { readBounded, writeFileDurably } from './files';

/** Where the control server of a generation is and what it must be to be adopted. Never the credential (G9). */
export interface ControlRecord {
  readonly version: 1;
  readonly endpoint: Endpoint;
  readonly unit: string;
  /** As systemd and the process have it, 32 hex digits. */
  readonly invocation: string;
  /** The host's boot id when it was written. */
  readonly bootId: string;
  /** The directory that the server works in. */
  readonly home: string;
  readonly capabilities: readonly string[];
  /** Path of the file that holds the credential. */
  readonly credentialFile: string;
}

/**
 * Why a file says nothing. Only `missing` means that it isn't there: the others prove nothing about a server (G4).
 *
 * - `missing`: no such file.
 * - `unreadable`: not read in time, an error, no regular file of our own user, or one that others can write to.
 * - `malformed`: read, and not what it has to be.
 */
export interface Unread {
  readonly kind: 'missing' | 'unreadable' | 'malformed';
  /** For people: our own words, at most 200 characters, nothing of the file's content (G8). */
  readonly detail: string;
}

export interface ReadOptions {
  /** How long one try may take, in ms. Default 2 seconds. */
  readonly timeoutMs?: number;
  /** How many more tries there are for what is unreadable. Default 2. */
  readonly retries?: number;
}

/** A record longer than this is not read. */
const MAX_RECORD_BYTES = 16_384;
/** Enough to see that a credential is too long. */
const MAX_CREDENTIAL_BYTES = 256;

/**
 * Writes the record whole and durably, for its owner alone. Rejects with TypeError for a record that
 * {@link readControlRecord} would not accept, and with the error of the file system.
 */
export async function writeControlRecord(path: string, record: ControlRecord): Promise<void> {
  const text = JSON.stringify(record);
  const flaw = Buffer.byteLength(text) > MAX_RECORD_BYTES ? 'too long' : parseRecord(text);
  if (typeof flaw === 'string') throw new TypeError(`control record of ${record.unit}: ${flaw}`);
  await writeFileDurably(path, text);
}

/** Reads a record. What is missing or malformed is answered at once, what is unreadable after the last try. */
export async function readControlRecord(
  path: string,
  options: ReadOptions = {},
): Promise<{ readonly kind: 'found'; readonly record: ControlRecord } | Unread> {
  const file = await readOwnFile(path, MAX_RECORD_BYTES, options);
  if (file.kind !== 'found') return file;
  const record = parseRecord(file.text);
  return typeof record === 'string' ? { kind: 'malformed', detail: record } : { kind: 'found', record };
}

/** A credential that nobody can guess: 32 random bytes in base64url. */
export function newCredential(): string {
  return randomBytes(32).toString('base64url');
}

/** Writes a credential whole and durably, for its owner alone. Rejects with TypeError where it is none. */
export async function writeCredential(path: string, credential: string): Promise<void> {
  if (!CREDENTIAL.test(credential))
    throw new TypeError('a credential is 32 bytes in base64url; make one with newCredential()');
  await writeFileDurably(path, credential);
}

/** Reads a credential with the same care as a record. */
export async function readCredential(
  path: string,
  options: ReadOptions = {},
): Promise<{ readonly kind: 'found'; readonly credential: string } | Unread> {
  const file = await readOwnFile(path, MAX_CREDENTIAL_BYTES, options);
  if (file.kind !== 'found') return file;
  return CREDENTIAL.test(file.text)
    ? { kind: 'found', credential: file.text }
    : { kind: 'malformed', detail: 'not a credential' };
}

type OwnFile = { readonly kind: 'found'; readonly text: string } | Unread;

async function readOwnFile(path: string, maxBytes: number, options: ReadOptions): Promise<OwnFile> {
  const { timeoutMs = 2_000, retries = 2 } = options;
  let reading: Promise<OwnFile> | undefined;
  for (let left = retries; ; left--) {
    // A read that hangs is waited for again and not begun again: each one occupies one of libuv's four threads.
    reading ??= tryToRead(path, maxBytes);
    const file = await within(timeoutMs, reading);
    if (file && file.kind !== 'unreadable') return file;
    if (left <= 0) return file ?? { kind: 'unreadable', detail: `not read in ${retries + 1} tries of ${timeoutMs} ms` };
    if (file) reading = undefined;
  }
}

async function tryToRead(path: string, maxBytes: number): Promise<OwnFile> {
  try {
    const { facts, text } = await readBounded(path, maxBytes);
    if (!facts.isFile()) return { kind: 'unreadable', detail: 'no regular file' };
    if (facts.uid !== process.geteuid!())
      return { kind: 'unreadable', detail: `belongs to uid ${facts.uid}, not to us` };
    if ((facts.mode & 0o022) !== 0) return { kind: 'unreadable', detail: 'others than its owner may write to it' };
    if (text === undefined) return { kind: 'malformed', detail: `longer than ${maxBytes} bytes` };
    return { kind: 'found', text };
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'no code';
    return code === 'ENOENT'
      ? { kind: 'missing', detail: 'no such file' }
      : { kind: 'unreadable', detail: code === 'ELOOP' ? 'a link' : `can't be read (${code})` };
  }
}

/** Undefined where it takes longer. */
async function within<T>(timeoutMs: number, promise: Promise<T>): Promise<T | undefined> {
  let timer: NodeJS.Timeout;
  const late = new Promise<undefined>((resolve) => (timer = setTimeout(() => resolve(undefined), timeoutMs)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

/** The record, or what is wrong with it. */
function parseRecord(text: string): ControlRecord | string {
  const fields = parseObject(text);
  if (!fields) return 'not a JSON object';
  if (fields.version !== 1) return 'of a version that this worker does not know';
  const endpoint = endpointOf(fields.endpoint);
  if (!endpoint) return 'endpoint is neither a loopback address with a port nor an absolute socket path';
  const unit = matching(/^[A-Za-z0-9:_.\\@-]{1,255}$/, fields.unit); // systemd.unit(5)
  if (unit === undefined) return 'unit is no name of a unit';
  const invocation = matching(/^[0-9a-f]{32}$/, fields.invocation);
  if (invocation === undefined) return 'invocation is no invocation id';
  const bootId = matching(/^[0-9a-f-]{32,36}$/, fields.bootId);
  if (bootId === undefined) return 'bootId is no boot id';
  const home = pathOf(fields.home);
  if (home === undefined) return 'home is no absolute path';
  const capabilities = capabilitiesOf(fields.capabilities);
  if (!capabilities) return 'capabilities are no list of tokens';
  const credentialFile = pathOf(fields.credentialFile);
  if (credentialFile === undefined) return 'credentialFile is no absolute path';
  return { version: 1, endpoint, unit, invocation, bootId, home, capabilities, credentialFile };
}
