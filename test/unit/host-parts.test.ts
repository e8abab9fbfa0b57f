import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { isLiving } from '../../src/host/condition';
import { parseEnvironmentFile } from '../../src/host/environment';
import { writeFileDurably, writeFileWhole } from '../../src/host/files';
import { ResourceFiles } from '../../src/host/generation-files';
import { ClaimedError, openInstance } from '../../src/host/instance';
import { bootBaseOf } from '../../src/host/lease';
import { Sparse } from '../../src/host/log';
import { Turns, Wakers } from '../../src/host/turns';
import { execCommand, isOwn, ownerMarks } from '../../src/host/unit';

const owner = { namespace: 'n', taskQueue: 'q', workflowId: 'own:x', ownerId: 'o' };

describe('parts of the host', () => {
  let folder: string;
  beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'host-parts-'))));
  afterEach(() => rm(folder, { recursive: true }));

  describe('files of a resource', () => {
    const files = (): ResourceFiles => new ResourceFiles(folder, '/run/x', 'own', 'a/b');

    it('close every generation up to one, and none above it (G5)', async () => {
      await files().close(1);
      for (const g of [2, 3, 4]) await (await files().make(g))!.open();
      await files().close(3);
      expect(await files().floor()).toBe(3);
      const open = (g: number): boolean => existsSync(join(folder, files().generation(g).openFile));
      expect([2, 3, 4].map(open)).toEqual([false, false, true]);
      await files().close(2);
      expect(await files().floor()).toBe(3); // never goes down
      expect(await ResourceFiles.list(folder, '/run/x', 'own')).toEqual(['a/b']);
      expect(await files().generations()).toEqual([2, 3, 4]);
    });

    it('are made once per generation (G5)', async () => {
      await files().close(1);
      expect(await files().make(2)).toBeDefined();
      expect(await files().make(2)).toBeUndefined();
    });

    it('raise the floor only, whoever else does at the same time (G5)', async () => {
      const generations = Array.from({ length: 40 }, (_, i) => ((i * 17) % 40) + 1);
      const seen: number[] = [];
      const closing = generations.map(async (generation) => {
        await files().close(generation);
        seen.push(generation);
        expect(await files().floor()).toBeGreaterThanOrEqual(Math.max(...seen));
      });
      await Promise.all(closing);
      expect(await files().floor()).toBe(40);
      await files().close(3); // one that comes when all is over
      expect(await files().floor()).toBe(40);
    });

    it.each(['x', '0', '-1', '1.5', '9007199254740993'])('do not take %j for a floor (G4)', async (name) => {
      await files().close(1);
      await writeFile(join(folder, files().inside, 'floor', name), '');
      await expect(files().floor()).rejects.toThrow('not a generation');
    });

    it('let go of everything but the end (G11)', async () => {
      await files().close(1);
      const generation = (await files().make(2))!;
      await generation.writeEnvironment('SECRET="x"\n');
      await generation.lease.write({ n: 1, oldest: 1, deadline: 2 });
      await (await files().make(3))!.lease.write({ n: 1, oldest: 1, deadline: 2 });
      await generation.recordEnd({ proof: {}, exit: {} } as never);
      await generation.letGo();
      expect(await readdir(generation.outside)).toEqual(['end.json']);
      expect(await files().generation(3).lease.read()).toBeDefined();
      await writeFile(join(generation.outside, 'end.json'), 'torn');
      await expect(generation.end.read()).rejects.toThrow('not JSON');
    });

    it('are written whole or not at all', async () => {
      const path = join(folder, 'file');
      await writeFileDurably(path, 'none');
      await writeFileWhole(path, 'one');
      await expect(writeFileWhole(join(folder, 'none/file'), 'x')).rejects.toMatchObject({ code: 'ENOENT' });
      await expect(writeFileDurably(path, 'two', true)).rejects.toMatchObject({ code: 'EEXIST' });
      await expect(writeFileDurably(join(folder, 'none/file'), 'x')).rejects.toMatchObject({ code: 'ENOENT' });
      expect(await readFile(path, 'utf8')).toBe('one');
      expect(await readdir(folder)).toEqual(['file']);
    });
  });

  describe('an instance', () => {
    const identity = { hostId: 'h', manager: 'system', namespace: 'n', taskQueue: 'q', unitPrefix: 'own' };
    const boot = async (id: string, machine = 'm'): Promise<void> => {
      await mkdir(join(folder, 'etc'), { recursive: true });
      await mkdir(join(folder, 'proc/sys/kernel/random'), { recursive: true });
      await writeFile(join(folder, 'etc/machine-id'), `${machine}\n`);
      await writeFile(join(folder, 'proc/sys/kernel/random/boot_id'), `${id}\n`);
    };
    const left: string[] = [];
    const open = (change = {}): ReturnType<typeof openInstance> =>
      openInstance('/state', folder, { ...identity, ...change }, { unitsOf: () => Promise.resolve(left) });

    it('stays over boots, and remembers them in order (G3)', async () => {
      await boot('b1');
      const { instance } = await open();
      await boot('b2');
      await open();
      expect(await open()).toMatchObject({ instance, machineId: 'm', bootIds: ['b1', 'b2'] });
    });

    it('changes its unit prefix only where nothing of the former is left (G3)', async () => {
      await boot('b1');
      await open({ unitPrefix: 'former' });
      left.push('former-a-g1.service');
      await expect(open()).rejects.toThrow(/was "former" .* former-a-g1.service\. Set it back to "former"/);
      left.pop();
      expect((await open()).unitPrefix).toBe('own');
    });

    it('is a new one on another machine and for another manager (G4)', async () => {
      await boot('b1');
      const first = await open();
      const user = await open({ manager: 'user:7' });
      await boot('b1', 'another');
      const copied = await open({ manager: 'user:7' });
      expect(new Set([first, user, copied].map(({ instance }) => instance)).size).toBe(3);
    });

    it('is not invented anew over a file that can’t be understood (G4)', async () => {
      await boot('b1');
      await open();
      const file = join(folder, 'state/instance.json');
      for (const text of ['', '{}', '{"instance":3,"bootIds":[]}']) {
        await writeFile(file, text);
        await expect(open()).rejects.toBeInstanceOf(ClaimedError);
        expect(await readFile(file, 'utf8')).toBe(text);
      }
    });
  });

  it('let one thing at a time happen per resource, in order, and keep nothing of what is over', async () => {
    const turns = new Turns();
    const seen: string[] = [];
    const run = (key: string, name: string): Promise<void> =>
      turns.take(key, async () => {
        seen.push(`${name} begins`);
        await new Promise((resolve) => setImmediate(resolve));
        seen.push(`${name} ends`);
        if (name === 'b') throw new Error('b failed');
      });
    const all = [run('x', 'a'), run('x', 'b'), run('x', 'c')];
    await turns.idle();
    expect((await Promise.allSettled(all)).map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(seen).toEqual(['a begins', 'a ends', 'b begins', 'b ends', 'c begins', 'c ends']);
    expect((turns as unknown as { last: Map<string, unknown> }).last.size).toBe(0);
  });

  it('wake whoever waits for a resource, and nobody else', async () => {
    const wakers = new Wakers();
    const woken = wakers.next('x', 60_000);
    wakers.wake('y');
    wakers.wake('x');
    await woken;
    await wakers.next('x', 1);
    expect((wakers as unknown as { waiting: Map<string, unknown> }).waiting.size).toBe(0);
  });

  it('say one thing at most once in its time', () => {
    let now = 0;
    const sparse = new Sparse(2000, () => now);
    expect([sparse.due('a'), sparse.due('a'), sparse.due('b')]).toEqual([true, false, true]);
    now = 1999;
    expect(sparse.due('a')).toBe(false);
    now = 2000;
    expect(sparse.due('a')).toBe(true);
  });

  it('know a unit as their own by its marks, an earlier owner’s too, and no stranger’s (G6)', () => {
    const LogExtraFields = ownerMarks('x', 3, { ...owner, ownerId: 'earlier' });
    expect(isOwn({ LogExtraFields }, 'x', 3, owner)).toBe(true);
    expect(isOwn({ LogExtraFields }, 'y', 3, owner)).toBe(false);
    expect(isOwn({ LogExtraFields }, 'x', 4, owner)).toBe(false);
    expect(isOwn({ LogExtraFields }, 'x', 3, { ...owner, namespace: 'another' })).toBe(false);
    expect(isOwn({ LogExtraFields }, 'x', 3, { ...owner, taskQueue: 'another' })).toBe(false);
    expect(isOwn({}, 'x', 3, owner)).toBe(false);
  });

  it('count a lease from the kernel’s start, and in a container from the manager’s', () => {
    const at = (virtualization: string): number =>
      bootBaseOf({ version: '252', virtualization, userspaceTimestampMonotonic: 5 });
    expect(['', 'kvm', 'amazon'].map(at)).toEqual([0, 0, 0]);
    expect(['docker', 'systemd-nspawn', 'container-other'].map(at)).toEqual([5, 5, 5]);
  });

  it('take for living what runs or is on its way there, and nothing else', () => {
    expect(isLiving({ ActiveState: 'active', SubState: 'running' })).toBe(true);
    expect(isLiving({ ActiveState: 'activating', SubState: 'start' })).toBe(true);
    expect(isLiving({ ActiveState: 'active', SubState: 'exited' })).toBe(false);
    expect(isLiving({ ActiveState: 'deactivating', SubState: 'stop' })).toBe(false);
    expect(isLiving({})).toBe(false);
  });

  it('double every dollar of a command, for systemd expands it (G10)', () => {
    expect(execCommand(['/bin/x', '$A', '$$', 'a$'])).toEqual(['/bin/x', ['/bin/x', '$$A', '$$$$', 'a$$'], false]);
  });

  it('read any environment file without end or error', () => {
    const piece = fc.constantFrom('A', 'B=', '=', '"', "'", '\\', '\n', '\r', ' ', '#', ';', '$', 'ż', 'x');
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        for (const name of Object.keys(parseEnvironmentFile(pieces.join('')))) expect(name).toMatch(/^[A-Za-z_]\w*$/);
      }),
      { numRuns: 2000 },
    );
  });
});
