import { NotReadyError } from '../../src/client';
import { ActivityName } from '../../src/contract/activities';
import { ownerWorkflowId } from '../../src/contract/names';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

/** What people can do to a workflow in the Temporal UI. */
describe('an operator who', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([
      script('sleeper', 'exec sleep 1000', { leaseMs: 6000 }),
      script('never-ready', 'exec sleep 1000', { leaseMs: 3000, ready: 'notify' }),
      script('short', 'exec sleep 1000', { leaseMs: 3000 }),
      script('deaf', `trap '' TERM; while :; do sleep 0.1; done`, {
        stop: { signal: 'SIGTERM', timeoutMs: 2500, killMode: 'control-group' },
      }),
    ]);
  });
  afterAll(() => scene?.end());

  it('cancels the owner has asked for a stop: it ends with a result, after proof (G3)', async () => {
    const { handle } = await scene.own('cancelled', 'sleeper');
    const { unit } = await handle.ready();
    await scene.workflow('cancelled').cancel();
    expect(await handle.result()).toMatchObject({
      end: 'stopped',
      exit: { wording: 'signal 15' },
      proof: { by: 'empty' },
    });
    expect((await handle.status()).asked).toMatchObject({ what: 'stop', by: 'cancel' });
    expect(await scene.mainPid(unit)).toBe(0);
  });

  it('cancels the owner while it stops takes nothing of the stopping away (G3)', async () => {
    const { handle } = await scene.own('cancelled-twice', 'deaf');
    await handle.ready();
    await handle.requestStop({ by: 'somebody' });
    await scene.status('cancelled-twice', 'stops', ({ remaining }) => remaining.length > 0);
    await scene.workflow('cancelled-twice').cancel();
    expect(await handle.result()).toMatchObject({
      end: 'stopped',
      exit: { wording: 'signal 9' },
      proof: { by: 'empty' },
    });
    expect((await handle.status()).asked?.by).toBe('somebody');
  });

  it('terminates the owner leaves the process to its lease (G7)', async () => {
    const { handle } = await scene.own('terminated', 'short');
    const { unit } = await handle.ready();
    await scene.status('terminated', 'is held', ({ live }) => live !== undefined);
    await scene.workflow('terminated').terminate('for the test');

    expect(await scene.mainPid(unit)).toBeGreaterThan(0);
    await until('the lease is over', async () => (await scene.mainPid(unit)) === 0);
    // Nobody asks any more: the host itself proves it and lets go.
    await until('nothing is left', async () => (await scene.living('terminated')).length === 0);
  });

  it('terminates the owner tells those who wait for ready', async () => {
    const { handle } = await scene.own('waited-for', 'never-ready');
    const waiting = handle.ready().catch((error: unknown) => error);
    await scene.status('waited-for', 'runs', ({ state }) => state === 'running');
    await scene.workflow('waited-for').terminate('for the test');
    const error = await waiting;
    expect(error).toBeInstanceOf(NotReadyError);
    expect(String(error)).toContain('its ownership has ended: for the test');
  });

  it('terminates the owner and owns again has the same process (G2, G6)', async () => {
    const first = await scene.own('again', 'sleeper');
    const { unit } = await first.handle.ready();
    const pid = await scene.mainPid(unit);
    await scene.workflow('again').terminate('for the test');

    const second = await scene.own('again', 'sleeper');
    expect(second.outcome).toBe('started');
    expect(await second.handle.ready()).toMatchObject({ unit });
    expect(await scene.mainPid(unit)).toBe(pid);
    expect(await second.handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('pauses, unpauses and resets the hold’s activity leaves the process alone and its lease renewed (G7)', async () => {
    const { client, namespace } = scene.server;
    const { handle } = await scene.own('paused', 'short');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const { runId } = await scene.workflow('paused').describe();
    const hold = {
      namespace,
      execution: { workflowId: ownerWorkflowId(scene.resource('paused')), runId },
      type: ActivityName.holdOwnership,
    };
    const livesOn = async (): Promise<void> => {
      const { live } = await scene.status('paused', 'is held', (status) => status.live !== undefined);
      await scene.status('paused', 'has lived for a lease', (s) => (s.live?.leaseUntil ?? 0) > live!.leaseUntil + 3000);
      expect(await scene.mainPid(unit)).toBe(pid);
      expect(await handle.status()).toMatchObject({ state: 'running', restarts: 0 });
    };
    await livesOn();
    await client.workflowService.pauseActivity({ ...hold, identity: 'ops' });
    await livesOn();
    await client.workflowService.unpauseActivity({ ...hold, identity: 'ops' });
    await livesOn();
    await client.workflowService.resetActivity({ ...hold, identity: 'ops' });
    await livesOn();
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(7);
  });
});
