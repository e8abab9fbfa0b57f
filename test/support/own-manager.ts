import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { cgroup2Mount } from './cgroup-mount';
import { expectSuccess, runCommand } from './command';
import type { TestHost } from './test-host';

/**
 * The calling user's own manager as a test host: no root, nothing to set up. It is shared with the user's real services,
 * so every host has a unit prefix of its own, and `end` stops what lives under that prefix and nothing else.
 */
export async function openOwnManager(): Promise<TestHost> {
  const runtimeDirectory = process.env.XDG_RUNTIME_DIR;
  const busAddress = process.env.DBUS_SESSION_BUS_ADDRESS ?? defaultBus(runtimeDirectory);
  if (!runtimeDirectory || !busAddress) {
    throw new Error(
      'neither DBUS_SESSION_BUS_ADDRESS nor $XDG_RUNTIME_DIR/bus names a session bus: log in with a session ' +
        '(on a server: `loginctl enable-linger` and a new login), or run as root in a privileged Linux container',
    );
  }
  const cgroupRoot = cgroup2Mount();
  if (!cgroupRoot) throw new Error('no cgroup2 file system is mounted: boot with systemd.unified_cgroup_hierarchy=1');

  const systemctl: TestHost['systemctl'] = async (...args) => {
    const command = ['systemctl', '--user', '--no-pager', ...args];
    return expectSuccess(command, await runCommand(command));
  };
  // A session bus may also belong to a desktop without systemd: only its manager's answer counts.
  await systemctl('show', '--property=Version');

  const unitPrefix = `t${randomBytes(5).toString('hex')}`;
  const stateDirectory = await mkdtemp('/var/tmp/temporal-systemd-test-');
  const runDirectory = join(runtimeDirectory, `temporal-systemd-test-${unitPrefix}`);
  let ending: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    try {
      // All of a prefix lives in its slice, but for timers, which are in no cgroup.
      await systemctl('stop', `${unitPrefix}-*.timer`);
      await systemctl('stop', `${unitPrefix}.slice`);
      await systemctl('reset-failed', `${unitPrefix}-*`);
    } finally {
      await Promise.all([runDirectory, stateDirectory].map((folder) => rm(folder, { recursive: true, force: true })));
    }
  };

  return {
    manager: 'user',
    busAddress,
    root: '/',
    cgroupRoot,
    runDirectory,
    stateDirectory,
    unitPrefix,
    systemctl,
    run: runCommand,
    end: () => (ending ??= end()),
  };
}

function defaultBus(runtimeDirectory: string | undefined): string | undefined {
  const socket = runtimeDirectory && join(runtimeDirectory, 'bus');
  return socket && existsSync(socket) ? `unix:path=${socket}` : undefined;
}
