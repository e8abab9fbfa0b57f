import { ownerWorkflowId } from '../../src/contract/names';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

/** ResetReapplyExcludeType of Temporal's API. */
const EXCLUDE_UPDATES = 2;

describe('an owner that is reset', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([
      script('sleeper', 'exec sleep 1000', { leaseMs: 6000 }),
      script('slow', 'sleep 3; systemd-notify --ready; exec sleep 1000', { ready: 'notify' }),
      script('deaf', `trap '' TERM; while :; do sleep 0.1; done`, {
        stop: { signal: 'SIGTERM', timeoutMs: 2500, killMode: 'control-group' },
      }),
    ]);
  });
  afterAll(() => scene?.end());

  /** Resets to the end of a workflow task, as the UI's dialog does: requests that came later come along, unless excluded. */
  async function reset(
    name: string,
    eventId: (types: readonly string[]) => number,
    exclude: number[] = [],
  ): Promise<void> {
    const { client, namespace } = scene.server;
    const workflow = scene.workflow(name);
    const [{ runId }, { events }] = await Promise.all([workflow.describe(), workflow.fetchHistory()]);
    const types = events!.map(
      (event) => Object.keys(event).find((key) => key.endsWith('Attributes') && event[key as 'eventId']) ?? '',
    );
    await client.workflowService.resetWorkflowExecution({
      namespace,
      workflowExecution: { workflowId: ownerWorkflowId(scene.resource(name)), runId },
      workflowTaskFinishEventId: eventId(types) as never,
      requestId: `${name}-${runId}`,
      reason: 'for the test',
      resetReapplyExcludeTypes: exclude,
    });
    await until(`${name} runs in another run`, async () => (await workflow.describe()).runId !== runId);
  }
  const firstTask = (types: readonly string[]): number => types.indexOf('workflowTaskCompletedEventAttributes') + 1;
  /** The workflow task that took the answer of the n-th activity: the owner knows its placement then. */
  const taskAfterAnswer = (types: readonly string[]): number =>
    types.indexOf('workflowTaskCompletedEventAttributes', types.indexOf('activityTaskCompletedEventAttributes')) + 1;

  it('to before its start has the same process, and the same handle goes on (G2, G5)', async () => {
    const { handle } = await scene.own('reset-start', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const result = handle.result();
    await reset('reset-start', firstTask);

    expect(await handle.ready()).toMatchObject({ unit });
    expect(await scene.mainPid(unit)).toBe(pid);
    expect(await scene.living('reset-start')).toEqual([unit]);
    const report = await handle.stop();
    expect(report).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
    expect(await result).toEqual(report);
  });

  it('while somebody waits for ready answers them from the next run, which has not heard of them', async () => {
    const { handle } = await scene.own('reset-waiting', 'slow');
    const ready = handle.ready();
    const { placement } = await scene.status('reset-waiting', 'runs', ({ state }) => state === 'running');
    await reset('reset-waiting', taskAfterAnswer, [EXCLUDE_UPDATES]);
    expect(await ready).toMatchObject({ unit: placement!.unit });
    await handle.stop();
  });

  it('to when it had just started goes on holding the same process', async () => {
    const { handle } = await scene.own('reset-middle', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    await reset('reset-middle', taskAfterAnswer);

    const since = Date.now();
    await scene.status('reset-middle', 'is renewed by the new run', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    expect(await scene.mainPid(unit)).toBe(pid);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('to a generation that is over does not forget the one that lives (G2, G3)', async () => {
    const { handle } = await scene.own('reset-former', 'sleeper');
    await handle.ready();
    await handle.restart();
    const status = await scene.status(
      'reset-former',
      'runs again',
      ({ state, restarts }) => state === 'running' && restarts === 1,
    );
    const second = status.placement!;
    const pid = await scene.mainPid(second.unit);
    await reset('reset-former', taskAfterAnswer);

    // It knows the first one only, and hears that this one is over.
    const now = await scene.status('reset-former', 'holds the second', (s) => s.placement?.unit === second.unit);
    expect(now).toMatchObject({ state: 'running', ownerId: handle.ownerId });
    expect(await scene.mainPid(second.unit)).toBe(pid);
    expect(await scene.living('reset-former')).toEqual([second.unit]);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', generation: second.generation });
  });

  it('to a generation that is over, with a stop request, has the one that lives stopped (G3)', async () => {
    const { handle } = await scene.own('reset-stop', 'deaf');
    await handle.ready();
    await handle.restart({ now: true });
    const status = await scene.status(
      'reset-stop',
      'runs again',
      ({ state, restarts }) => state === 'running' && restarts === 1,
    );
    await handle.requestStop();
    await scene.status('reset-stop', 'stops', ({ remaining }) => remaining.length > 0);
    await reset('reset-stop', taskAfterAnswer); // the requests come along

    const report = await handle.result();
    expect(report.proof).toMatchObject({ by: 'empty' });
    expect(report.proof!.readAt).toBeGreaterThan(status.since);
    expect(await scene.living('reset-stop')).toEqual([]);
  });

  it('to before its start after its end, without its requests, has a later generation (G2)', async () => {
    const { handle } = await scene.own('reset-ended', 'sleeper');
    const { generation } = await handle.ready();
    await handle.stop();
    await reset('reset-ended', firstTask, [EXCLUDE_UPDATES]);

    const next = await until('it is ready', () =>
      scene.client
        .handle(scene.resource('reset-ended'))
        .ready()
        .catch(() => undefined),
    );
    expect(next.generation).toBeGreaterThan(generation);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', generation: next.generation });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(5);
  });
});
