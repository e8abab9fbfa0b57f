import { accessSync, constants, existsSync, readFileSync } from 'node:fs';
import { cgroup2Mount } from './cgroup-mount';

/** Why no private host can be booted here, as the rest of a sentence; `undefined` where it can. */
export const whyNoPrivateHosts: string | undefined = findObstacle();

/** Whether a private host can be booted here: root on Linux, allowed to mount and to make cgroups. */
export const canBootPrivateHosts: boolean = whyNoPrivateHosts === undefined;

/** The files that a private host is made with, and the Debian package that brings each. */
const files = {
  '/lib/systemd/systemd': 'systemd',
  '/usr/bin/busctl': 'systemd',
  '/etc/machine-id': 'systemd',
  '/usr/bin/dbus-daemon': 'dbus',
  '/usr/bin/setpriv': 'util-linux',
  '/usr/bin/unshare': 'util-linux',
  '/usr/bin/nsenter': 'util-linux',
} as const;

/** Throws where a private host could be booted but for missing packages, naming them. */
export function requirePackages(): void {
  const missing = Object.entries(files).filter(([file]) => !existsSync(file));
  if (missing.length === 0) return;
  const packages = new Set(missing.map(([, name]) => name));
  throw new Error(
    `A private systemd host needs ${missing.map(([file]) => file).join(', ')}. ` +
      `On Debian: apt-get install ${[...packages].join(' ')}`,
  );
}

function findObstacle(): string | undefined {
  if (process.platform !== 'linux') return `systemd runs on Linux only, and this is ${process.platform}`;
  const uid = process.geteuid?.();
  if (uid !== 0) return `it takes root, and this is uid ${uid}`;
  const capabilities = /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1] ?? '0';
  const sysAdmin = 1n << 21n; // capabilities(7)
  if ((BigInt(`0x${capabilities}`) & sysAdmin) === 0n)
    return 'root lacks CAP_SYS_ADMIN: run the container --privileged';
  const mount = cgroup2Mount();
  if (mount === undefined) return 'no cgroup2 file system is mounted';
  try {
    accessSync(mount, constants.W_OK);
  } catch {
    return `${mount} is mounted read-only: run the container --privileged`;
  }
  return undefined;
}
