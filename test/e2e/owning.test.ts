import {
  InvalidResourceError,
  NoEndpointError,
  NoOwnerError,
  OwnershipConflictError,
  type OwnOptions,
} from '../../src/client';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

describe('an owner and those who ask for it', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([
      script('sleeper', 'exec sleep 1000'),
      script('other', 'exec sleep 1000'),
      script('listens', 'exec sleep 1000', { endpoint: { host: '127.0.0.1', ports: [24_190, 24_199] } }),
      script('tenant', 'exec sleep 1000', { parameters: { tenant: /^(?:[a-z]+)$/ } }),
    ]);
  });
  afterAll(() => scene?.end());

  it('is joined by a second own of the same (G1)', async () => {
    const first = await scene.own('join', 'sleeper');
    const placement = await first.handle.ready();
    const second = await scene.own('join', 'sleeper');

    expect([first.outcome, second.outcome]).toEqual(['started', 'joined']);
    expect(second.handle.ownerId).toBe(first.handle.ownerId);
    expect(await second.handle.ready()).toEqual(placement);
    await second.handle.stop();
  });

  it('is started once by twenty that own at the same time (G1, G2)', async () => {
    const all = await Promise.all(Array.from({ length: 20 }, () => scene.own('race', 'sleeper')));

    expect(all.filter(({ outcome }) => outcome === 'started')).toHaveLength(1);
    expect(new Set(all.map(({ handle }) => handle.ownerId)).size).toBe(1);
    const units = new Set((await Promise.all(all.map(({ handle }) => handle.ready()))).map(({ unit }) => unit));
    expect(await scene.living('race')).toEqual([...units]);
    await all[0]!.handle.stop();
  });

  it('tells where its process listens, and has nothing to tell of one that declares no endpoint', async () => {
    const { handle } = await scene.own('endpoint', 'listens');
    const { endpoint } = await handle.ready();
    expect(endpoint).toEqual({ host: '127.0.0.1', port: expect.any(Number) as number });
    expect((await handle.status()).endpoint).toEqual(endpoint);
    expect(await handle.endpoint()).toEqual({ ...endpoint, available: true });
    await handle.stop();

    const without = await scene.own('endpoint', 'sleeper');
    expect(await without.handle.ready()).not.toHaveProperty('endpoint');
    await expect(without.handle.endpoint()).rejects.toBeInstanceOf(NoEndpointError);
    await without.handle.stop();
  });

  it('refuses a joiner with another program, host or parameters and shows both (G1)', async () => {
    const { handle } = await scene.own('conflict', 'tenant', { tenant: 'acme' });
    await handle.ready();
    const resource = scene.resource('conflict');
    const existing = { program: 'tenant', host: scene.hostId(), parameters: { tenant: 'acme' } };
    const changes: Partial<OwnOptions>[] = [
      { program: 'other' },
      { host: 'elsewhere' },
      { parameters: {} },
      { parameters: { tenant: 'b' } },
    ];
    for (const change of changes) {
      const requested = { ...existing, ...change };
      const error = await scene.client.own({ resource, ...requested }).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(OwnershipConflictError);
      expect(error).toMatchObject({ resource, requested, existing });
    }
    expect((await handle.status()).state).toBe('running');
    await handle.stop();
  });

  it('answers every stop with the same report: at the same time, again, and after the end (G3)', async () => {
    const { handle } = await scene.own('twice', 'sleeper');
    await handle.ready();
    const [one, two] = await Promise.all([handle.stop({ reason: 'first' }), handle.stop({ reason: 'second' })]);

    expect(one).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' }, proof: { by: 'empty' } });
    expect(two).toEqual(one);
    expect(await handle.stop()).toEqual(one);
    expect(await scene.client.handle(scene.resource('twice')).stop()).toEqual(one);
  });

  it('answers a former owner’s handle with that owner’s report, and leaves the next owner alone', async () => {
    const former = (await scene.own('former', 'sleeper')).handle;
    const report = await former.stop();
    const next = (await scene.own('former', 'sleeper')).handle;
    await next.ready();

    expect(await former.stop()).toEqual(report);
    await former.requestStop();
    await expect(former.restart()).rejects.toBeInstanceOf(NoOwnerError);
    await expect(former.release()).rejects.toBeInstanceOf(NoOwnerError);
    await expect(former.status()).rejects.toBeInstanceOf(NoOwnerError);
    await expect(former.ready()).rejects.toThrow('its ownership has ended');
    const { state, asked } = await next.status();
    expect({ state, asked }).toEqual({ state: 'running', asked: undefined });
    await next.stop();
  });

  it('shows what it does, and live facts from the host', async () => {
    const { handle } = await scene.own('shown', 'sleeper');
    const { unit, generation } = await handle.ready();
    expect(await handle.status()).toMatchObject({
      state: 'running',
      ready: true,
      placement: { unit, generation },
      restarts: 0,
    });

    const listed = await until('the owner is listed with its unit', async () => {
      for await (const owner of scene.client.list())
        if (owner.resource === scene.resource('shown') && owner.unit) return owner;
      return undefined;
    });
    expect(listed).toMatchObject({ program: 'sleeper', host: scene.hostId(), parameters: {}, unit });
    await handle.stop({ by: 'ops', reason: 'test' });
    expect(await handle.status()).toMatchObject({ state: 'stopped', asked: { by: 'ops', reason: 'test' } });
  });

  it('is told of a name that can’t be used before anything is asked', async () => {
    await expect(scene.client.own({ resource: 'a//b', program: 'sleeper', host: 'h' })).rejects.toBeInstanceOf(
      InvalidResourceError,
    );
    await expect(scene.client.handle('never/owned').status()).rejects.toBeInstanceOf(NoOwnerError);
  });

  it('loses no own that arrives while the former owner ends (G1, G2)', async () => {
    for (let round = 0; round < 5; round++) {
      const { handle } = await scene.own('handover', 'sleeper');
      await handle.ready();
      const stopping = handle.stop();
      const owns = [];
      for (let i = 0; i < 8; i++) {
        owns.push(scene.own('handover', 'sleeper'));
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      const results = await Promise.all(owns);
      await stopping;
      expect(
        results.map(({ outcome }) => outcome).filter((outcome) => outcome === 'started').length,
      ).toBeLessThanOrEqual(1);
      const last = (await scene.own('handover', 'sleeper')).handle;
      const { unit } = await last.ready();
      expect(await scene.living('handover')).toEqual([unit]);
      await last.stop();
    }
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(10);
  });
});
