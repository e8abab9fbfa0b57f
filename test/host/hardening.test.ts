import { hardeningSettings } from '../../src/config';
import type { Hardening, HardeningSetting, HardeningValue } from '../../src/config';
import { hardeningProperties, readHardeningProperty } from '../../src/config/hardening';
import { Misfit } from '../../src/config/scalars';
import type { CommandResult, PrivateHost, TestHost } from '../support/test-host';
import { bootPrivateHost, canBootPrivateHosts } from '../support/test-host';

/** Ordinary needs: a JIT compiler, the network, a file in its own folder. Exits with 0 when all of them are met. */
const ordinaryNeeds = `
  require('node:fs').writeFileSync(process.argv[1] + '/data', 'x');
  const server = require('node:net').createServer((socket) => socket.end());
  require('node:fs').rmSync(process.argv[1] + '/data');
  server.listen(0, '127.0.0.1', () => require('node:net').connect(server.address().port).on('close', () => process.exit(0)));
`;

/** Nothing in the homes is visible under `strict`; a Node that lives there needs one property. */
const hardening: Readonly<Record<string, HardeningValue>> = {
  ReadWritePaths: ['/run/${resource}'],
  ...(/^\/(?:home|root)\//.test(process.execPath) && { ProtectHome: 'read-only' }),
};

(canBootPrivateHosts ? describe : describe.skip)('hardening on a real systemd', () => {
  let host: PrivateHost;
  let user: TestHost;
  beforeAll(async () => {
    host = await bootPrivateHost();
    user = await host.userManager();
    await host.run(['install', '-d', '-m', '755', '/run/db']);
    await host.run(['install', '-d', '-o', 'nobody', '/run/db/tenant-42']);
  });
  afterAll(() => host?.end());

  const start = (
    on: TestHost,
    settings: readonly HardeningSetting[],
    more: string[],
    command: string[],
  ): Promise<CommandResult> => {
    const properties = settings.map(
      ([name, , value]) => `--property=${name}=${Array.isArray(value) ? value.join(' ') : value}`,
    );
    const manager = on.manager === 'user' ? ['--user'] : [];
    return on.run([
      'systemd-run',
      ...manager,
      '--quiet',
      '--wait',
      '--pipe',
      '--collect',
      ...properties,
      ...more,
      ...command,
    ]);
  };
  const strict = (on: TestHost, more: Hardening = hardening): HardeningSetting[] =>
    hardeningSettings(more, 'db/tenant-42', on.manager);

  it('takes every property with the signature that the table says', async () => {
    for (const [index, name] of hardeningProperties.entries()) {
      const value = valuesToTry
        .map((each) => readHardeningProperty(name, each))
        .find((each) => !(each instanceof Misfit));
      const setting = hardeningSettings({ [name]: value as HardeningValue }, 'db/x', 'system').find(
        ([found]) => found === name,
      );
      const { code, stderr } = await host.run([
        'busctl',
        'call',
        ...startTransientUnit(`take-${index}.service`, setting!),
      ]);
      expect([name, code, stderr]).toEqual([name, 0, '']);
    }
  });

  it.each(['root', 'nobody'])('lets a program with ordinary needs work as %s', async (account) => {
    const command = [process.execPath, '-e', ordinaryNeeds, '/run/db/tenant-42'];
    const result = await start(host, strict(host), [`--property=User=${account}`], command);
    expect(result).toEqual({ stdout: '', stderr: '', code: 0 });
  });

  it.each(['/etc/hardening-test', '/usr/hardening-test', '/var/hardening-test', '/sys/fs/cgroup/hardening-test'])(
    'keeps root from making %s',
    async (path) => {
      const { code, stderr } = await start(host, strict(host), [], ['/bin/mkdir', path]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('Read-only file system')]);
    },
  );

  it("never fails a unit on a user's manager, where it keeps what needs no privileges", async () => {
    const command = [process.execPath, '-e', ordinaryNeeds, '/run/db/tenant-42'];
    expect(await start(user, strict(user), [], command)).toEqual({ stdout: '', stderr: '', code: 0 });
    const { stdout } = await start(user, strict(user), [], ['/bin/grep', 'NoNewPrivs', '/proc/self/status']);
    expect(stdout).toMatch(/NoNewPrivs:\s1/);
  });

  it("is nearly all there on a user's manager with PrivateUsers", async () => {
    // systemd mounts there what it builds; on a host in use an earlier unit of the system has made it.
    await host.run(['mkdir', '-p', '/run/systemd/unit-root']);
    const settings = strict(user, { ...hardening, PrivateUsers: true });
    const command = [process.execPath, '-e', ordinaryNeeds, '/run/db/tenant-42'];
    expect(await start(user, settings, [], command)).toEqual({ stdout: '', stderr: '', code: 0 });
    await host.run(['touch', '/tmp/of-others']);
    expect(await start(user, settings, [], ['/bin/ls', '/tmp'])).toEqual({ stdout: '', stderr: '', code: 0 });
    expect((await start(user, strict(user), [], ['/bin/ls', '/tmp'])).stdout).toContain('of-others');
  });

  it("would fail a unit on a user's manager with the whole set, which is why it is cut there", async () => {
    const { code } = await start(user, hardeningSettings('strict', 'db/x', 'system'), [], ['/bin/true']);
    expect(code).toBe(218); // EXIT_CAPABILITIES, systemd.exec(5)
  });
});

/** One of these is a value that turns the property on. */
const valuesToTry: readonly HardeningValue[] = ['strict', true, 'invisible', 'pid', ['/usr'], ['native']];

/** Arguments of `busctl call`, which sends exactly the types that it is told; systemd-run would choose them itself. */
function startTransientUnit(unit: string, [name, signature, value]: HardeningSetting): string[] {
  const values = Array.isArray(value) ? [String(value.length), ...value] : [String(value)];
  return [
    ...['org.freedesktop.systemd1', '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager'],
    ...['StartTransientUnit', 'ssa(sv)a(sa(sv))', unit, 'fail', '2', name, signature, ...values],
    ...['ExecStart', 'a(sasb)', '1', '/bin/true', '1', '/bin/true', 'false', '0'],
  ];
}
