import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { PrivateHost } from './test-host';

/** Why there is no file system to freeze here, as the rest of a sentence; `undefined` where there is. */
export const whyNoFreezing: string | undefined = ['/dev/loop-control', '/usr/sbin/fsfreeze', '/usr/sbin/mkfs.ext4']
  .filter((file) => !existsSync(file))
  .map((file) => `there is no ${file}`)[0];

/**
 * A file system inside a host that can be frozen (fsfreeze(8)): whoever writes to it then waits in the kernel, in state
 * D, where no signal reaches it until it is thawed.
 */
export interface FreezableMount {
  /** Where it is mounted inside the host. */
  readonly path: string;
  freeze(): Promise<void>;
  thaw(): Promise<void>;
  /** Thaws it for good. Must come before the host's end: a frozen writer outlives its host, and its mount with it. */
  end(): Promise<void>;
}

/** Thaws at the end of its input, so also when the process that asked for it has died. The mount ends with its host. */
const guard = `
set -e
truncate -s 8M "$1.img"
mkfs.ext4 -q "$1.img"
mkdir "$1"
mount -o loop "$1.img" "$1"
echo mounted
while read -r wish; do fsfreeze "$wish" "$1"; echo "$wish"; done
fsfreeze --unfreeze "$1" 2>/dev/null || true`;

/** Mounts one below the host's state directory. Rejects with what the tools said. */
export async function mountFreezable(host: PrivateHost): Promise<FreezableMount> {
  const path = join(host.stateDirectory, 'freezable');
  // In the host's mounts but not among its processes, which end with it; in a session of its own, as Ctrl-C has to reach
  // the tests and not what cleans up after them.
  const command = ['--target', String(host.pid), '--mount', 'sh', '-c', guard, 'sh', path];
  const child = spawn('nsenter', command, { detached: true, stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', (text: Buffer) => (said += text.toString()));
  const ended = new Promise<void>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => (code === 0 ? resolve() : reject(new Error(`freezable mount: ${code}: ${said}`))));
  });
  ended.catch(() => undefined); // whoever waits for an answer hears of it
  const answer = async (): Promise<void> => {
    const line = new Promise<void>((resolve) => child.stdout.once('data', () => resolve()));
    await Promise.race([line, ended.then(() => Promise.reject(new Error('the freezable mount has ended')))]);
  };
  const wish = async (option: string): Promise<void> => {
    const done = answer();
    child.stdin.write(`${option}\n`);
    await done;
  };
  await answer();
  let frozen = false;
  return {
    path,
    freeze: async () => {
      await wish('--freeze');
      frozen = true;
    },
    thaw: async () => {
      if (!frozen) return;
      frozen = false;
      await wish('--unfreeze');
    },
    end: async () => {
      child.stdin.end();
      await ended;
    },
  };
}
