import { readFile } from 'node:fs/promises';
import { StillRunningError } from '../../src/client';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';

/** A process's number in its own host, as systemd there tells it: the worker of these tests sees it from outside. */
async function pidInside(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => ''); // a short child may have ended
  return Number(/^NSpid:.*?(\d+)$/m.exec(status)?.[1]);
}

describe('a stop that is not proven yet', () => {
  let scene: Scene;

  beforeAll(async () => {
    const deaf = `trap '' TERM; while :; do sleep 0.1; done`;
    const patient = { stop: { signal: 'SIGTERM', timeoutMs: 600_000, killMode: 'control-group' } } as const;
    scene = await Scene.open([
      script('deaf', deaf, patient),
      script('deaf-but-short', deaf, { stop: { ...patient.stop, timeoutMs: 1500 } }),
      script('slow', `trap 'sleep 1.5; exit 7' TERM; while :; do sleep 0.1; done`, patient),
    ]);
  });
  afterAll(() => scene?.end());

  it('is answered with what is left, is never an end, and is over soon once "now" is asked for (G3)', async () => {
    const { handle } = await scene.own('deaf', 'deaf');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    const error = await handle.stop({ timeout: '1 s', reason: 'test', by: 'ops' }).catch((e: unknown) => e);

    expect(error).toBeInstanceOf(StillRunningError);
    const { remaining } = error as StillRunningError;
    expect(await Promise.all(remaining.map((process) => pidInside(process.pid)))).toContain(pid);
    expect(String(error)).toContain(`${remaining[0]!.pid} ${remaining[0]!.command}`);
    const status = await handle.status();
    expect(status).toMatchObject({
      state: 'stopping',
      rung: 'stop',
      asked: { what: 'stop', by: 'ops', reason: 'test' },
    });
    expect(status.next).toContain('SIGKILL after its stop timeout');
    expect(await scene.mainPid(unit)).toBe(pid);

    expect(await handle.stop({ now: true })).toMatchObject({
      end: 'stopped',
      exit: { wording: 'signal 9' },
      proof: { by: 'empty' },
    });
    expect(await scene.living('deaf')).toEqual([]);
  });

  it('can go to SIGKILL from the start', async () => {
    const { handle } = await scene.own('at-once', 'deaf');
    await handle.ready();
    expect(await handle.stop({ now: true })).toMatchObject({ exit: { wording: 'signal 9' } });
  });

  it('is seen by the host’s watch as soon as the process ends, with its own words', async () => {
    const { handle } = await scene.own('slow', 'slow');
    await handle.ready();
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'exit 7 (exit-code)' } });
    const { events } = await scene.workflow('slow').fetchHistory();
    const fired = events!.filter((event) => event.timerFiredEventAttributes);
    expect(fired).toEqual([]); // no rung had to wait for its time: the host told
  });

  it('becomes a proof when systemd kills after the stop timeout', async () => {
    const { handle } = await scene.own('short', 'deaf-but-short');
    await handle.ready();
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 9' } });
  });

  it('ends before the next generation when a restart was asked for, "now" included (G2)', async () => {
    const { handle } = await scene.own('restarted', 'deaf');
    const first = await handle.ready();
    await handle.restart();
    await scene.status('restarted', 'is being stopped', ({ remaining }) => remaining.length > 0);
    expect(await scene.living('restarted')).toEqual([first.unit]);
    await handle.restart({ now: true });
    const { placement } = await scene.status('restarted', 'runs again', ({ state }) => state === 'running');
    expect(placement!.generation).toBeGreaterThan(first.generation);
    // "now" was for the former generation: the next one is stopped gently again.
    await expect(handle.stop({ timeout: '1 s' })).rejects.toBeInstanceOf(StillRunningError);
    expect((await handle.status()).rung).toBe('stop');
    await handle.stop({ now: true });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(5);
  });
});
