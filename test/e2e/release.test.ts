import { readFile } from 'node:fs/promises';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';
import { until } from '../support/until';

describe('a release', () => {
  let scene: Scene;

  beforeAll(async () => {
    const testHost = await openTestHost();
    const leave = `${testHost.stateDirectory}/leave`;
    scene = await Scene.open(
      [
        script(
          'takes-leave',
          `trap 'sleep 2.5; echo ended >> ${leave}; exit 0' TERM; echo begun >> ${leave}; while :; do sleep 0.1; done`,
          {
            stop: { signal: 'SIGTERM', timeoutMs: 20_000, killMode: 'control-group' },
          },
        ),
        script('sleeper', 'exec sleep 1000', { leaseMs: 6000 }),
        script('short', 'exec sleep 1000', { leaseMs: 3000 }),
      ],
      { testHost },
    );
  });
  afterAll(() => scene?.end());

  it('leaves the process to the next owner of the same (G6)', async () => {
    const first = await scene.own('released', 'sleeper');
    const { unit, generation } = await first.handle.ready();
    const pid = await scene.mainPid(unit);
    await first.handle.release({ reason: 'moving on' });
    expect(await first.handle.result()).toMatchObject({ end: 'released', generation });
    expect(await scene.mainPid(unit)).toBe(pid);

    const next = await scene.own('released', 'sleeper');
    expect(next.outcome).toBe('started');
    expect(await next.handle.ready()).toMatchObject({ unit, generation });
    expect(await scene.mainPid(unit)).toBe(pid);
    // One that wants another program has that one stopped first.
    await next.handle.release();
    await next.handle.result();
    const other = await scene.own('released', 'short');
    const placement = await other.handle.ready();
    expect(placement.generation).toBeGreaterThan(generation);
    expect(await scene.living('released')).toEqual([placement.unit]);
    await other.handle.stop();
  });

  it('has the process stopped gently by a next owner with another program, before that starts its own (G2)', async () => {
    const first = await scene.own('made-way', 'takes-leave');
    const { generation } = await first.handle.ready();
    await until('it has begun', () =>
      readFile(scene.testHost.stateDirectory + '/leave', 'utf8').catch(() => undefined),
    );
    await first.handle.release();
    await first.handle.result();

    const { handle } = await scene.own('made-way', 'sleeper');
    const next = await handle.ready();
    expect(next.generation).toBeGreaterThan(generation);
    // Nothing of its stop timeout is known to this owner, and yet nobody has killed it.
    expect(await readFile(scene.testHost.stateDirectory + '/leave', 'utf8')).toBe('begun\nended\n');
    await handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(4);
  });
});
