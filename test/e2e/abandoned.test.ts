import type { RunningWorker } from '../support/running-worker';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

/** The host asks an owner every third of it: a process whose owner is gone is stopped long before its lease is over. */
const LEASE_MS = 30_000;

/** What is left on a host when its owner is taken away. */
describe('a process whose owner was taken away', () => {
  let scene: Scene;
  let host: RunningWorker;

  beforeAll(async () => {
    const own = script('sleeper', 'exec sleep 1000', { leaseMs: LEASE_MS });
    const deaf = script('deaf', `trap '' TERM; while :; do sleep 0.1; done`, {
      leaseMs: LEASE_MS,
      stop: { signal: 'SIGTERM', timeoutMs: 2_500, killMode: 'control-group' },
    });
    scene = await Scene.open([own, deaf], { workers: [{ run: ['workflows'] }] });
    host = await scene.startWorker({ run: ['host'], resyncMs: 1_000 });
  });
  afterAll(() => scene?.end());

  it.each(['sleeper', 'deaf'])(
    'by a terminate is stopped until it is proven dead, by an owner that the host has begun: %s (G1, G3)',
    async (program) => {
      const { handle } = await scene.own(`terminated-${program}`, program);
      const { unit, generation } = await handle.ready();
      await scene.workflow(`terminated-${program}`).terminate('for the test');

      const owner = scene.client.handle(scene.resource(`terminated-${program}`));
      const asked = await until('the host has begun an owner', async () => (await owner.status()).asked);
      expect(asked).toMatchObject({ what: 'stop', by: `host ${scene.hostId()}`, reason: 'nobody owned it any more' });
      // Whoever owns it meanwhile joins that one, and gets no second process.
      expect((await scene.own(`terminated-${program}`, program)).outcome).toBe('joined');
      expect(await owner.result()).toMatchObject({
        end: 'stopped',
        exit: { wording: program === 'deaf' ? 'signal 9' : 'signal 15' },
        proof: { by: 'empty' },
        generation,
      });
      expect(await scene.mainPid(unit)).toBe(0);
    },
  );

  it('while no worker of its host was there is found by the next one (G1, G3)', async () => {
    const { handle } = await scene.own('unseen', 'sleeper');
    const { unit } = await handle.ready();
    await host.stop();
    await scene.workflow('unseen').terminate('for the test');
    expect(await scene.mainPid(unit)).toBeGreaterThan(0);
    host = await scene.startWorker({ run: ['host'], resyncMs: 1_000 });
    await until('the host has begun an owner, and that has ended', async () => {
      const { status } = await scene.workflow('unseen').describe();
      return status.name === 'COMPLETED';
    });
    expect(await scene.mainPid(unit)).toBe(0);
  });

  it('by its own decision, in a release, is left to its lease (G7)', async () => {
    const { handle } = await scene.own('released', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    await handle.release();
    await handle.result();
    // Another one that is found and ended meanwhile shows that the host has looked.
    const other = await scene.own('witness', 'sleeper');
    await other.handle.ready();
    await scene.workflow('witness').terminate('for the test');
    await until('the host has looked', async () => {
      return (await scene.workflow('witness').describe()).status.name === 'COMPLETED';
    });
    expect(await scene.mainPid(unit)).toBe(pid);

    const next = await scene.own('released', 'sleeper');
    expect((await next.handle.ready()).unit).toBe(unit);
    await next.handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThanOrEqual(8);
  });
});
