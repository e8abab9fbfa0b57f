import type { RunningWorker, RunningWorkerOptions } from '../support/running-worker';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

const restart = { policy: 'on-failure', backoffMs: 50, maxBackoffMs: 100, limit: 3, resetAfterMs: 600_000 } as const;

describe('a lease', () => {
  let scene: Scene;
  let hostWorker: RunningWorker;
  let longHost: RunningWorker;
  let longWorker: Partial<RunningWorkerOptions>;
  /** Runs beside all the other tests of this file, on a host of its own that is left alone. */
  let longRun: Promise<{ readonly before: number; readonly after: number; readonly renewals: number }>;

  beforeAll(async () => {
    scene = await Scene.open(
      [
        script('short', 'exec sleep 1000', { leaseMs: 6000 }),
        script('short-again', 'exec sleep 1000', { leaseMs: 6000, restart }),
        script('ten', 'exec sleep 1000', { leaseMs: 10_000 }),
      ],
      { workers: [{ run: ['workflows'] }] },
    );
    longWorker = {
      run: ['host'],
      hostId: 'h2',
      stateDirectory: `${scene.testHost.stateDirectory}/other`,
      unitPrefix: `${scene.testHost.unitPrefix}b`,
    };
    longHost = await scene.startWorker(longWorker);
    hostWorker = await scene.startWorker({ run: ['host'] });
    longRun = holdFor(120_000);
    longRun.catch(() => undefined); // awaited in its own test
  });
  afterAll(() => scene?.end());

  async function holdFor(ms: number): Promise<{ before: number; after: number; renewals: number }> {
    const { handle } = await scene.own('long', 'ten', {}, 'h2');
    const { unit } = await handle.ready();
    const before = await scene.mainPid(unit);
    const first = await scene.status('long', 'has a lease', ({ live }) => live !== undefined);
    let seen = first;
    let renewals = 0;
    while (seen.live!.leaseUntil < first.live!.leaseUntil + ms) {
      const known = seen.live!.leaseUntil;
      seen = await scene.status('long', 'renews', ({ live, state }) => state !== 'running' || live!.leaseUntil > known);
      renewals++;
      if (seen.state !== 'running') throw new Error(`the long one ended: ${seen.lastEvent}`);
    }
    return { before, after: await scene.mainPid(unit), renewals };
  }

  it('is renewed for as long as its owner is open, at no history event (G7)', async () => {
    const { handle } = await scene.own('renewed', 'short');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const first = await scene.status('renewed', 'has a lease', ({ live }) => live !== undefined);
    const { historyLength } = await scene.workflow('renewed').describe();
    const later = await scene.status(
      'renewed',
      'has lived for two',
      ({ live }) => live!.leaseUntil > first.live!.leaseUntil + 12_000,
    );

    expect(later).toMatchObject({ state: 'running', restarts: 0 });
    expect(await scene.mainPid(unit)).toBe(pid);
    // None at all, unless a busy machine made the host miss a heartbeat: that shows, and ends nothing.
    const { historyLength: after } = await scene.workflow('renewed').describe();
    if (!later.lastEvent.includes('the host is back')) expect(after).toBe(historyLength);
    await handle.stop();
  });

  it('that nobody renews ends the process; its owner learns that it was unowned, and its policy decides (G7, G8)', async () => {
    const [once, again] = await Promise.all([scene.own('once', 'short'), scene.own('again', 'short-again')]);
    const units = [(await once.handle.ready()).unit, (await again.handle.ready()).unit];
    await scene.status('again', 'is held', ({ live }) => live !== undefined);
    await hostWorker.stop();

    await until('systemd has ended both', async () =>
      (await Promise.all(units.map((unit) => scene.mainPid(unit)))).every((pid) => pid === 0),
    );
    // The owner can't know, and does not say that it does (G4).
    const unknown = await scene.status(
      'once',
      'misses its host',
      ({ hostUnreachableSince }) => hostUnreachableSince !== undefined,
    );
    expect(unknown.state).toBe('running');

    hostWorker = await scene.startWorker({ run: ['host'] });
    expect(await once.handle.result()).toMatchObject({ end: 'exited', exit: { wording: 'unowned', kind: 'unowned' } });
    const status = await scene.status(
      'again',
      'runs again',
      ({ state, restarts }) => state === 'running' && restarts === 1,
    );
    expect(status.lastExit).toMatchObject({ wording: 'unowned' });
    expect(await scene.living('again')).toEqual([status.placement!.unit]);
    await again.handle.stop();
  });

  it('outlives a worker that comes back in time: the same process is held on', async () => {
    const { handle } = await scene.own('worker', 'ten');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    await scene.status('worker', 'is held', ({ live }) => live !== undefined);
    await hostWorker.stop();
    const stopped = Date.now();
    hostWorker = await scene.startWorker({ run: ['host'] });
    await scene.status('worker', 'is renewed', ({ live }) => live!.heartbeatAt > stopped);
    expect(await scene.mainPid(unit)).toBe(pid);
    await handle.stop();
  });

  it('of ten seconds keeps the same process for two minutes of renewals, and ends it once its worker is dead (G7)', async () => {
    const { before, after, renewals } = await longRun;
    expect(after).toBe(before);
    expect(renewals).toBeGreaterThanOrEqual(24);

    const handle = scene.client.handle(scene.resource('long'));
    const { unit } = (await handle.status()).placement!;
    await longHost.stop();
    await until('systemd has ended it', async () => (await scene.mainPid(unit)) === 0);
    await scene.startWorker(longWorker);
    expect(await handle.result()).toMatchObject({ end: 'exited', exit: { wording: 'unowned' } });
  }, 240_000);

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(5);
  });
});
