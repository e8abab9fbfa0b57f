import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chown, mkdir, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { collectOutput, expectSuccess } from './command';
import type { SpawnInHostOptions } from './enter-host';
import type { PrivateHost } from './private-host';
import type { TestHost } from './test-host';

/** An unprivileged user's manager on a private host. `run` and `spawn` act as that user, in its session's environment. */
export interface UserManagerHost extends TestHost {
  readonly uid: number;
  readonly gid: number;
  /** As `spawn` of the private host, but as the user and with its XDG_RUNTIME_DIR and DBUS_SESSION_BUS_ADDRESS. */
  spawn(command: readonly string[], options?: SpawnInHostOptions): ChildProcessWithoutNullStreams;
}

/**
 * The stock session bus lets in its own user only. Tests look from outside as root, so root is let in as well; what the
 * user itself sees stays the same.
 */
const busConfiguration = `<busconfig>
  <include>/usr/share/dbus-1/session.conf</include>
  <policy context="mandatory"><allow user="root"/></policy>
</busconfig>
`;
const busDropIn = `[Service]
ExecStart=
ExecStart=/usr/bin/dbus-daemon --config-file=/run/private-host-session.conf --address=systemd: --nofork --nopidfile --systemd-activation
`;

/**
 * Starts `systemd --user` for an account of the machine as a service of the private host, as logind would, but without
 * logind and PAM. One per user at a time.
 */
export async function startUserManager(
  host: PrivateHost,
  user: string,
  stateDirectory: string,
): Promise<UserManagerHost> {
  const { root } = host;
  const { uid, gid, home } = await findAccount(host, user);
  const runtimeDirectory = `/run/user/${uid}`;
  const unit = `private-host-user-${uid}.service`;
  await prepareBus(root);
  if (existsSync(join(root, runtimeDirectory))) {
    throw new Error(`User ${user} has a manager on this host, which uses ${runtimeDirectory}: end that one first.`);
  }
  for (const folder of [join(root, runtimeDirectory), stateDirectory]) {
    await mkdir(dirname(folder), { recursive: true, mode: 0o755 });
    await mkdir(folder, { mode: 0o700 });
    await chown(folder, uid, gid);
  }

  const session: NodeJS.ProcessEnv = {
    HOME: home,
    USER: user,
    XDG_RUNTIME_DIR: runtimeDirectory,
    DBUS_SESSION_BUS_ADDRESS: `unix:path=${runtimeDirectory}/bus`,
  };
  const start = [
    ...['systemd-run', '--quiet', `--unit=${unit}`, '--property=Type=notify', '--property=Delegate=yes'],
    ...[`--property=User=${user}`, '--property=TimeoutStopSec=5', '--collect'],
    ...Object.entries(session).map(([name, value]) => `--setenv=${name}=${value}`),
    ...['/lib/systemd/systemd', '--user', '--unit=sockets.target'],
  ];

  const spawn = (command: readonly string[], options: SpawnInHostOptions = {}): ChildProcessWithoutNullStreams => {
    const asUser = ['setpriv', `--reuid=${uid}`, `--regid=${gid}`, '--init-groups', '--pdeathsig', 'KILL'];
    return host.spawn([...asUser, ...command], { ...options, env: { ...(options.env ?? process.env), ...session } });
  };
  const run: TestHost['run'] = (command) => {
    const child = spawn(command, { cwd: '/' });
    child.stdin.end();
    return collectOutput(child);
  };
  const systemctl: TestHost['systemctl'] = async (...args) => {
    const command = ['systemctl', '--user', '--no-pager', ...args];
    return expectSuccess(command, await run(command));
  };
  let ending: Promise<void> | undefined;
  const end = async (): Promise<void> => {
    // A host that has ended or rebooted since then has taken all but the state directory with it.
    if (existsSync(root)) {
      await host.systemctl('stop', unit);
      await rm(join(root, runtimeDirectory), { recursive: true, force: true });
    }
    await rm(stateDirectory, { recursive: true, force: true });
  };

  expectSuccess(start, await host.run(start));
  await systemctl('show', '--property=Version'); // its bus starts on demand; it is ready when this is answered
  return {
    manager: 'user',
    uid,
    gid,
    root,
    busAddress: `unix:path=${root}${runtimeDirectory}/bus`,
    cgroupRoot: host.cgroupRoot,
    runDirectory: join(runtimeDirectory, basename(host.runDirectory)),
    stateDirectory,
    unitPrefix: 'own',
    systemctl,
    run,
    spawn,
    end: () => (ending ??= end()),
  };
}

async function findAccount(host: PrivateHost, user: string): Promise<{ uid: number; gid: number; home: string }> {
  const { stdout } = await host.run(['getent', 'passwd', user]);
  if (stdout === '') throw new Error(`This machine has no account ${user}: name one of \`getent passwd\`.`);
  const [, , uid, gid, , home = '/'] = stdout.split(':');
  return { uid: Number(uid), gid: Number(gid), home };
}

async function prepareBus(root: string): Promise<void> {
  if (!existsSync(join(root, 'usr/lib/systemd/user/sockets.target.wants/dbus.socket'))) {
    throw new Error('A user manager needs the units of a session bus. On Debian: apt-get install dbus-user-session');
  }
  const dropIns = join(root, 'run/systemd/user/dbus.service.d');
  await mkdir(dropIns, { recursive: true });
  await writeFile(join(dropIns, 'private-host.conf'), busDropIn);
  await writeFile(join(root, 'run/private-host-session.conf'), busConfiguration);
}
