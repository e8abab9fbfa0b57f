import {
  HostUnreachableError,
  NoAnswerError,
  OwnershipClient,
  OwnUnconfirmedError,
  StillRunningError,
} from '../../src/client';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

describe('an owner whose host does not answer', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([script('sleeper', 'exec sleep 1000')], { workers: [{ run: ['workflows'] }] });
  });
  afterAll(() => scene?.end());

  const historyLength = async (name: string): Promise<number> => (await scene.workflow(name).describe()).historyLength;
  const unreachable = (name: string) =>
    scene.status(name, 'sees no host', ({ hostUnreachableSince }) => hostUnreachableSince !== undefined);

  it('says so, waits at no cost, and starts when the host comes; a stop before that leaves nothing behind (G4, G5)', async () => {
    const [waiting, stopped] = await Promise.all([scene.own('waiting', 'sleeper'), scene.own('stopped', 'sleeper')]);
    const error = await waiting.handle.ready().catch((e: unknown) => e);
    expect(error).toBeInstanceOf(HostUnreachableError);
    expect(String(error)).toContain(`host "${scene.hostId()}" has not answered since`);
    expect((await waiting.handle.status()).state).toBe('starting');

    // The other one is told to stop before any host has seen its start.
    await unreachable('stopped');
    expect(await stopped.handle.stop()).toMatchObject({ end: 'never started', exit: { wording: 'never started' } });

    const before = await historyLength('waiting');
    for (let asked = 0; asked < 20; asked++) await waiting.handle.status();
    await scene.status('waiting', 'still waits', ({ since }) => Date.now() - since > 15_000);
    expect(await historyLength('waiting')).toBe(before);

    const worker = await scene.startWorker({ run: ['host'] });
    const { unit } = await until('it is ready', () => waiting.handle.ready().catch(() => undefined));
    expect(await scene.living('waiting')).toEqual([unit]);
    expect((await waiting.handle.status()).hostUnreachableSince).toBeUndefined();
    // Whatever waited in the host's queue has been taken before that start's hold.
    expect(await scene.living('stopped')).toEqual([]);

    await worker.stop();
    const stillRunning = await waiting.handle.stop({ timeout: '1 s' }).catch((e: unknown) => e);
    expect(stillRunning).toBeInstanceOf(StillRunningError);
    expect(await scene.living('waiting')).toEqual([unit]);
    expect(await unreachable('waiting')).toMatchObject({ state: 'stopping', rung: 'stop' });
    // "now" is heeded once the host is there, although the first rung still waits for it.
    await waiting.handle.requestStop({ now: true });
    const again = await scene.startWorker({ run: ['host'] });
    expect(await waiting.handle.result()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
    await again.stop();
  });

  it('may be stopped while its start is under way: what was started is proven dead (G3, G5)', async () => {
    const worker = await scene.startWorker({ run: ['host'] });
    for (let round = 0; round < 10; round++) {
      const name = `under-way-${round}`;
      const { handle } = await scene.own(name, 'sleeper');
      await new Promise((resolve) => setTimeout(resolve, round * 8));
      const result = await handle.stop();
      expect(['stopped', 'never started']).toContain(result.end);
      expect(await scene.living(name)).toEqual([]);
    }
    await worker.stop();
  });

  it('is not confirmed where no worker runs owners, and says what is missing', async () => {
    const client = new OwnershipClient(scene.server.client, {
      taskQueue: `${scene.server.taskQueue}-nobody`,
      timeout: '1 s',
    });
    const resource = scene.resource('unconfirmed');
    const error = await client.own({ resource, program: 'sleeper', host: scene.hostId() }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(OwnUnconfirmedError);
    expect(String(error)).toContain('the owner may exist');
    await expect(client.handle(resource).status()).rejects.toBeInstanceOf(NoAnswerError);
    await scene.workflow('unconfirmed').terminate();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(8);
  });
});
