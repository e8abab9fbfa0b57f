import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import {
  bootPrivateHost,
  canBootPrivateHosts,
  openTestHost,
  type PrivateHost,
  type TestHost,
} from '../support/test-host';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

describe('an ordinary user', () => {
  let host: PrivateHost | undefined;
  let scene: Scene;
  let worker: CliProcess | undefined;

  beforeAll(async () => {
    let testHost: TestHost;
    if (canBootPrivateHosts) {
      host = await bootPrivateHost();
      testHost = await host.userManager('nobody');
    } else testHost = await openTestHost(); // that is an ordinary user's own manager
    scene = await Scene.open([script('sleeper', '')], { testHost, workers: [{ run: ['workflows'] }] });
    const programs = { sleeper: { exec: ['/bin/sh', '-c', 'exec sleep 1000'], hardening: 'off', lease: '6s' } };
    const at = { server: scene.server, testHost, hostId: scene.hostId() };
    worker = runCli(testHost, ['--config', await writeConfig(at, programs, { run: ['host'] }), 'worker']);
    await worker.line('serving the host');
  });
  afterAll(async () => {
    worker?.kill('SIGTERM');
    await worker?.ended;
    await scene?.end();
    await host?.end();
  });

  it('owns a process on its own manager, under leases, and stops it until it is proven dead (G1, G3, G7)', async () => {
    const { handle } = await scene.own('mine', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const first = await scene.status('mine', 'has a lease', ({ live }) => live !== undefined);
    const later = await scene.status(
      'mine',
      'has lived for a lease',
      ({ live }) => live!.leaseUntil > first.live!.leaseUntil + 6000,
    );
    expect(later).toMatchObject({ state: 'running', restarts: 0, live: { unit } });
    expect(await scene.mainPid(unit)).toBe(pid);

    expect(await handle.stop()).toMatchObject({
      end: 'stopped',
      exit: { wording: 'signal 15' },
      proof: { by: 'empty' },
    });
    expect(await scene.living('mine')).toEqual([]);
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(1);
  });
});
