import { constants, type Stats } from 'node:fs';
import { link, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Writes a file so that a reader finds the old content or the new one and never a part, also after a crash of this
 * process. Not after one of the machine: what speaks of one boot needs no more.
 */
export async function writeFileWhole(path: string, content: string, mode = 0o600): Promise<void> {
  await replaceFile(path, content, { mode });
}

/**
 * As {@link writeFileWhole}, and it outlives a crash of the machine: fsync of the file and of the directory. With `once`,
 * rejects with EEXIST where the file is there.
 */
export async function writeFileDurably(path: string, content: string, once = false): Promise<void> {
  await replaceFile(path, content, { mode: 0o600, sync: true, once });
  const directory = await open(dirname(path), 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

/**
 * Whether a file system takes no more: full, over its quota, or read-only (errno(3)). Nothing of what was to be written is
 * there, and it may be otherwise later.
 */
export function isUnwritable(error: unknown): error is NodeJS.ErrnoException {
  const { code } = Object(error) as NodeJS.ErrnoException;
  return code === 'ENOSPC' || code === 'EDQUOT' || code === 'EROFS';
}

/**
 * Makes a directory, and those above it that are missing. Rejects with what stands in the way: `recursive` of Node's own mkdir
 * says ENOENT where a full or read-only disk takes no directory.
 */
export async function makeDirectory(path: string, mode: number): Promise<void> {
  try {
    await mkdir(path, { mode });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
    await makeDirectory(dirname(path), mode);
    await makeDirectory(path, mode);
  }
}

interface Replacing {
  readonly mode: number;
  readonly sync?: boolean;
  readonly once?: boolean;
}

async function replaceFile(path: string, content: string, { mode, sync, once }: Replacing): Promise<void> {
  const temporary = `${path}.${process.pid}.${performance.now()}.tmp`;
  try {
    const file = await open(temporary, 'wx', mode);
    try {
      await file.writeFile(content);
      if (sync) await file.sync(); // not `flush` of writeFile, which Node before 20.10 silently does not know
    } finally {
      await file.close();
    }
    if (once) {
      await link(temporary, path); // which, unlike a rename, replaces nothing
      await rm(temporary);
    } else await rename(temporary, path);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

/** The names in a directory; undefined where there is no such directory. */
export async function entriesIfThere(path: string): Promise<readonly string[] | undefined> {
  try {
    return await readdir(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** A file's text, or undefined where there is none. Every other error is thrown: unreadable is not absent. */
export async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/**
 * Reads a file that others may have put there: without following a link at its end (ELOOP) and without ever waiting for
 * a pipe. `text` is there for a regular file of at most `maxBytes`; else `facts` tell why it isn't. Every error of the
 * file system is thrown.
 */
export async function readBounded(
  path: string,
  maxBytes: number,
): Promise<{ readonly facts: Stats; readonly text?: string }> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const facts = await file.stat();
    if (!facts.isFile() || facts.size > maxBytes) return { facts };
    const { buffer, bytesRead } = await file.read(Buffer.alloc(maxBytes), 0, maxBytes, 0);
    return { facts, text: buffer.toString('utf8', 0, bytesRead) };
  } finally {
    await file.close();
  }
}
