import { execFileSync } from 'node:child_process';
import promises, {
  chmod,
  chown,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import {
  newCredential,
  readControlRecord,
  readCredential,
  writeControlRecord,
  writeCredential,
  type ControlRecord,
} from '../../src/host/control-record';

const record: ControlRecord = {
  version: 1,
  endpoint: { host: '127.0.0.1', port: 4000 },
  unit: 'own-db_2fx-g1700000000000.service',
  invocation: '0123456789abcdef'.repeat(2),
  bootId: '01234567-89ab-cdef-0123-456789abcdef',
  home: '/srv/home',
  capabilities: ['files', 'shell:2'],
  credentialFile: '/run/own/g1/credential',
};

const asRoot = process.geteuid!() === 0 ? it : it.skip;

let folder: string;
let path: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'control-record-'));
  path = join(folder, 'control.json');
});
afterEach(async () => {
  jest.restoreAllMocks();
  await rm(folder, { recursive: true });
});

/** Ways in which a file is there and proves nothing; `text` is what would be accepted otherwise. */
const unreadable: [string, (text: string) => Promise<unknown>, detail: string][] = [
  [
    'a link to what is readable',
    async (text) => {
      await writeFile(join(folder, 'real'), text, { mode: 0o600 });
      await symlink(join(folder, 'real'), path);
    },
    'a link',
  ],
  ['a link to nothing', () => symlink(join(folder, 'none'), path), 'a link'],
  ['a pipe that nobody writes to', async () => execFileSync('mkfifo', [path]), 'no regular file'],
  ['a directory', () => mkdir(path), 'no regular file'],
  [
    'what its group may write to',
    async (text) => {
      await writeFile(path, text);
      await chmod(path, 0o620);
    },
    'others than its owner may write to it',
  ],
  [
    'what everybody may write to',
    async (text) => {
      await writeFile(path, text);
      await chmod(path, 0o602);
    },
    'others than its owner may write to it',
  ],
  ['below what is no directory', async () => void (path = '/dev/null/control.json'), "can't be read (ENOTDIR)"],
];

describe('the record of a control server', () => {
  const read = (): ReturnType<typeof readControlRecord> => readControlRecord(path, { timeoutMs: 20_000, retries: 1 });

  it.each<[string, ControlRecord]>([
    ['a port', record],
    ['an IPv6 port', { ...record, endpoint: { host: '::1', port: 65_535 } }],
    ['a socket', { ...record, endpoint: { socket: '/run/own/g1/control' }, capabilities: [] }],
  ])('with %s is found as it was written, for its owner alone (G9)', async (_what, written) => {
    await writeControlRecord(path, written);
    expect(await read()).toEqual({ kind: 'found', record: written });
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await readdir(folder)).toEqual(['control.json']);
  });

  it('replaces the former one whole (G5)', async () => {
    await writeControlRecord(path, record);
    await writeControlRecord(path, { ...record, home: '/srv/other' });
    expect(await read()).toMatchObject({ kind: 'found', record: { home: '/srv/other' } });
  });

  it('that could not be read back is not written, and the former one stands (G5)', async () => {
    await writeControlRecord(path, record);
    const flawed: ControlRecord[] = [
      { ...record, endpoint: { host: '0.0.0.0', port: 80 } },
      { ...record, capabilities: ['a b'] },
      { ...record, home: `/${'\u0001'.repeat(4_000)}` },
    ];
    for (const one of flawed) await expect(writeControlRecord(path, one)).rejects.toThrow(TypeError);
    expect(await read()).toEqual({ kind: 'found', record });
  });

  it('that is not there is missing, and that is asked once (G4)', async () => {
    const opening = jest.spyOn(promises, 'open');
    expect(await readControlRecord(path, { timeoutMs: 20_000, retries: 5 })).toEqual({
      kind: 'missing',
      detail: 'no such file',
    });
    expect(opening).toHaveBeenCalledTimes(1);
  });

  it.each<[string, unknown]>([
    ['of a newer version', { version: 2 }],
    ['without a version', { version: undefined }],
    ['without an endpoint', { endpoint: undefined }],
    ['with port 0', { endpoint: { host: '127.0.0.1', port: 0 } }],
    ['with port 99999', { endpoint: { host: '127.0.0.1', port: 99_999 } }],
    ['with half a port', { endpoint: { host: '127.0.0.1', port: 1.5 } }],
    ['with a port as text', { endpoint: { host: '127.0.0.1', port: '80' } }],
    ['with every address', { endpoint: { host: '0.0.0.0', port: 80 } }],
    ['with an address elsewhere', { endpoint: { host: '192.0.2.1', port: 80 } }],
    ['with a name', { endpoint: { host: 'localhost', port: 80 } }],
    ['with what only begins like loopback', { endpoint: { host: '127.0.0.1.example.org', port: 80 } }],
    ['with a relative socket', { endpoint: { socket: 'control' } }],
    ['with a socket and a port', { endpoint: { socket: '/s', host: '127.0.0.1', port: 80 } }],
    ['with a list for an endpoint', { endpoint: ['/s'] }],
    ['with a relative home', { home: 'srv' }],
    ['with a home that is too long', { home: `/${'h'.repeat(4_096)}` }],
    ['with a zero byte in its home', { home: '/srv\0' }],
    ['with capabilities that are no tokens', { capabilities: ['a b'] }],
    ['with too many capabilities', { capabilities: Array.from({ length: 65 }, (_, n) => `c${n}`) }],
    ['with capabilities that are no list', { capabilities: { length: 0 } }],
    ['with no unit', { unit: '' }],
    ['with a path for a unit', { unit: '../x.service' }],
    ['without an invocation', { invocation: '' }],
    ['without a boot id', { bootId: 'yes' }],
    ['with a relative credential file', { credentialFile: 'credential' }],
  ])('%s is malformed, and says so in our own words (G4, G8)', async (_what, part) => {
    await writeFile(path, JSON.stringify({ ...record, ...(part as object) }), { mode: 0o600 });
    const reading = await read();
    expect(reading.kind).toBe('malformed');
    expect(reading).toMatchObject({ detail: expect.stringMatching(/^[A-Za-z ,]{1,200}$/) });
  });

  it.each([
    ['empty', ''],
    ['no JSON', 'sesame'],
    ['null', 'null'],
    ['a list', '[]'],
    ['1 MB long', JSON.stringify({ ...record, pad: 'x'.repeat(1_000_000) })],
    ['1 MB long and all white at its end', JSON.stringify(record).padEnd(1_000_000)],
  ])('that is %s is malformed, and that is asked once (G4)', async (_what, text) => {
    await writeFile(path, text, { mode: 0o600 });
    const opening = jest.spyOn(promises, 'open');
    const reading = await read();
    expect(reading.kind).toBe('malformed');
    expect(JSON.stringify(reading)).not.toContain('sesame');
    expect(opening).toHaveBeenCalledTimes(1);
  });

  it('cut off at any byte is never found (G4)', async () => {
    const whole = Buffer.from(JSON.stringify(record));
    for (let length = 0; length < whole.length; length++) {
      await writeFile(path, whole.subarray(0, length), { mode: 0o600 });
      expect((await read()).kind).toBe('malformed');
    }
  });

  it('of any content is found only as a whole record of loopback and absolute paths (G8)', async () => {
    const part = fc.dictionary(fc.constantFrom(...Object.keys(record)), fc.jsonValue(), { maxKeys: 2 });
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.json(), part), async (content) => {
        const text = typeof content === 'string' ? content : JSON.stringify({ ...record, ...content });
        await writeFile(path, text, { mode: 0o600 });
        const reading = await read();
        if (reading.kind !== 'found') return expect(reading).toMatchObject({ kind: 'malformed' });
        const { endpoint, home } = reading.record;
        expect(Object.keys(reading.record).sort()).toEqual(Object.keys(record).sort());
        expect('socket' in endpoint ? endpoint.socket : `/${endpoint.host}`).toMatch(/^\//);
        expect(home).toMatch(/^\//);
      }),
    );
  });

  it.each(unreadable)('that is %s is unreadable, which is not missing (G4)', async (_what, make, detail) => {
    await make(JSON.stringify(record));
    expect(await read()).toEqual({ kind: 'unreadable', detail });
  });

  asRoot('of another user is unreadable, whatever it says (G6)', async () => {
    await writeControlRecord(path, record);
    await chown(path, 65_534, 0);
    expect(await read()).toEqual({ kind: 'unreadable', detail: 'belongs to uid 65534, not to us' });
  });

  it.each(['EACCES', 'EIO'])('is unreadable after %s on the last try as well (G4)', async (code) => {
    const opening = jest.spyOn(promises, 'open').mockRejectedValue(Object.assign(new Error('sesame'), { code }));
    expect(await readControlRecord(path, { timeoutMs: 20_000, retries: 2 })).toEqual({
      kind: 'unreadable',
      detail: `can't be read (${code})`,
    });
    expect(opening).toHaveBeenCalledTimes(3);
  });

  it('is found once a further try gets through (G4)', async () => {
    await writeControlRecord(path, record);
    jest.spyOn(promises, 'open').mockRejectedValueOnce(Object.assign(new Error(), { code: 'EIO' }));
    expect(await read()).toEqual({ kind: 'found', record });
  });

  it('is unreadable where reading hangs, and that takes one thread and not one for each try (G4)', async () => {
    const opening = jest.spyOn(promises, 'open').mockReturnValue(new Promise(() => undefined));
    expect(await readControlRecord(path, { timeoutMs: 5, retries: 3 })).toEqual({
      kind: 'unreadable',
      detail: 'not read in 4 tries of 5 ms',
    });
    expect(opening).toHaveBeenCalledTimes(1);
  });
});

describe('a credential', () => {
  const credential = newCredential();

  it('is new each time and has the form of the protocol (G6)', () => {
    expect(newCredential()).not.toBe(credential);
    expect(credential).toMatch(/^[A-Za-z0-9_-]{43}$/);
  });

  it('is found as it was written, for its owner alone (G9)', async () => {
    await writeCredential(path, credential);
    expect(await readCredential(path)).toEqual({ kind: 'found', credential });
    expect(await readFile(path, 'latin1')).toBe(credential);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('of another form is not written, and not shown (G9)', async () => {
    await expect(writeCredential(path, `${credential}!`)).rejects.toThrow(/^(?!.*!).*base64url/);
    expect(await readdir(folder)).toEqual([]);
  });

  it('that is not there is missing (G4)', async () => {
    expect(await readCredential(path)).toEqual({ kind: 'missing', detail: 'no such file' });
  });

  it.each([
    ['empty', ''],
    ['cut off', credential.slice(0, -1)],
    ['too long', `${credential}a`],
    ['with a line break', `${credential}\n`],
    ['with other characters', `${credential.slice(1)}+`],
    ['1 MB long', 'a'.repeat(1_000_000)],
  ])('that is %s is malformed, and not shown (G9)', async (_what, text) => {
    await writeFile(path, text, { mode: 0o600 });
    const reading = await readCredential(path);
    expect(reading).toMatchObject({ kind: 'malformed', detail: expect.stringMatching(/^[a-z0-9 ]{1,40}$/) });
  });

  it.each(unreadable)('that is %s is unreadable (G6)', async (_what, make, detail) => {
    await make(credential);
    expect(await readCredential(path)).toEqual({ kind: 'unreadable', detail });
  });
});
