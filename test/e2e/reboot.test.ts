import type { OwnerHandle } from '../../src/client';
import { ActivityName } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { readBootId } from '../../src/host/instance';
import { describeOnPrivateHost } from '../support/host-suite';
import { Scene } from '../support/scene';
import { bootPrivateHost, type PrivateHost } from '../support/test-host';
import { livingUnits } from '../support/unit-processes';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

const rebooted = { wording: 'unknown: host restarted', kind: 'unknown', source: 'boot' };

describeOnPrivateHost('a host that loses its power', () => {
  let machine: PrivateHost;
  let scene: Scene;
  let config: string;
  let worker: CliProcess | undefined;

  beforeAll(async () => {
    machine = await bootPrivateHost();
    // Owners in this process; the host's worker is a process of its own, inside the host, and ends with it.
    scene = await Scene.open([], { testHost: machine, workers: [{ run: ['workflows'] }] });
    const shell = (text: string, change: object = {}): object => ({
      exec: ['/bin/sh', '-c', text],
      hardening: 'off',
      lease: '9s',
      ...change,
    });
    config = await writeConfig(
      { server: scene.server, testHost: machine, hostId: scene.hostId() },
      {
        once: shell('exec sleep 9999'),
        patient: shell('exec sleep 9999', { lease: '30s' }),
        always: shell('exec sleep 9999', { restart: { policy: 'always', backoff: '50ms' } }),
        stubborn: shell('trap "" TERM; while :; do sleep 9999; done', { stop: { timeout: '5 min' } }),
      },
      { run: ['host'] },
    );
    await startWorker();
  });
  afterAll(async () => {
    worker?.kill('SIGKILL');
    await worker?.ended;
    await scene?.end();
  });

  async function startWorker(): Promise<CliProcess> {
    worker = runCli(machine, ['--config', config, 'worker']);
    await worker.line('serving the host');
    return worker;
  }

  async function held(name: string, program: string): Promise<{ handle: OwnerHandle; placement: Placement }> {
    const { handle } = await scene.own(name, program);
    const placement = await handle.ready();
    await scene.status(name, 'is held', ({ live }) => live !== undefined);
    return { handle, placement };
  }

  /** Resolves once the host has an activity of this owner in hand. */
  async function underWay(name: string, activity: string): Promise<void> {
    await until(`${activity} of ${name} is under way`, async () => {
      const { raw } = await scene.workflow(name).describe();
      return raw.pendingActivities?.some(({ activityType, lastStartedTime }) => {
        return activityType?.name === activity && Boolean(lastStartedTime);
      });
    });
  }

  it('frees its resources when it is back, by the proof of its boot id, and not before (G3, G4)', async () => {
    const always = await held('always', 'always');
    const once = await held('once', 'once');
    const asked = await held('asked', 'once');
    const stubborn = await held('stubborn', 'stubborn');
    const before = await readBootId(machine.root);
    await stubborn.handle.requestStop({ reason: 'before the power is cut' });
    await scene.status('stubborn', 'is still running', ({ remaining }) => remaining.length > 0);

    // A start that the host has in hand, and will never answer.
    process.kill(machine.pid, 'SIGSTOP');
    const { handle: late } = await scene.own('late', 'once');
    await underWay('late', ActivityName.startGeneration);
    await machine.reboot();
    await worker!.ended;
    const after = await readBootId(machine.root);

    // Nothing lives any more, and nobody can know: no owner says that it is over.
    await asked.handle.requestStop({ reason: 'while the host is down' });
    for (const name of ['once', 'always']) {
      const missed = await scene.status(name, 'misses its host', (s) => s.hostUnreachableSince !== undefined);
      expect(missed).toMatchObject({ state: 'running', restarts: 0 });
    }
    expect((await asked.handle.status()).state).toBe('stopping');
    expect((await stubborn.handle.status()).state).toBe('stopping');

    await startWorker();
    const proof = ({ placement }: { placement: Placement }): object => ({
      by: 'reboot',
      bootId: after,
      instance: placement.instance,
      invocation: placement.invocation,
    });
    expect(await once.handle.result()).toMatchObject({
      end: 'exited',
      exit: rebooted,
      proof: proof(once),
      restarts: 0,
    });
    expect(await stubborn.handle.result()).toMatchObject({ end: 'stopped', exit: rebooted, proof: proof(stubborn) });
    expect(await asked.handle.result()).toMatchObject({ end: 'stopped', exit: rebooted, proof: proof(asked) });

    const next = await scene.status('always', 'runs again', (s) => s.state === 'running' && s.restarts === 1);
    expect(next).toMatchObject({ lastExit: rebooted, placement: { bootId: after } });
    expect(always.placement.bootId).toBe(before);
    expect(next.placement!.generation).toBeGreaterThan(always.placement.generation);
    expect(await livingUnits(machine, scene.resource('always'))).toEqual([next.placement!.unit]);

    // What came of the start is found out by another one.
    const { placement } = await scene.status('late', 'runs', ({ state }) => state === 'running');
    expect(placement!.bootId).toBe(after);
    expect(await livingUnits(machine, scene.resource('late'))).toEqual([placement!.unit]);
    for (const handle of [late, always.handle])
      expect(await handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it('proves nothing by a boot id before the worker is back that has the list of them (G3, G4)', async () => {
    const { handle, placement } = await held('waits', 'once');
    await machine.reboot();
    await worker!.ended;
    await handle.requestStop({ now: true });
    await scene.status('waits', 'misses its host', (s) => s.hostUnreachableSince !== undefined);
    // Booted again, and once more before any worker has seen it: later is later.
    await machine.reboot();
    await startWorker();
    const { end, proof } = await handle.result();
    expect(end).toBe('stopped');
    expect(proof).toMatchObject({ by: 'reboot', bootId: await readBootId(machine.root) });
    expect(proof!.bootId).not.toBe(placement.bootId);
  });

  it('whose worker process is killed goes on with its processes, and no owner misses it (G2, G7)', async () => {
    const { handle, placement } = await held('survives', 'patient');
    const pid = await scene.mainPid(placement.unit);
    const { historyLength } = await scene.workflow('survives').describe();
    worker!.kill('SIGKILL');
    await worker!.ended;
    const since = Date.now();
    const next = await startWorker();
    const about = { resource: scene.resource('survives'), generation: placement.generation, hold: true };
    expect(next.lines).toContainEqual(expect.objectContaining({ msg: 'going on with', ...about }));
    // Past the heartbeat timeout of the hold that the killed one had, and past the lease.
    await scene.status('survives', 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since + 30_000);
    expect(await scene.mainPid(placement.unit)).toBe(pid);
    expect((await scene.workflow('survives').describe()).historyLength).toBe(historyLength);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', restarts: 0, generation: placement.generation });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(7);
  });
});
