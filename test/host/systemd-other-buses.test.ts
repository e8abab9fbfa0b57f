import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { sessionBus } from 'dbus-next';
import { connectSystemd } from '../../src/systemd/dbus-systemd';
import { collectOutput } from '../support/command';
import { bootPrivateHost, canBootPrivateHosts, type PrivateHost } from '../support/test-host';

const support = resolve(__dirname, '../support');
const testOnPrivateHost = canBootPrivateHosts ? test : test.skip;

let folder: string;
let host: PrivateHost | undefined;
let bus: ChildProcess | undefined;
const busAddress = (): string => `unix:path=${folder}/bus`;

beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'other-bus-'))));
afterEach(async () => {
  if (bus?.kill()) await once(bus, 'close');
  await host?.end();
  host = bus = undefined;
  await rm(folder, { recursive: true });
});

describe("a user's bus", () => {
  testOnPrivateHost(
    'works unprivileged: a process of the user starts, reads and stops units of its own manager',
    async () => {
      host = await bootPrivateHost();
      const user = await host.userManager();
      const hook = join(support, 'typescript-hook.js');
      const child = user.spawn([process.execPath, '--require', hook, join(support, 'user-bus-client.ts')], {
        cwd: '/',
      });
      const { stdout, stderr, code } = await collectOutput(child);
      expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
      expect(JSON.parse(stdout)).toEqual({
        uid: user.uid,
        started: 'done',
        unit: {
          ActiveState: 'active',
          InvocationID: expect.stringMatching(/^[0-9a-f]{32}$/),
          ControlGroup: expect.stringMatching(/\/app\.slice\/own-user\.service$/),
          ControlGroupId: expect.stringMatching(/^\d+$/),
        },
        changed: true,
        stopped: 'done',
        // The way to the system's manager is open to look, not to act.
        onSystemBus: 'refused',
      });
      await user.end();
    },
  );

  testOnPrivateHost('of somebody else refuses root, and the error says whose process this is', async () => {
    await startBus({ user: 65_534 });
    await expect(connectSystemd({ busAddress: busAddress(), callTimeoutMs: 500 })).rejects.toMatchObject({
      kind: 'refused',
      message: expect.stringContaining('uid 0'),
    });
  });
});

describe('a bus', () => {
  test('without a manager on it: connecting rejects in time and says so', async () => {
    await startBus();
    await expect(connectSystemd({ busAddress: busAddress(), callTimeoutMs: 200 })).rejects.toMatchObject({
      kind: 'unknown',
      message: expect.stringContaining('org.freedesktop.systemd1 is not on the bus'),
    });
  });

  test('without room for another connection: connecting rejects, and ends no process', async () => {
    await startBus({ connections: 1 });
    const other = sessionBus({ busAddress: `unix:socket=${folder}/bus` });
    await once(other, 'connect');
    await expect(connectSystemd({ busAddress: busAddress(), callTimeoutMs: 200 })).rejects.toMatchObject({
      kind: 'unknown',
      message: expect.stringMatching(/^Hello: .*\(org\.freedesktop\.DBus\.Error\.LimitsExceeded\)$/),
    });
    other.disconnect();
  });
});

/** A session bus as distributions ship it: it lets in the user it runs as alone. */
async function startBus({ user = process.getuid!(), connections = 100 } = {}): Promise<void> {
  const configuration = `<busconfig>
    <include>/usr/share/dbus-1/session.conf</include>
    <limit name="max_connections_per_user">${connections}</limit>
  </busconfig>`;
  await writeFile(join(folder, 'bus.conf'), configuration);
  await chmod(folder, 0o755);
  await chown(folder, user, -1);
  const options = [`--config-file=${folder}/bus.conf`, `--address=${busAddress()}`, '--nofork', '--nopidfile'];
  bus = spawn('dbus-daemon', [...options, '--print-address'], { uid: user, stdio: ['ignore', 'pipe', 'ignore'] });
  await once(bus.stdout!, 'data'); // it listens
}
