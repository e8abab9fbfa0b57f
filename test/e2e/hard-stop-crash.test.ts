import type { LiveStatus } from '../../src/client';
import { ActivityName, type Rung } from '../../src/contract/activities';
import { mountFreezable, whyNoFreezing, type FreezableMount } from '../support/freezable-mount';
import { describeOnPrivateHost } from '../support/host-suite';
import { Scene } from '../support/scene';
import { bootPrivateHost, type PrivateHost } from '../support/test-host';
import { livingUnits, processesOf } from '../support/unit-processes';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

const ladder: readonly Rung[] = ['stop', 'kill', 'cgroup-kill', 'watch'];

describeOnPrivateHost('a stop whose worker process is killed', () => {
  let machine: PrivateHost;
  let disk: FreezableMount | undefined;
  let scene: Scene;
  let config: string;
  let worker: CliProcess | undefined;

  beforeAll(async () => {
    machine = await bootPrivateHost();
    // Owners in this process; the host's worker is a process of its own, inside the host, that can be killed.
    scene = await Scene.open([], { testHost: machine, workers: [{ run: ['workflows'] }] });
    if (!whyNoFreezing) disk = await mountFreezable(machine);
    const shell = (text: string, timeout: string): object => ({
      exec: ['/bin/sh', '-c', text],
      hardening: 'off',
      stop: { timeout },
    });
    config = await writeConfig(
      { server: scene.server, testHost: machine, hostId: scene.hostId() },
      {
        deaf: shell(`trap '' TERM; sleep 9999 & while :; do sleep 9999; done`, '5 min'),
        orphans: shell(`setsid sh -c 'trap "" TERM; while :; do sleep 9999; done' & exit 0`, '5 min'),
        'last-words': shell(`trap 'exit 7' TERM; while :; do sleep 0.1; done`, '5 min'),
        writer: shell(`while :; do echo x > ${disk?.path}/$OWNED_GENERATION; sleep 0.02; done`, '300ms'),
      },
      { run: ['host'] },
    );
  });
  afterEach(async () => {
    process.kill(machine.pid, 'SIGCONT');
    await disk?.thaw();
    await killWorker();
  });
  afterAll(async () => {
    await disk?.end(); // before the host's own end
    await scene?.end();
  });

  async function startWorker(): Promise<CliProcess> {
    worker = runCli(machine, ['--config', config, 'worker']);
    await worker.line('serving the host');
    return worker;
  }

  async function killWorker(): Promise<void> {
    worker?.kill('SIGKILL');
    await worker?.ended;
    worker = undefined;
  }

  /** Whether a rung was climbed in vain, or a later one, where that one was too short to be seen. */
  const stands =
    (rung: Rung) =>
    ({ rung: at, remaining, lastEvent }: LiveStatus): boolean =>
      remaining.length > 0 &&
      ladder.indexOf(at as Rung) >= ladder.indexOf(rung) &&
      (at !== rung || lastEvent.startsWith(`still running after ${rung}`));

  const living = (name: string): Promise<readonly string[]> => livingUnits(machine, scene.resource(name));

  it.each(['deaf', 'orphans'])(
    'while systemd waits for %s to end goes on with the next one, and ends with proof (G3)',
    async (program) => {
      await startWorker();
      const { handle } = await scene.own(program, program);
      const { placement } = await scene.status(program, 'is there', (status) => status.placement !== undefined);
      const first = placement!;
      await handle.requestStop({ reason: 'test' });
      await scene.status(program, 'is being stopped', stands('stop'));
      await killWorker();
      expect((await handle.status()).state).toBe('stopping');
      expect(await living(program)).toEqual([first.unit]);

      const next = await startWorker();
      expect(await next.line('going on with')).toMatchObject({ generation: first.generation });
      expect(await living(program)).toEqual([first.unit]);
      const { proof, generation } = await handle.stop({ now: true });
      expect(proof).toMatchObject({ by: 'empty', invocation: first.invocation });
      expect(generation).toBe(first.generation);
      expect(await processesOf(machine, scene.resource(program))).toEqual([]);
    },
  );

  it('in the middle of a rung is asked again by its owner, and ends with proof and the process’s own words (G3, G8)', async () => {
    await startWorker();
    const { handle } = await scene.own('last-words', 'last-words');
    const { unit, invocation } = await handle.ready();
    process.kill(machine.pid, 'SIGSTOP'); // so that the rung is not done before the worker is killed
    await handle.requestStop({ reason: 'test' });
    await until('the rung was taken', async () => {
      const { raw } = await scene.workflow('last-words').describe();
      return raw.pendingActivities?.some(
        ({ activityType, lastStartedTime }) => activityType?.name === ActivityName.stopResource && lastStartedTime,
      );
    });
    await killWorker();
    process.kill(machine.pid, 'SIGCONT');
    expect((await handle.status()).state).toBe('stopping');
    expect(await living('last-words')).toEqual([unit]);
    await startWorker();
    // The server gives the first attempt up after half a minute.
    expect(await handle.result()).toMatchObject({
      end: 'stopped',
      exit: { wording: 'exit 7 (exit-code)' },
      proof: { by: 'empty', invocation },
    });
  });

  // Nothing but a disk that stands still makes a process that outlives KILL (see whyNoFreezing).
  (whyNoFreezing ? it.skip.each : it.each)(ladder.slice(1))(
    'after %s has not helped goes on with the next one: the next generation comes after the proof (G2, G3)',
    async (rung) => {
      await startWorker();
      const { handle } = await scene.own(rung, 'writer');
      const first = await handle.ready();
      await disk!.freeze();
      await handle.restart({ reason: 'test' });
      await scene.status(rung, `has come to ${rung}`, stands(rung));
      await killWorker();
      expect(await living(rung)).toEqual([first.unit]);

      const next = await startWorker();
      expect(await next.line('going on with')).toMatchObject({ generation: first.generation });
      expect((await handle.status()).state).toBe('stopping');
      expect(await living(rung)).toEqual([first.unit]);
      await disk!.thaw();
      expect(await next.line('proven')).toMatchObject({ generation: first.generation, by: 'empty' });
      const { placement } = await scene.status(rung, 'runs again', ({ state }) => state === 'running');
      expect(placement!.generation).toBeGreaterThan(first.generation);
      expect(await living(rung)).toEqual([placement!.unit]);
      expect(await handle.stop()).toMatchObject({ end: 'stopped', restarts: 1, proof: { by: 'empty' } });
      expect(await living(rung)).toEqual([]);
    },
  );

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(whyNoFreezing ? 3 : 6);
  });
});
