import { NotReadyError, ProgramRefusedError } from '../../src/client';
import { program, script } from '../support/owned-host';
import { Scene } from '../support/scene';

const notify = `systemd-notify --ready`;

describe('a program', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([
      script('zero', 'exit 0'),
      script('three', 'exit 3'),
      script('aborts', 'kill -9 $$'),
      program('absent', ['/nonexistent/program']),
      script('tenant', 'exec sleep 1000', { parameters: { tenant: /^(?:[a-z]+)$/ } }),
      script('waits', `sleep 1000`, { ready: 'notify' }),
      script('notifies', `${notify}; sleep 1000`, {
        ready: 'notify',
        stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
      }),
    ]);
  });
  afterAll(() => scene?.end());

  it.each([
    ['zero', { wording: 'exit 0', kind: 'exit', status: 0 }],
    ['three', { wording: 'exit 3 (exit-code)', kind: 'exit', status: 3 }],
    ['aborts', { wording: 'signal 9', kind: 'signal', status: 9 }],
    ['absent', { wording: 'exit 203 (exit-code)', kind: 'exit', status: 203 }],
  ])('that ends at once (%s) ends its owner after proof, with its own words (G3)', async (name, exit) => {
    const { handle } = await scene.own(name, name);
    const result = await handle.result();
    expect(result).toMatchObject({ end: 'exited', exit, proof: { by: 'empty' }, restarts: 0 });
    expect(await scene.living(name)).toEqual([]);
    await expect(handle.ready()).rejects.toBeInstanceOf(NotReadyError);
    expect(await handle.stop()).toEqual(result);
  });

  it.each([
    ['of an unknown name', 'nobody', {}, 'no program "nobody" on this host'],
    ['with a parameter against its pattern', 'tenant', { tenant: '../etc' }, 'tenant'],
    ['with an unknown parameter', 'tenant', { tenant: 'a', more: 'b' }, 'more'],
    ['without its parameter', 'tenant', {}, 'tenant'],
  ])('%s is refused, and nothing is started (G10)', async (title, name, parameters, message) => {
    const resource = title.replaceAll(' ', '-');
    const { handle } = await scene.own(resource, name, parameters);
    const error = await handle.ready().catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ProgramRefusedError);
    expect(String(error)).toContain(message);
    expect((await scene.workflow(resource).describe()).status.name).toBe('FAILED');
    await expect(handle.stop()).rejects.toBeInstanceOf(ProgramRefusedError);
    expect(await scene.living(resource)).toEqual([]);
  });

  it('that notifies is ready when it says so, and not before', async () => {
    const { handle } = await scene.own('notifies', 'notifies');
    const placement = await handle.ready();
    expect(placement.notifies).toBe(true);
    expect((await scene.testHost.systemctl('show', '--property=ActiveState', '--value', placement.unit)).trim()).toBe(
      'active',
    );
    await handle.stop();
  });

  it('that is not ready yet keeps twenty waiting, and is stopped at once all the same', async () => {
    const { handle } = await scene.own('waits', 'waits');
    const waiting = Array.from({ length: 20 }, () => handle.ready().catch((error: unknown) => error));
    await scene.status('waits', 'runs and is not ready', ({ state, ready }) => state === 'running' && !ready);

    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
    for (const error of await Promise.all(waiting)) expect(error).toBeInstanceOf(NotReadyError);
    const { events } = await scene.workflow('waits').fetchHistory();
    expect(events!.length).toBeLessThan(200); // those who have to ask again cost no history
    // Counted as a task begins, which is what the server does: within one task, answers are written after what was accepted.
    let open = 0;
    const openAtOnce = events!.map((event) => {
      if (event.workflowExecutionUpdateAcceptedEventAttributes) open++;
      if (event.workflowExecutionUpdateCompletedEventAttributes) open--;
      return event.workflowTaskStartedEventAttributes ? open : 0;
    });
    // Four wait at most, so that the stop found room beside them: with ten, a run would take no further update.
    expect(Math.max(...openAtOnce)).toBeLessThanOrEqual(4);
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(8);
  });
});
