import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { chmod, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { cgroup2Mount } from './cgroup-mount';
import { collectOutput, expectSuccess, holdOpen } from './command';
import { spawnInHost, type SpawnInHostOptions } from './enter-host';
import { requirePackages, whyNoPrivateHosts } from './private-host-requirements';
import type { CommandResult, TestHost } from './test-host';
import { startUserManager, type UserManagerHost } from './user-manager';

/** A systemd of its own, as PID 1 of its own namespaces: it can be broken, frozen, rebooted and thrown away. */
export interface PrivateHost extends TestHost {
  /** Its PID 1 as seen from outside. */
  readonly pid: number;
  /**
   * Starts a command inside the host; it ends with the host at the latest. The child's `kill` reaches the command itself;
   * its `pid` is that of the `nsenter` that waits for it outside.
   */
  spawn(command: readonly string[], options?: SpawnInHostOptions): ChildProcessWithoutNullStreams;
  /** Starts the manager of an unprivileged user of the machine (default `nobody`) with a session bus on this host. */
  userManager(user?: string): Promise<UserManagerHost>;
  /**
   * Cuts the power and boots again, with another boot id and the same machine id and state directory. `pid`, `root`,
   * `busAddress` and `cgroupRoot` change.
   */
  reboot(): Promise<void>;
}

export interface PrivateHostOptions {
  /** Boot id of the first boot, a UUID; a random one where absent. */
  readonly bootId?: string;
}

const launcherScript = join(__dirname, 'private-host.sh');
const repository = resolve(__dirname, '../..');

/** Boots a private host; resolves once its manager answers on its bus. Rejects with what is missing here. */
export async function bootPrivateHost(options: PrivateHostOptions = {}): Promise<PrivateHost> {
  if (whyNoPrivateHosts) throw new Error(`A private systemd host can't be booted here: ${whyNoPrivateHosts}.`);
  requirePackages();
  // Unlike /tmp and /run, which each host has for itself, /var/tmp is the same folder inside and outside.
  const folder = await mkdtemp('/var/tmp/temporal-systemd-test-');
  await chmod(folder, 0o711);
  await mkdir(join(folder, 'state'), { mode: 0o700 });
  await writeFile(join(folder, 'machine-id'), `${randomUUID().replaceAll('-', '')}\n`);
  const host = new BootedHost(folder);
  await host.boot(options.bootId ?? randomUUID());
  return host;
}

class BootedHost implements PrivateHost {
  readonly manager = 'system';
  readonly unitPrefix = 'own';
  readonly runDirectory: string;
  readonly stateDirectory: string;
  pid = 0;
  private readonly cgroup: string;
  /** Beside the host for its whole life: it ends the host when its standard input does (private-host.sh). */
  private launcher?: ChildProcessWithoutNullStreams;
  private ended?: Promise<CommandResult>;

  constructor(private readonly folder: string) {
    const name = basename(folder);
    this.runDirectory = join('/run', name);
    this.stateDirectory = join(folder, 'state');
    this.cgroup = join(cgroup2Mount() ?? '', name);
  }

  get root(): string {
    return `/proc/${this.pid}/root`;
  }

  get busAddress(): string {
    return `unix:path=${this.root}/run/dbus/system_bus_socket`;
  }

  get cgroupRoot(): string {
    return `${this.root}/sys/fs/cgroup`;
  }

  async boot(bootId: string): Promise<void> {
    await writeFile(join(this.folder, 'boot-id'), `${bootId}\n`);
    // In a session of its own: Ctrl-C has to reach the tests, not what cleans up after them.
    const launcher = spawn('bash', [launcherScript, this.folder, this.cgroup, repository], { detached: true });
    const ended = collectOutput(launcher);
    launcher.stdin.on('error', () => {}); // the launcher is gone; `ended` tells why
    this.launcher = launcher;
    this.ended = ended;
    this.pid = await new Promise<number>((resolve, reject) => {
      launcher.stdout.once('data', (line: string) => resolve(Number(line)));
      ended.then(({ code, stderr }) => reject(new Error(`private-host.sh exited with ${code}: ${stderr}`)), reject);
    });
    // A test that forgets a host must not hang for it: the launcher ends the host once this process is gone.
    holdOpen(launcher, false);
  }

  spawn(command: readonly string[], options: SpawnInHostOptions = {}): ChildProcessWithoutNullStreams {
    return spawnInHost(this.pid, this.cgroup, command, options);
  }

  async run(command: readonly string[]): Promise<CommandResult> {
    const child = this.spawn(command, { cwd: '/' });
    child.stdin.end();
    return collectOutput(child);
  }

  async systemctl(...args: string[]): Promise<string> {
    const command = ['systemctl', '--no-pager', '--no-ask-password', ...args];
    return expectSuccess(command, await this.run(command));
  }

  async userManager(user = 'nobody'): Promise<UserManagerHost> {
    return startUserManager(this, user, join(this.folder, `state-${user}`));
  }

  async reboot(): Promise<void> {
    await this.letGo('reboot\n');
    await this.boot(randomUUID());
  }

  async end(): Promise<void> {
    await this.letGo('');
  }

  private async letGo(wish: string): Promise<void> {
    if (!this.launcher || !this.ended) return;
    holdOpen(this.launcher, true);
    this.launcher.stdin.end(wish);
    const { code, stderr } = await this.ended;
    if (code !== 0) throw new Error(`Private host ${basename(this.folder)} was not ended cleanly: ${stderr}`);
  }
}
