import { join } from 'node:path';
import { writeFile } from 'node:fs/promises';
import { OwnershipClient } from '../../src/client';
import type { CommandResult } from '../support/test-host';
import { openTemporalServer, type TemporalServer } from '../support/temporal-server';
import { openTestHost, type TestHost } from '../support/test-host';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

describe('the command line', () => {
  let server: TemporalServer;
  let testHost: TestHost;
  let config: string;
  let worker: CliProcess;
  let client: OwnershipClient;

  beforeAll(async () => {
    [server, testHost] = await Promise.all([openTemporalServer(), openTestHost()]);
    config = await writeConfig(
      { server, testHost, hostId: server.taskQueue },
      {
        sleeper: { exec: ['/bin/sh', '-c', 'exec sleep 1000'], hardening: 'off' },
        stubborn: { exec: ['/bin/sh', '-c', "trap '' TERM; while :; do sleep 1; done"], stop: { timeout: '1 min' } },
      },
    );
    client = new OwnershipClient(server.client, { taskQueue: server.taskQueue });
    worker = runCli(testHost, ['--config', config, 'worker']);
    await worker.line('serving the host');
  });
  afterAll(async () => {
    worker?.kill();
    await worker?.ended;
    await testHost?.end();
    await server?.stop();
  });

  function cli(...args: string[]): Promise<CommandResult> {
    return runCli(testHost, ['--config', config, ...args]).ended;
  }

  async function own(resource: string, program = 'sleeper'): Promise<void> {
    const { handle } = await client.own({ resource, program, host: server.taskQueue });
    await handle.ready();
  }

  it('lists the open owners, shows the status of one, and stops it until it is proven dead (G3)', async () => {
    await own('cli/one');
    let listed = await cli('list'); // Temporal's list is eventually consistent
    for (let i = 0; i < 10 && !listed.stdout.includes('cli/one'); i++) listed = await cli('list');
    expect(listed.stdout).toMatch(new RegExp(`^cli/one\tsleeper\t${server.taskQueue}\t`, 'm'));

    const status = await cli('status', 'cli/one');
    expect(status.stdout).toMatch(/^state +running$/m);
    expect(status.stdout).toMatch(/^unit +\S+-g[0-9]+\.service$/m);
    const json = JSON.parse((await cli('status', 'cli/one', '--json')).stdout) as unknown;
    expect(json).toMatchObject({ resource: 'cli/one', state: 'running', ready: true });

    const stopped = await cli('stop', 'cli/one', '--reason', 'the test is over');
    expect(stopped).toMatchObject({ code: 0, stderr: '' });
    expect(stopped.stdout).toMatch(
      /^cli\/one: signal 15; proven by systemd \(.+\) and its cgroup \((ENOENT|populated 0)\)$/m,
    );
  });

  it('lists the hosts, has one take on nothing new, and has it do so again', async () => {
    const host = server.taskQueue;
    const drained = await cli('drain', host, '--reason', 'a new kernel');
    expect(drained).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(`^${host}: draining, .*: a new kernel\n$`) as string,
    });
    const listed = await until('the host is listed', async () => {
      const { stdout } = await cli('hosts');
      return stdout.split('\n').find((line) => line.startsWith(`${host}\t`));
    });
    expect(listed).toMatch(/\t\d+ of any units\tdraining: a new kernel\tsleeper, stubborn\t\d+\./);
    expect(await cli('undrain', host)).toMatchObject({ code: 0, stdout: `${host}: takes on new resources\n` });
    expect(await cli('drain', 'nowhere')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no host "nowhere"') as string,
    });
  });

  it('exits with 75 while the process is still running, and says what is left; --now ends it (G3)', async () => {
    await own('cli/stubborn', 'stubborn');
    const asked = performance.now();
    const late = await cli('stop', 'cli/stubborn', '--timeout', '3 s');
    expect(late.code).toBe(75);
    expect(performance.now() - asked).toBeLessThan(15_000); // no call of its own keeps the process any longer
    expect(late.stderr).toMatch(/^cli\/stubborn: is still running after 3000 ms: \d+ sh \(state S/m);

    const now = await cli('stop', 'cli/stubborn', '--now');
    expect(now).toMatchObject({ code: 0 });
    expect(now.stdout).toContain('cli/stubborn: signal 9; proven by systemd');
  });

  it('exits with 1 and one line where there is no owner, or no resource of that name can be', async () => {
    const nobody = await cli('status', 'cli/nobody');
    expect(nobody).toMatchObject({ code: 1, stdout: '' });
    expect(nobody.stderr).toMatch(/^cli\/nobody: has no [^\n]*owner[^\n]*\n$/);
    const invalid = await cli('stop', '../etc');
    expect(invalid).toMatchObject({ code: 1, stdout: '' });
    expect(invalid.stderr).toMatch(/^resource "..\/etc" has a segment "..";[^\n]*\n$/);
    expect(await cli('stop', 'cli/nobody', '--timeout', 'soon')).toMatchObject({ code: 1, stdout: '' });
  });

  it('exits with 1 and one line where no Temporal server answers', async () => {
    const nowhere = join(testHost.stateDirectory, 'nowhere.yaml');
    await writeFile(nowhere, 'connection: {address: "127.0.0.1:1"}\nhost: {id: h}\n');
    const { code, stderr } = await runCli(testHost, ['--config', nowhere, 'worker']).ended;
    expect(stderr).toMatch(/^no Temporal server answers at 127\.0\.0\.1:1 [^\n]*\n$/);
    expect(code).toBe(1);
  });

  it('exits with 78 and everything that is wrong at once, for `validate` and for `worker`', async () => {
    const wrong = join(testHost.stateDirectory, 'wrong.yaml');
    await writeFile(
      wrong,
      'host: {resync: never}\nprograms:\n  a: {exec: [relative]}\n  b: {exec: [/bin/true], leese: 1m}\n',
    );
    for (const command of ['validate', 'worker']) {
      const { code, stdout, stderr } = await runCli(testHost, ['--config', wrong, command]).ended;
      expect(stderr).toMatch(/^3 problems in the configuration:$/m);
      for (const path of ['host.resync', 'programs.a.exec[0]', 'programs.b.leese']) expect(stderr).toContain(path);
      expect({ code, stdout }).toEqual({ code: 78, stdout: '' });
    }
  });

  it('finds nothing wrong with the example that is shipped', async () => {
    expect(await runCli(testHost, ['validate', 'temporal.yaml']).ended).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/temporal\.yaml: ok; programs: sleeper, ticker\n$/) as string,
    });
  });
});
