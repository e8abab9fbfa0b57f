import { readFile, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * One read of a cgroup's `populated` flag, which covers all descendants (kernel, cgroup-v2.rst). ENOENT (of the directory)
 * and ENODEV (held file) both mean that it is gone; every other error means that nothing is known (G4).
 */
export type CgroupReading =
  | { readonly kind: 'gone'; readonly error: 'ENOENT' | 'ENODEV' }
  | { readonly kind: 'empty' | 'populated' }
  | { readonly kind: 'unknown'; readonly error: string };

/** Reads `cgroup.events` of a cgroup directory. Never rejects: an error is a reading. */
export async function readPopulated(directory: string): Promise<CgroupReading> {
  let text: string;
  try {
    text = await readFile(join(directory, 'cgroup.events'), 'utf8');
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENODEV') return { kind: 'gone', error: code };
    // The file alone may be missing: cgroup v1 has none, and its directory may be full of processes.
    if (code === 'ENOENT' && (await isGone(directory))) return { kind: 'gone', error: code };
    return { kind: 'unknown', error: `${code ?? String(error)} at ${directory}/cgroup.events` };
  }
  const populated = /^populated ([01])$/m.exec(text)?.[1];
  if (populated === undefined) return { kind: 'unknown', error: `no "populated" line in ${directory}/cgroup.events` };
  return { kind: populated === '1' ? 'populated' : 'empty' };
}

/**
 * Whether a cgroup is frozen (kernel, cgroup-v2.rst, `cgroup.events`), by itself or by one above it. For words alone: what
 * can't be read counts as not frozen. What a proof rests on is {@link readPopulated}.
 */
export async function isFrozen(directory: string): Promise<boolean> {
  return /^frozen 1$/m.test(await readFile(join(directory, 'cgroup.events'), 'utf8').catch(() => ''));
}

async function isGone(directory: string): Promise<boolean> {
  try {
    await stat(directory);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT';
  }
}

/** The inode of a cgroup directory, as systemd tells it in `ControlGroupId`: a decimal string, for it has 64 bits. */
export async function cgroupIdOf(directory: string): Promise<string> {
  return (await stat(directory, { bigint: true })).ino.toString();
}

/**
 * Sends SIGKILL to everything below a cgroup at once, forks included (`cgroup.kill`, kernel 5.14). Resolves to false
 * when the directory is gone; rejects with the error of the write otherwise.
 */
export async function killCgroup(directory: string): Promise<boolean> {
  try {
    await writeFile(join(directory, 'cgroup.kill'), '1', { flag: 'r+' });
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENODEV') return false;
    // ENOENT is either: no such cgroup, or a kernel before 5.14. Only the first one is an answer.
    if (code === 'ENOENT' && (await readPopulated(directory)).kind === 'gone') return false;
    throw error;
  }
}

/** Process ids in a cgroup and all below it, in the reader's pid namespace. What is gone meanwhile is left out. */
export async function pidsIn(directory: string): Promise<readonly number[]> {
  const own = await readFile(join(directory, 'cgroup.procs'), 'utf8').catch(ignoreGone('')); // threaded: EOPNOTSUPP throws
  const entries = await readdir(directory, { withFileTypes: true }).catch(ignoreGone([]));
  const below = await Promise.all(entries.filter((e) => e.isDirectory()).map((e) => pidsIn(join(directory, e.name))));
  // A process of a namespace that the reader can't see reads as 0.
  return [
    ...own
      .split('\n')
      .map(Number)
      .filter((pid) => pid > 0),
    ...below.flat(),
  ];
}

/** Path of the cgroup2 mount: from the mount table of the host whose root directory is `root`. */
export async function findCgroupRoot(root: string): Promise<string> {
  // From outside, the host's /proc has no "self" for this process; its PID 1 sees the host's own mounts.
  const table = join(root, root === '/' ? 'proc/self/mountinfo' : 'proc/1/mountinfo');
  const fields = (await readFile(table, 'utf8')).split('\n').map((line) => line.split(' '));
  // mountinfo (proc(5)): field 5 is the mount point; the file system type follows the lone "-".
  const mount = fields.find((f) => f[f.indexOf('-') + 1] === 'cgroup2')?.[4];
  if (mount === undefined) {
    throw new Error(`no cgroup2 file system in ${table}: mount one, or name its mount point as systemd.cgroupRoot`);
  }
  return mount;
}

function ignoreGone<T>(fallback: T): (error: NodeJS.ErrnoException) => T {
  return (error) => {
    if (error.code === 'ENOENT' || error.code === 'ENODEV') return fallback;
    throw error;
  };
}
