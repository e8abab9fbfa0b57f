import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { openOwnTemporalServer, type OwnTemporalServer } from '../support/temporal-server';
import { until } from '../support/until';

describe('while Temporal is away', () => {
  let server: OwnTemporalServer;
  let scene: Scene;

  beforeAll(async () => {
    server = await openOwnTemporalServer();
    scene = await Scene.open(
      [
        script('long', 'exec sleep 1000', { leaseMs: 20_000 }),
        script('longer', 'exec sleep 1000', { leaseMs: 45_000 }),
        script('short', 'exec sleep 1000', { leaseMs: 4000 }),
      ],
      { server },
    );
  });
  afterAll(() => scene?.end());

  it('a process lives for its lease and no longer; owners learn what happened once it is back (G4, G7)', async () => {
    const [long, short] = await Promise.all([scene.own('long', 'long'), scene.own('short', 'short')]);
    const [longUnit, shortUnit] = [(await long.handle.ready()).unit, (await short.handle.ready()).unit];
    const pid = await scene.mainPid(longUnit);
    await scene.status('long', 'is held', ({ live }) => live !== undefined);

    await server.shutDown('SIGKILL');
    await until('the short lease is over', async () => (await scene.mainPid(shortUnit)) === 0);
    expect(await scene.mainPid(longUnit)).toBe(pid);
    await server.startAgain();

    expect(await short.handle.result()).toMatchObject({ end: 'exited', exit: { wording: 'unowned' } });
    const since = Date.now();
    const status = await scene.status(
      'long',
      'is renewed',
      ({ live, hostUnreachableSince }) => (live?.heartbeatAt ?? 0) > since && !hostUnreachableSince,
    );
    expect(status).toMatchObject({ state: 'running', restarts: 0, placement: { unit: longUnit } });
    expect(await scene.mainPid(longUnit)).toBe(pid);
    expect(await long.handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('longer than the heartbeat timeout and less than the lease, nothing is stopped (G7)', async () => {
    const { handle } = await scene.own('patient', 'longer');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const held = await scene.status('patient', 'is held', ({ live }) => live !== undefined);
    await server.shutDown();
    // Heartbeats time out after two thirds of the lease; what is left of it is enough for the way back.
    await until('the heartbeat timeout is over', () => Date.now() > held.live!.heartbeatAt + 31_000);
    expect(await scene.mainPid(unit)).toBe(pid);
    await server.startAgain();

    const since = Date.now();
    const status = await scene.status('patient', 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    expect(status).toMatchObject({ state: 'running', restarts: 0 });
    expect(await scene.mainPid(unit)).toBe(pid);
    await handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(3);
  });
});
