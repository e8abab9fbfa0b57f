import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { RequestRefusedError } from '../../src/client';
import type { RestartPolicy } from '../../src/config/config';
import { script } from '../support/owned-host';
import { openTestHost } from '../support/test-host';
import { Scene } from '../support/scene';
import { until } from '../support/until';

/** Writes when it begins and, where it is told to end, when it is about to: once per process. */
const log = (file: string): string => `echo "$OWNED_GENERATION begin $$" >> ${file}`;

describe('a restart', () => {
  let scene: Scene;
  let folder: string;

  beforeAll(async () => {
    const testHost = await openTestHost();
    folder = testHost.stateDirectory;
    const restart = (change: Partial<RestartPolicy>): RestartPolicy => ({
      policy: 'on-failure',
      backoffMs: 50,
      maxBackoffMs: 100,
      limit: 2,
      resetAfterMs: 600_000,
      ...change,
    });
    const file = (name: string): string => join(folder, name);
    scene = await Scene.open(
      [
        script('clean', `${log(file('clean'))}; exit 0`, { restart: restart({}) }),
        script('fails', `${log(file('fails'))}; exit 3`, { restart: restart({}) }),
        script('fails-once', `${log(file('once'))}; [ $(wc -l < ${file('once')}) -gt 1 ] && exec sleep 1000; exit 3`, {
          restart: restart({}),
        }),
        script('always', `${log(file('always'))}; exit 0`, { restart: restart({ policy: 'always' }) }),
        script('slow-back-off', 'exit 3', { restart: restart({ backoffMs: 600_000, maxBackoffMs: 600_000 }) }),
        script(
          'witness',
          `trap 'sleep 0.3; echo "$OWNED_GENERATION end" >> ${file('witness')}; exit 0' TERM
           ${log(file('witness'))}
           while :; do sleep 0.05; done`,
        ),
      ],
      { testHost },
    );
  });
  afterAll(() => scene?.end());

  async function lines(name: string): Promise<readonly string[]> {
    return (await readFile(join(folder, name), 'utf8')).trim().split('\n');
  }

  it('does not follow a clean exit under on-failure', async () => {
    const { handle } = await scene.own('clean', 'clean');
    expect(await handle.result()).toMatchObject({ end: 'exited', exit: { wording: 'exit 0' }, restarts: 0 });
    expect(await lines('clean')).toHaveLength(1);
  });

  it('follows a failure under on-failure, as a higher generation (G2)', async () => {
    const { handle } = await scene.own('once', 'fails-once');
    const status = await scene.status(
      'once',
      'runs again',
      ({ state, restarts }) => state === 'running' && restarts === 1,
    );
    expect(status.lastExit).toMatchObject({ wording: 'exit 3 (exit-code)' });
    const [first, second] = (await lines('once')).map((line) => Number(line.split(' ')[0]));
    expect(second).toBeGreaterThan(first!);
    expect(status.placement?.generation).toBe(second);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', generation: second, restarts: 1 });
  });

  it('gives up after its limit, goes on when a person asks, and ends as stopped when a person asks', async () => {
    const { handle } = await scene.own('limit', 'fails');
    await scene.status('limit', 'has given up', ({ state }) => state === 'gave-up');
    expect(await lines('fails')).toHaveLength(3);
    await expect(handle.ready()).rejects.toThrow('gave-up');

    await handle.restart({ by: 'a person' });
    await scene.status('limit', 'has given up again', ({ state, restarts }) => state === 'gave-up' && restarts >= 5);
    expect(await lines('fails')).toHaveLength(6);
    expect(await handle.stop()).toMatchObject({
      end: 'stopped',
      exit: { wording: 'exit 3 (exit-code)' },
      proof: { by: 'empty' },
    });
  });

  it('follows every exit under always', async () => {
    const { handle } = await scene.own('always', 'always');
    await scene.status('always', 'has given up', ({ state }) => state === 'gave-up');
    expect(await lines('always')).toHaveLength(3);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', restarts: 2 });
  });

  it('that waits for its back-off ends at once when somebody asks to stop, and starts at once when somebody asks to', async () => {
    const { handle } = await scene.own('back-off', 'slow-back-off');
    await scene.status('back-off', 'backs off', ({ state }) => state === 'backing-off');
    await handle.restart();
    await scene.status(
      'back-off',
      'backs off again',
      ({ state, restarts }) => state === 'backing-off' && restarts === 1,
    );
    expect(await handle.stop()).toMatchObject({ end: 'stopped', restarts: 1 });
  });

  it('on request starts the next generation after the proof: never two at once (G2, G3)', async () => {
    const { handle } = await scene.own('witness', 'witness');
    const generations = [(await handle.ready()).generation];
    for (let restarts = 1; restarts <= 4; restarts++) {
      await until('the process has begun', async () => (await lines('witness')).length === 2 * restarts - 1);
      await Promise.all([handle.restart({ reason: 'test' }), handle.restart()]); // two ask, one restart comes of it
      const { placement } = await scene.status(
        'witness',
        'runs again',
        (s) => s.state === 'running' && s.restarts === restarts,
      );
      generations.push(placement!.generation);
    }
    await until('the last one has begun', async () => (await lines('witness')).length === 9);
    await handle.stop();

    expect(generations).toEqual([...generations].sort((a, b) => a - b));
    const told = (await lines('witness')).map((line) => line.split(' ').slice(0, 2).join(' '));
    expect(told).toEqual(generations.flatMap((generation) => [`${generation} begin`, `${generation} end`]));
  });

  it('is refused once a stop was asked for', async () => {
    const { handle } = await scene.own('late', 'witness');
    await handle.ready();
    await handle.requestStop({ by: 'ops' });
    const error = await handle.restart().catch((e: unknown) => e);
    expect(error).toBeInstanceOf(RequestRefusedError);
    expect(String(error)).toContain('restart refused: stop was asked before (by ops)');
    await handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(5);
  });
});
