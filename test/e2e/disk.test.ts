import { script } from '../support/owned-host';
import { describeOnPrivateHost } from '../support/host-suite';
import { Scene } from '../support/scene';
import { bootPrivateHost, type PrivateHost } from '../support/test-host';

describeOnPrivateHost('owners on a host whose run directory is read-only', () => {
  let machine: PrivateHost;
  let scene: Scene;

  beforeAll(async () => {
    machine = await bootPrivateHost();
    await machine.run(['mkdir', '-p', machine.runDirectory]);
    expect(await machine.run(['mount', '-t', 'tmpfs', 'tmpfs', machine.runDirectory])).toMatchObject({ code: 0 });
    scene = await Scene.open([script('sleeper', 'exec sleep 9999', { leaseMs: 6000 })], { testHost: machine });
  });
  afterAll(() => scene?.end());

  async function remount(how: 'ro' | 'rw'): Promise<void> {
    // Not while somebody has a file open for writing.
    while ((await machine.run(['mount', '-o', `remount,${how}`, machine.runDirectory])).code !== 0);
  }

  it('keep what runs, and start nothing, which they say, until it can be written again (G5, G7)', async () => {
    const { handle: held } = await scene.own('held', 'sleeper');
    const { unit } = await held.ready();
    const pid = await scene.mainPid(unit);
    await remount('ro');
    const { handle: refused } = await scene.own('refused', 'sleeper');
    await scene.status('refused', 'says why', ({ lastEvent }) => /^nothing was started.*read-only/.test(lastEvent));
    const { live } = await scene.status('held', 'is held', (status) => status.live !== undefined);
    await scene.status('held', 'is held on', (status) => (status.live?.leaseUntil ?? 0) > live!.leaseUntil + 6000);
    expect(await scene.mainPid(unit)).toBe(pid);
    expect((await refused.status()).state).toBe('starting');
    await remount('rw');
    await refused.ready();
    for (const handle of [held, refused]) expect(await handle.stop()).toMatchObject({ end: 'stopped' });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(2);
  });
});
