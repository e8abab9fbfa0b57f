import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, watch } from 'node:fs';
import { readFile, readdir, readlink, stat, writeFile } from 'node:fs/promises';
import { basename, dirname, join, resolve } from 'node:path';
import { cgroup2Mount } from '../support/cgroup-mount';
import { expectSuccess, runCommand } from '../support/command';
import {
  bootPrivateHost,
  canBootPrivateHosts,
  whyNoPrivateHosts,
  type PrivateHost,
  type TestHost,
} from '../support/test-host';

const whereBootable = canBootPrivateHosts ? describe : describe.skip;
const reasonToSkip = whyNoPrivateHosts ? ` (skipped: ${whyNoPrivateHosts})` : '';

whereBootable(`a private host${reasonToSkip}`, () => {
  let host: PrivateHost;

  beforeAll(async () => {
    host = await bootPrivateHost();
  });
  afterAll(() => host.end());

  it('answers from outside on its bus', async () => {
    expect(await managerVersion(host)).toMatch(/^s "\d+/);
  });

  it('runs services, whose cgroups and files are seen from outside', async () => {
    await startSleeper(host);
    const controlGroup = await property(host, 'sleeper.service', 'ControlGroup');
    const directory = join(host.cgroupRoot, controlGroup);

    expect(await readFile(join(directory, 'cgroup.events'), 'utf8')).toContain('populated 1');
    expect(`${(await stat(directory)).ino}`).toBe(await property(host, 'sleeper.service', 'ControlGroupId'));

    await host.systemctl('stop', 'sleeper.service');
    expect(existsSync(directory)).toBe(false);
  });

  it('gives LoadCredential= and PrivateTmp= what they give on any host', async () => {
    await writeFile(join(host.stateDirectory, 'secret'), 'a word');
    const credential = `--property=LoadCredential=word:${host.stateDirectory}/secret`;
    const command = ['systemd-run', '--wait', '--pipe', '--quiet', '--property=PrivateTmp=yes', credential];
    const { stdout } = await host.run([...command, 'sh', '-c', 'cat "$CREDENTIALS_DIRECTORY/word"; ls -A /tmp']);
    expect(stdout).toBe('a word');
  });

  it('has a boot id, a machine id and folders of its own', async () => {
    const other = await bootPrivateHost();
    try {
      for (const file of ['proc/sys/kernel/random/boot_id', 'etc/machine-id']) {
        const contents = await Promise.all(
          ['/', host.root, other.root].map((root) => readFile(join(root, file), 'utf8')),
        );
        expect(new Set(contents).size).toBe(3);
      }
      await startSleeper(host);
      expect(await property(other, 'sleeper.service', 'LoadState')).toBe('not-found');
      expect(other.stateDirectory).not.toBe(host.stateDirectory);
      expect(other.runDirectory).not.toBe(host.runDirectory);
      await host.systemctl('stop', 'sleeper.service');
    } finally {
      await other.end();
    }
  });

  it('runs commands in its namespaces, and tells how they ended', async () => {
    expect(await host.run(['sh', '-c', 'readlink /proc/1/exe; echo oops >&2; exit 3'])).toEqual({
      stdout: '/usr/lib/systemd/systemd\n',
      stderr: 'oops\n',
      code: 3,
    });
    await expect(host.systemctl('start', 'no-such-unit.service')).rejects.toThrow('no-such-unit.service not found');
  });

  it('lets a signal reach the spawned command itself', async () => {
    const child = host.spawn(['sh', '-c', 'trap "echo told; exit 7" TERM; echo ready; while :; do sleep 0.01; done']);
    const said: string[] = [];
    child.stdout.setEncoding('utf8').on('data', (text: string) => said.push(text.trim()));
    await once(child.stdout, 'data');
    child.kill('SIGTERM');
    expect(await once(child, 'close')).toEqual([7, null]);
    expect(said).toEqual(['ready', 'told']);
  });

  it('carries the manager of an unprivileged user', async () => {
    const user = await host.userManager('nobody');
    expect(await managerVersion(user)).toMatch(/^s "\d+/);
    expect((await user.run(['id', '--user', '--name'])).stdout).toBe('nobody\n');

    await startSleeper(user);
    const directory = join(user.cgroupRoot, await property(user, 'sleeper.service', 'ControlGroup'));
    expect(await readFile(join(directory, 'cgroup.events'), 'utf8')).toContain('populated 1');
    expect(`${(await stat(directory)).ino}`).toBe(await property(user, 'sleeper.service', 'ControlGroupId'));
    expect((await user.run(['touch', join(user.stateDirectory, 'a'), dirname(user.runDirectory)])).code).toBe(0);

    await user.end();
    expect(existsSync(directory)).toBe(false);
    expect(existsSync(user.stateDirectory)).toBe(false);
    expect(await managerVersion(host)).toMatch(/^s "\d+/);
  });

  it("serves a user who has only the manager of their own session, and leaves that user's other units alone", async () => {
    const user = await host.userManager('nobody');
    await startSleeper(user);
    const script = `require('./test/support/test-host').openTestHost().then(async (own) => {
      await own.run(['systemd-run', '--user', '--slice=' + own.unitPrefix, '--unit=' + own.unitPrefix + '-x', 'sleep', '99']);
      const state = await own.systemctl('is-active', own.unitPrefix + '-x.service');
      await own.end();
      console.log(JSON.stringify({ ...own, state }));
    })`;
    const hook = './test/support/typescript-hook.js';
    const child = user.spawn([process.execPath, '--require', hook, '--eval', script], { cwd: repository });
    const own = JSON.parse(await outputOf(child)) as TestHost & { state: string };

    expect(own).toMatchObject({ manager: 'user', root: '/', state: 'active\n' });
    expect(own.unitPrefix).toMatch(/^[a-z][a-z0-9]{0,15}$/);
    expect(await property(user, `${own.unitPrefix}-x.service`, 'LoadState')).toBe('not-found');
    expect(existsSync(own.stateDirectory)).toBe(false);
    expect(await property(user, 'sleeper.service', 'ActiveState')).toBe('active');
    await user.end();
  });

  it('comes back from a reboot with another boot id, the same machine id and its state', async () => {
    const bootId = (): Promise<string> => readFile(join(host.root, 'proc/sys/kernel/random/boot_id'), 'utf8');
    const before = { root: host.root, bootId: await bootId(), machineId: await machineId(host) };
    await startSleeper(host);
    await writeFile(join(host.root, 'run/x'), '');
    await writeFile(join(host.stateDirectory, 'kept'), 'yes');

    await host.reboot();

    expect(existsSync(before.root)).toBe(false);
    expect(await bootId()).not.toBe(before.bootId);
    expect(await machineId(host)).toBe(before.machineId);
    expect(await property(host, 'sleeper.service', 'LoadState')).toBe('not-found');
    expect(existsSync(join(host.root, 'run/x'))).toBe(false);
    expect(await readFile(join(host.root, host.stateDirectory, 'kept'), 'utf8')).toBe('yes');
  });
});

whereBootable(`what is left of a private host${reasonToSkip}`, () => {
  it('is nothing after its end: no process, cgroup, mount or folder', async () => {
    const host = await bootPrivateHost();
    const namespace = await readlink(`/proc/${host.pid}/ns/pid`);
    await host.run(['systemd-run', '--property=PrivateTmp=yes', '--unit=x', 'setsid', 'sleep', '99']);
    const spawned = host.spawn(['sh', '-c', 'echo ready; exec sleep 99']);
    await once(spawned.stdout, 'data');
    const spawnedEnded = once(spawned, 'close');

    await host.end();

    expect(await spawnedEnded).toEqual([null, 'SIGKILL']);
    expect(await processesIn(namespace)).toEqual([]);
    expect(existsSync(cgroupOf(host))).toBe(false);
    expect(existsSync(dirname(host.stateDirectory))).toBe(false);
    expect(await readFile('/proc/self/mountinfo', 'utf8')).not.toContain(basename(dirname(host.stateDirectory)));
    await expect(host.end()).resolves.toBeUndefined();
  });

  it('is nothing after the test process was killed', async () => {
    const script = `require('./test/support/test-host').bootPrivateHost().then((host) => {
      const { pid, stateDirectory } = host;
      console.log(JSON.stringify({ pid, stateDirectory }));
      setInterval(() => {}, 1000);
    })`;
    const hook = './test/support/typescript-hook.js';
    const testProcess = spawn(process.execPath, ['--require', hook, '--eval', script], { cwd: repository });
    const [line] = (await once(testProcess.stdout, 'data')) as [Buffer];
    const host = JSON.parse(line.toString()) as Pick<PrivateHost, 'pid' | 'stateDirectory'>;
    const folder = dirname(host.stateDirectory);
    const removed = removalOf(folder);
    const namespace = await readlink(`/proc/${host.pid}/ns/pid`);
    expect(existsSync(cgroupOf(host))).toBe(true);

    testProcess.kill('SIGKILL');
    await removed;

    expect(await processesIn(namespace)).toEqual([]);
    expect(existsSync(cgroupOf(host))).toBe(false);
  });
});

const repository = resolve(__dirname, '../..');

async function startSleeper(host: TestHost): Promise<void> {
  const manager = host.manager === 'user' ? ['--user'] : [];
  const command = ['systemd-run', ...manager, '--quiet', '--unit=sleeper', 'sleep', '99'];
  expectSuccess(command, await host.run(command));
}

/** Asks over the bus as this process reaches it, not through the host's own commands. */
async function managerVersion(host: TestHost): Promise<string> {
  const object = ['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'];
  const command = ['busctl', `--address=${host.busAddress}`, 'get-property', ...object, 'Version'];
  return expectSuccess(command, await runCommand(command));
}

async function property(host: TestHost, unit: string, name: string): Promise<string> {
  return (await host.systemctl('show', '--value', `--property=${name}`, unit)).trim();
}

function machineId(host: TestHost): Promise<string> {
  return readFile(join(host.root, 'etc/machine-id'), 'utf8');
}

function cgroupOf(host: Pick<PrivateHost, 'stateDirectory'>): string {
  return join(cgroup2Mount() ?? '', basename(dirname(host.stateDirectory)));
}

async function outputOf(child: ReturnType<PrivateHost['spawn']>): Promise<string> {
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (text: Buffer) => (output.stdout += text.toString()));
  child.stderr.on('data', (text: Buffer) => (output.stderr += text.toString()));
  await once(child, 'close');
  if (output.stdout === '') throw new Error(`no output; standard error: ${output.stderr}`);
  return output.stdout;
}

async function processesIn(pidNamespace: string): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const namespaces = await Promise.all(pids.map((pid) => readlink(`/proc/${pid}/ns/pid`).catch(() => undefined)));
  return pids.filter((_, index) => namespaces[index] === pidNamespace);
}

function removalOf(folder: string): Promise<void> {
  return new Promise((resolve) => {
    const watcher = watch(dirname(folder), () => {
      if (existsSync(folder)) return;
      watcher.close();
      resolve();
    });
  });
}
