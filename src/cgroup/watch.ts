import { watch, type FSWatcher } from 'node:fs';
import { join } from 'node:path';

/**
 * Wakes listeners when a cgroup below one parent directory may have become empty or gone. A hint, never evidence:
 * read again.
 *
 * Two kinds of watch, because the kernel sends nothing on a watched file when its directory is removed: the parent's
 * watch gets that, by name. One watch of the parent serves all, for a thousand would each be woken by every removal.
 * Arm first and read afterwards: what happens in between wakes nobody.
 */
export class CgroupWatcher {
  private readonly wakers = new Map<string, () => void>();
  private readonly files = new Map<string, FSWatcher>();
  private parent: FSWatcher | undefined;

  constructor(private readonly directory: string) {}

  /** Arms the watch of `<directory>/<name>`, again where it was armed before. */
  add(name: string, wake: () => void): void {
    this.remove(name);
    this.wakers.set(name, wake);
    this.parent ??= arm(
      this.directory,
      (file) => {
        if (file !== null) this.wakers.get(file)?.();
      },
      () => (this.parent = undefined),
    );
    const file = arm(
      join(this.directory, name, 'cgroup.events'),
      () => wake(),
      () => this.files.delete(name),
    );
    if (file) this.files.set(name, file);
  }

  remove(name: string): void {
    this.wakers.delete(name);
    this.files.get(name)?.close();
    this.files.delete(name);
  }

  close(): void {
    for (const name of [...this.wakers.keys()]) this.remove(name);
    this.parent?.close();
    this.parent = undefined;
  }
}

function arm(path: string, wake: (file: string | null) => void, lost: () => void): FSWatcher | undefined {
  try {
    const watcher = watch(path, { persistent: false }, (_event, file) => wake(file));
    // An error (the directory went away, the inotify limit was hit) ends this watch alone: the resync reads all the same.
    watcher.on('error', () => {
      watcher.close();
      lost();
    });
    return watcher;
  } catch {
    // Not there (any more), or no inotify watch left: the reading that follows and the resync decide.
    return undefined;
  }
}
