import { writeFile } from 'node:fs/promises';
import { OwnershipClient } from '../../src/client';
import { ResourceFiles } from '../../src/host/generation-files';
import { openTemporalServer, type TemporalServer } from '../support/temporal-server';
import { openTestHost, type TestHost } from '../support/test-host';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

const programs = { sleeper: { exec: ['/bin/sh', '-c', 'exec sleep 1000'], hardening: 'off', lease: '2 min' } };

describe('the worker process', () => {
  let server: TemporalServer;
  let testHost: TestHost;
  let client: OwnershipClient;
  let hostId: string;
  const running = new Set<CliProcess>();

  beforeAll(async () => {
    [server, testHost] = await Promise.all([openTemporalServer(), openTestHost()]);
    client = new OwnershipClient(server.client, { taskQueue: server.taskQueue });
    hostId = server.taskQueue;
  });
  afterEach(async () => {
    for (const worker of running) worker.kill('SIGKILL');
    await Promise.all([...running].map(({ ended }) => ended));
    running.clear();
  });
  afterAll(async () => {
    await testHost?.end();
    await server?.stop();
  });

  async function startWorker(config: string): Promise<CliProcess> {
    const worker = runCli(testHost, ['--config', config, 'worker']);
    running.add(worker);
    await worker.line('serving the host');
    return worker;
  }

  async function mainPid(unit: string): Promise<string> {
    return (await testHost.systemctl('show', '--value', '--property=MainPID', unit)).trim();
  }

  it('ends in under two seconds after SIGTERM, the process goes on, and the next worker goes on holding it (G2, G7)', async () => {
    const config = await writeConfig({ server, testHost, hostId }, programs);
    const first = await startWorker(config);
    const { handle } = await client.own({ resource: 'worker/one', program: 'sleeper', host: hostId });
    const { unit, generation } = await handle.ready();
    const pid = await mainPid(unit);
    // The one that is taken once it is ready, and not completed by that.
    const { root, runDirectory, unitPrefix } = testHost;
    const files = new ResourceFiles(root, runDirectory, unitPrefix, 'worker/one').generation(generation);
    await until('the hold’s token is on disk', async () => (await files.hold.read())?.ready);
    const { deadline } = (await files.lease.read())!;

    const told = performance.now();
    first.kill('SIGTERM');
    expect(await first.ended).toMatchObject({ code: 0 });
    expect(performance.now() - told).toBeLessThan(2_000);
    expect((await testHost.systemctl('is-active', unit)).trim()).toBe('active');

    const second = await startWorker(config);
    expect(await second.line('going on with')).toMatchObject({ resource: 'worker/one', generation, hold: true });
    // By an answer to that token, long before the next renewal would have been due.
    await until('the second worker renews the lease', async () => (await files.lease.read())!.deadline > deadline);
    expect(await handle.status()).toMatchObject({ state: 'running', restarts: 0, live: { unit } });
    expect(await mainPid(unit)).toBe(pid);

    const result = await handle.stop({ reason: 'the test is over' });
    expect(result).toMatchObject({ end: 'stopped', generation, restarts: 0, proof: { by: 'empty' } });
    second.kill('SIGTERM');
    expect(await second.ended).toMatchObject({ code: 0 });
  });

  it('reads its programs again on SIGHUP: what runs goes on, its status says so, and a restart takes the new one (G10)', async () => {
    const programs = (seconds: string): Record<string, unknown> => ({
      sleeper: { exec: ['/bin/sh', '-c', 'exec sleep "$1"', 'sh', seconds], hardening: 'off' },
    });
    const config = await writeConfig({ server, testHost, hostId }, programs('1000'));
    const worker = await startWorker(config);
    const { handle } = await client.own({ resource: 'worker/reload', program: 'sleeper', host: hostId });
    const { unit, generation } = await handle.ready();
    const pid = await mainPid(unit);
    const command = async (of: string): Promise<string> =>
      testHost.systemctl('show', '--value', '--property=ExecStart', of);

    await writeFile(config, 'programs: { sleeper: { exec: sleep } }');
    worker.kill('SIGHUP');
    expect(await worker.line('the configuration is not taken: it can’t be used')).toMatchObject({
      error: expect.stringContaining('programs.sleeper.exec') as string,
    });

    await writeConfig({ server, testHost, hostId }, programs('2000'));
    worker.kill('SIGHUP');
    const changed = await until('the status says that the program changed', async () => {
      const status = await handle.status();
      return status.programState === 'changed' && status;
    });
    expect(changed).toMatchObject({ state: 'running', restarts: 0, placement: { unit } });
    expect(changed.lastEvent).toBe('sleeper: program changed since the start; restart takes the new one');
    expect(await mainPid(unit)).toBe(pid);

    await handle.restart();
    const next = await until('the next generation runs', async () => {
      const status = await handle.status();
      return status.restarts === 1 && status.placement;
    });
    expect(next.generation).toBeGreaterThan(generation);
    expect(await command(next.unit)).toContain('2000');
    expect((await handle.status()).programState).toBe('current');
    await handle.stop();
  });

  it('writes JSON lines that name the host, and the resource and generation where they are about one', async () => {
    const config = await writeConfig({ server, testHost, hostId }, programs);
    const worker = await startWorker(config);
    const { handle } = await client.own({ resource: 'worker/logs', program: 'sleeper', host: hostId });
    const { generation } = await handle.ready();
    await handle.stop();

    const about = { host: hostId, resource: 'worker/logs', generation };
    expect(await worker.line('started')).toMatchObject(about);
    expect(await worker.line('proven')).toMatchObject({ ...about, by: 'empty', exit: 'signal 15' });
  });

  it('exits with 78 and the remedy where somebody else has the unit prefix (G11)', async () => {
    await startWorker(await writeConfig({ server, testHost, hostId }, programs));
    const other = { name: 'other-prefix', state: 'other-prefix' };
    const config = await writeConfig({ server, testHost, hostId: `${hostId}-2` }, programs, other);
    const { code, stderr } = await runCli(testHost, ['--config', config, 'worker']).ended;
    expect(stderr).toContain(`unit prefix "${testHost.unitPrefix}" is taken on this host`);
    expect(stderr).toContain('Give this worker another systemd.unitPrefix');
    expect(stderr).not.toContain('    at '); // no stack: there is nothing to debug
    expect(code).toBe(78);
  });

  it('exits with 78 and the remedy where another instance has the host id (G2)', async () => {
    await startWorker(await writeConfig({ server, testHost, hostId }, programs));
    const other = { name: 'other-id', state: 'other-id', prefix: 'other', run: ['host'] };
    const config = await writeConfig({ server, testHost, hostId }, programs, other);
    const { code, stderr } = await runCli(testHost, ['--config', config, 'worker']).ended;
    expect(stderr).toContain(`host id "${hostId}" is taken`);
    expect(stderr).toContain('Give this host another host.id');
    expect(code).toBe(78);
    await testHost.systemctl('stop', 'other.slice'); // the prefix it had claimed before
  });
});
