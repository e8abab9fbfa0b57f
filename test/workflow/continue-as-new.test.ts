import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

/** Steps after which these owners begin a new run: a start and a hold fit in, little more. */
const stepsPerRun = 6;

describe('an owner whose history is long', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([
      script('sleeper', 'exec sleep 1000', { leaseMs: 6000 }),
      script('deaf', `trap '' TERM; while :; do sleep 0.1; done`, {
        stop: { signal: 'SIGTERM', timeoutMs: 30_000, killMode: 'control-group' },
      }),
      script('notifies-late', 'sleep 2; systemd-notify --ready; sleep 1000', { ready: 'notify' }),
    ]);
  });
  afterAll(() => scene?.end());

  const runOf = async (name: string): Promise<string> => (await scene.workflow(name).describe()).runId;

  it('goes on in a new run with its state, its memo, its hold and its process (G2)', async () => {
    const first = await scene.startOwner('long', 'sleeper', { stepsPerRun });
    const handle = scene.client.handle(scene.resource('long'), first.firstExecutionRunId);
    const placement = await handle.ready();
    const pid = await scene.mainPid(placement.unit);
    const memo = await scene
      .workflow('long')
      .describe()
      .then((description) => description.memo);
    for (let runs = 0, run = await runOf('long'); runs < 2; runs++, run = await runOf('long')) {
      await until('there is a new run', async () => {
        await handle.ready(); // each one is a few events
        return (await runOf('long')) !== run;
      });
    }
    expect(await handle.ready()).toEqual(placement);
    const since = Date.now();
    const status = await scene.status('long', 'is held by the new run', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    expect(status).toMatchObject({ ownerId: handle.ownerId, state: 'running', restarts: 0, placement });
    expect((await scene.workflow('long').describe()).memo).toEqual(memo);
    expect(await scene.mainPid(placement.unit)).toBe(pid);
    expect(
      (await scene.client.own({ resource: scene.resource('long'), program: 'sleeper', host: scene.hostId() })).outcome,
    ).toBe('joined');
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('loses none of two hundred requests that arrive meanwhile, nor the last one (G1)', async () => {
    // The server lets a run begin a second after the last one at the earliest: a few of them are enough.
    await scene.startOwner('busy', 'sleeper', { stepsPerRun: 40 });
    const handle = scene.client.handle(scene.resource('busy'));
    const { unit } = await handle.ready();
    const own = { resource: scene.resource('busy'), program: 'sleeper', host: scene.hostId() };
    const ask = async (): Promise<string> => (await scene.client.own(own)).outcome;
    const answers: string[] = [];
    // Ten callers with twenty requests each: more at once would have to wait for each other at the server.
    await Promise.all(
      Array.from({ length: 10 }, async () => {
        for (let n = 0; n < 20; n++) answers.push(await ask());
      }),
    );
    expect(answers).toEqual(Array.from({ length: 200 }, () => 'joined'));
    expect(await scene.living('busy')).toEqual([unit]);
    const another = scene.client.handle(scene.resource('busy'), 'another');
    await Promise.all(Array.from({ length: 20 }, () => another.requestStop()));
    expect((await handle.status()).state).toBe('running'); // all of them were for another owner
    await Promise.all(Array.from({ length: 5 }, () => handle.requestStop({ by: 'the last one' })));
    expect(await handle.result()).toMatchObject({ end: 'stopped' });
  });

  it('goes on stopping at the rung it had come to (G3)', async () => {
    await scene.startOwner('stopping', 'deaf', { stepsPerRun });
    const handle = scene.client.handle(scene.resource('stopping'));
    await handle.ready();
    await handle.requestStop({ by: 'somebody', reason: 'for the test' });
    await scene.status('stopping', 'stops', ({ remaining }) => remaining.length > 0);
    const run = await runOf('stopping');
    await until('there is a new run', async () => {
      await handle.requestStop({ by: 'another' });
      return (await runOf('stopping')) !== run;
    });
    const status = await scene.status('stopping', 'goes on', ({ rung }) => rung !== undefined);
    expect(status).toMatchObject({
      state: 'stopping',
      rung: 'stop',
      asked: { by: 'somebody', reason: 'for the test' },
    });
    expect(await handle.stop({ now: true })).toMatchObject({ end: 'stopped', exit: { wording: 'signal 9' } });
  });

  it('goes on waiting for a host that is away, and does not take a new run for its answer (G4)', async () => {
    const own = { resource: scene.resource('away'), program: 'sleeper', host: 'away' };
    await scene.startOwner('away', 'sleeper', { stepsPerRun, host: own.host });
    const unreachable = await scene.status('away', 'sees no host', (s) => s.hostUnreachableSince !== undefined);
    const run = await runOf('away');
    await until('there is a new run', async () => {
      await scene.client.own(own);
      return (await runOf('away')) !== run;
    });
    const { state, hostUnreachableSince } = await scene.client.handle(own.resource).status();
    expect({ state, hostUnreachableSince }).toEqual({
      state: 'starting',
      hostUnreachableSince: unreachable.hostUnreachableSince,
    });
    expect(await scene.client.handle(own.resource).stop()).toMatchObject({ end: 'never started' });
  });

  it('keeps those who wait for ready waiting', async () => {
    await scene.startOwner('late', 'notifies-late', { stepsPerRun: 12 });
    const handle = scene.client.handle(scene.resource('late'));
    const placements = await Promise.all(Array.from({ length: 12 }, () => handle.ready()));
    expect(new Set(placements.map(({ unit }) => unit)).size).toBe(1);
    await handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(8);
  });
});
