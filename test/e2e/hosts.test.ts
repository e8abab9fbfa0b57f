import { HostFullError, NoHostError, type ListedHost } from '../../src/client';
import { hostStatusQuery, type HostStatus } from '../../src/contract/host';
import { hostWorkflowId } from '../../src/contract/names';
import type { RunningWorker } from '../support/running-worker';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

describe('a host', () => {
  let scene: Scene;
  let worker: RunningWorker;
  const start = async (): Promise<void> => {
    worker = await scene.startWorker({ run: ['host'], capacity: { units: 2 }, resyncMs: 1_000 });
  };

  beforeAll(async () => {
    scene = await Scene.open([script('sleeper', 'exec sleep 1000', { leaseMs: 120_000 })], {
      workers: [{ run: ['workflows'] }],
    });
    await start();
  });
  afterAll(() => scene?.end());

  /** The host as the client lists it, once it is as it should be. */
  const listed = (what: string, fits: (host: ListedHost) => boolean): Promise<ListedHost> =>
    until(`the host ${what}`, async () => {
      for await (const host of scene.client.hosts()) if (host.host === scene.hostId() && fits(host)) return host;
      return undefined;
    });

  const endOf = async (name: string): Promise<void> => {
    await scene.client.handle(scene.resource(name)).stop();
  };

  it('is listed with what it is, what it may take on, and what it holds', async () => {
    const { handle } = await scene.own('shown', 'sleeper');
    const { bootId, instance } = await handle.ready();
    const host = await listed('holds one', ({ live }) => live?.units === 1);
    expect(host).toMatchObject({
      host: scene.hostId(),
      instance,
      report: { instance, bootId, programs: ['sleeper'], capacity: { units: 2 }, protocol: 1 },
      live: { resources: [scene.resource('shown')], memoryBytes: 0 },
    });
    expect(host.report!.version).toMatch(/^\d+\.\d+\.\d+/);
    expect(host).not.toHaveProperty('draining');
    await endOf('shown');
    await listed('holds none', ({ live }) => live?.units === 0);
  });

  it('that is full refuses the next resource as HostFull, and takes it on once there is room', async () => {
    const kept = [await scene.own('first', 'sleeper'), await scene.own('second', 'sleeper')];
    for (const { handle } of kept) await handle.ready();
    const third = await scene.own('third', 'sleeper');
    await expect(third.handle.ready()).rejects.toMatchObject({
      name: 'HostFullError',
      message: expect.stringContaining('the host is full: 2 of 2 units') as string,
    });
    await expect(third.handle.result()).rejects.toBeInstanceOf(HostFullError);
    expect(await scene.living('third')).toEqual([]);

    await endOf('first');
    await (await scene.own('third', 'sleeper')).handle.ready();
    await endOf('second');
    await endOf('third');
  });

  it('that is drained takes on nothing new, lets restart what it has, and stays drained over a restart of its worker', async () => {
    const { handle } = await scene.own('goes-on', 'sleeper');
    const { generation } = await handle.ready();
    await scene.client.drain(scene.hostId(), { reason: 'a new kernel', by: 'somebody' });
    await listed('is drained', ({ live }) => live?.draining === 'a new kernel');

    const refused = async (name: string): Promise<void> =>
      expect((await scene.own(name, 'sleeper')).handle.ready()).rejects.toThrow(/being drained: a new kernel/);
    await refused('new');
    await handle.restart();
    await scene.status('goes-on', 'runs again', (s) => s.state === 'running' && s.placement!.generation > generation);

    await worker.stop();
    await start();
    await refused('newer');
    expect((await scene.client.undrain(scene.hostId())).draining).toBeUndefined();
    await listed('takes on more', ({ live }) => live !== undefined && live.draining === undefined);
    await (await scene.own('newer', 'sleeper')).handle.ready();
    await endOf('newer');
    await endOf('goes-on');
  });

  it('of another id is none', async () => {
    await expect(scene.client.drain('no-such-host')).rejects.toMatchObject({
      name: 'NoHostError',
      message: new NoHostError('no-such-host').message,
    });
  });

  it('that was not heard of for a minute is unreachable, until its worker is back (G4)', async () => {
    const { client } = scene.server;
    const status = (): Promise<HostStatus> =>
      client.workflow.getHandle(hostWorkflowId(scene.hostId())).query(hostStatusQuery);
    await worker.stop();
    await until('the host is unreachable', async () => (await status()).unreachableSince, 120_000);
    const { historyLength } = await client.workflow.getHandle(hostWorkflowId(scene.hostId())).describe();
    await start();
    await until('the host is back', async () => (await status()).unreachableSince === undefined);
    await listed('is heard of', ({ live }) => live !== undefined);
    expect(historyLength).toBeLessThan(100);
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThanOrEqual(8);
  });
});
