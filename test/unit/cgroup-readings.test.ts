import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cgroupIdOf, findCgroupRoot, killCgroup, pidsIn, readPopulated } from '../../src/cgroup/cgroup';
import { describeProcesses, MAX_DESCRIBED } from '../../src/cgroup/processes';

describe('a cgroup', () => {
  let folder: string;
  beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'cgroup-'))));
  afterEach(() => rm(folder, { recursive: true }));
  const events = (text: string): Promise<void> => writeFile(join(folder, 'cgroup.events'), text);

  it.each([
    ['populated 1\nfrozen 0\n', { kind: 'populated' }],
    ['frozen 0\npopulated 0\n', { kind: 'empty' }],
  ])('reads as its events say: %j', async (text, reading) => {
    await events(text);
    expect(await readPopulated(folder)).toEqual(reading);
  });

  it.each(['', 'populated', 'populated 2\n', 'populated 01\n', 'unpopulated 0\n', 'populated 0 1\n'])(
    'with %j in its events is unknown (G4)',
    async (text) => {
      await events(text);
      expect((await readPopulated(folder)).kind).toBe('unknown');
    },
  );

  it('is gone where there is none, and unknown where it can’t be read (G4)', async () => {
    expect(await readPopulated(join(folder, 'none'))).toEqual({ kind: 'gone', error: 'ENOENT' });
    await mkdir(join(folder, 'cgroup.events'));
    expect(await readPopulated(folder)).toEqual({ kind: 'unknown', error: expect.stringContaining('EISDIR') });
    await writeFile(join(folder, 'file'), '');
    expect((await readPopulated(join(folder, 'file'))).kind).toBe('unknown'); // ENOTDIR: not a cgroup tree at all
  });

  it('is known by its inode', async () => {
    expect(await cgroupIdOf(folder)).toBe(String((await stat(folder)).ino));
    await expect(cgroupIdOf(join(folder, 'none'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('lists its processes and those below, and none of a namespace that can’t be seen', async () => {
    await mkdir(join(folder, 'a/b'), { recursive: true });
    await writeFile(join(folder, 'cgroup.procs'), '1\n2\n0\n');
    await writeFile(join(folder, 'a/b/cgroup.procs'), '3\n');
    expect([...(await pidsIn(folder))].sort()).toEqual([1, 2, 3]);
    expect(await pidsIn(join(folder, 'none'))).toEqual([]);
  });

  it('is not killed where it is gone, and says so where it can’t be killed (G4)', async () => {
    expect(await killCgroup(join(folder, 'none'))).toBe(false);
    await events('populated 1\n'); // a kernel before 5.14 has no cgroup.kill
    await expect(killCgroup(folder)).rejects.toMatchObject({ code: 'ENOENT' });
    await writeFile(join(folder, 'cgroup.kill'), '');
    expect(await killCgroup(folder)).toBe(true);
    expect(await readFile(join(folder, 'cgroup.kill'), 'utf8')).toBe('1');
  });

  it('describes processes as proc tells them, at most twenty, and leaves out what has ended', async () => {
    await writeFile(join(folder, 'cgroup.procs'), `${process.pid}\n4194304\n`);
    const [own, ...others] = await describeProcesses(folder);
    expect(others).toEqual([]);
    expect(own).toMatchObject({ pid: process.pid, state: expect.stringMatching(/^[RSD]$/) });
    await writeFile(join(folder, 'cgroup.procs'), `${process.pid}\n`.repeat(MAX_DESCRIBED + 5));
    expect(await describeProcesses(folder)).toHaveLength(MAX_DESCRIBED);
  });

  it('root is found in the mount table of its host', async () => {
    await mkdir(join(folder, 'proc/1'), { recursive: true });
    const table = join(folder, 'proc/1/mountinfo');
    await writeFile(
      table,
      '22 1 0:5 / /proc rw - proc proc rw\n30 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n',
    );
    expect(await findCgroupRoot(folder)).toBe('/sys/fs/cgroup/unified');
    await writeFile(table, '22 1 0:5 / /proc rw - proc proc rw\n');
    await expect(findCgroupRoot(folder)).rejects.toThrow('systemd.cgroupRoot');
  });
});
