import { execFileSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { exitReport, readExitRecord } from '../../src/host/exit-record';

describe('an exit record', () => {
  let folder: string;
  let path: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'exit-record-'));
    path = join(folder, 'record');
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('is what systemd told the script', async () => {
    await writeFile(path, '{"result":"exit-code","code":"exited","status":"3"}\n');
    expect(await readExitRecord(path)).toEqual({ result: 'exit-code', code: 'exited', status: '3' });
  });

  it.each<[string, () => Promise<unknown>]>([
    ['that is not there', async () => undefined],
    [
      'that is a link to something readable',
      async () => {
        await writeFile(join(folder, 'secret'), '{"result":"a","code":"exited","status":"0"}');
        await symlink(join(folder, 'secret'), path);
      },
    ],
    ['that is a pipe nobody writes to', async () => execFileSync('mkfifo', [path])],
    ['that is a directory', async () => mkdir(path)],
    ['that is a device', async () => symlink('/dev/zero', path)],
    ['that is not JSON', async () => writeFile(path, 'result=success')],
    ['that is no object', async () => writeFile(path, '3')],
    ['that is null', async () => writeFile(path, 'null')],
    ['that is too long', async () => writeFile(path, JSON.stringify({ result: 'a', pad: 'x'.repeat(4096) }))],
  ])('%s says nothing (G8)', async (_what, make) => {
    await make();
    expect(await readExitRecord(path)).toBeUndefined();
  });

  it.each<[string, unknown]>([
    ['control characters', '\u001b[2J'],
    ['too many of them', 'a'.repeat(33)],
    ['a line break', 'a\nb'],
    ['another type', { toString: 'x' }],
    ['nothing', undefined],
  ])('with %s in a token has a question mark there (G8)', async (_what, value) => {
    await writeFile(path, JSON.stringify({ result: value, code: 'exited', status: '0' }));
    expect(await readExitRecord(path)).toEqual({ result: '?', code: 'exited', status: '0' });
  });

  it('of any content makes bounded, printable words (G8)', async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(fc.json(), fc.string({ unit: 'binary' })), async (text) => {
        await writeFile(path, text);
        const { wording } = exitReport({ record: await readExitRecord(path), leaseOver: false, rebooted: false });
        expect(wording).toMatch(/^[ -~]{1,100}$/);
      }),
      { numRuns: 200 },
    );
  });
});

describe('the wording of an end', () => {
  const record = { result: 'success', code: 'exited', status: '0' };
  const none = { leaseOver: false, rebooted: false };

  it.each([
    [{ ...none, unit: { Result: 'success', ExecMainCode: 1, ExecMainStatus: 0 } }, 'exit 0', 'unit'],
    [{ ...none, unit: { Result: 'exit-code', ExecMainCode: 1, ExecMainStatus: 3 } }, 'exit 3 (exit-code)', 'unit'],
    [{ ...none, unit: { Result: 'signal', ExecMainCode: 2, ExecMainStatus: 9 } }, 'signal 9', 'unit'],
    [{ ...none, unit: { Result: 'core-dump', ExecMainCode: 3, ExecMainStatus: 11 } }, 'signal 11', 'unit'],
    [
      { ...none, unit: { ExecMainCode: 1, ExecMainStatus: 3, Result: 'exit-code' }, record },
      'exit 3 (exit-code)',
      'unit',
    ],
    [{ ...none, record }, 'exit 0', 'exit record'],
    [{ ...none, record: { result: 'signal', code: 'killed', status: 'KILL' } }, 'signal 9', 'exit record'],
    [{ ...none, record: { result: 'signal', code: 'killed', status: '34' } }, 'signal 34', 'exit record'],
    [{ ...none, record: { result: '?', code: '?', status: '0' } }, 'unknown: unreadable exit record', 'exit record'],
    [
      { ...none, record: { result: 'x', code: 'exited', status: 'many' } },
      'unknown: unreadable exit record',
      'exit record',
    ],
    [{ ...none, leaseOver: true, record }, 'unowned', 'lease'],
    [{ ...none, unit: { Result: 'start-limit-hit' }, record }, 'unknown: restarted outside', 'unit'],
    [{ ...none, rebooted: true, record }, 'unknown: host restarted', 'boot'],
    [none, 'unknown: no exit record', 'none'],
  ])('of %j is "%s" (G8)', (facts, wording, source) => {
    expect(exitReport(facts)).toMatchObject({ wording, source });
  });

  it('is never a success that nobody has seen (G8)', () => {
    for (const status of ['', '?', '0x0', '1e0', ' ']) {
      expect(exitReport({ ...none, record: { result: 'success', code: 'exited', status } }).wording).not.toBe('exit 0');
    }
  });
});
