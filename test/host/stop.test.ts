import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { StillRunningError, WrongInstanceError } from '../../src/host/host';
import { SystemdError } from '../../src/systemd/port';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, program, script, startInput, stopInput } from '../support/owned-host';

/** Ignores TERM, and so does its child; both end by KILL alone. */
const stubborn = 'trap "" TERM; sleep 9999 & while :; do sleep 9999; done';

describeOnPrivateHost('stopping until proven', () => {
  const suite = new HostSuite();

  it('ends a running process, proves it, and leaves no unit, timer, slice or file but the end record (G3)', async () => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    expect(await worker.unit(placement.unit, 'ActiveState', 'InvocationID', 'ControlGroupId')).toEqual({
      ActiveState: 'active',
      InvocationID: placement.invocation,
      ControlGroupId: placement.cgroupId,
    });

    const { proof, exit } = await worker.stop(resource, placement);

    expect(exit).toMatchObject({ wording: 'signal 15', kind: 'signal', status: 15 });
    expect(proof).toMatchObject({
      by: 'empty',
      instance: placement.instance,
      bootId: placement.bootId,
      generation: placement.generation,
      invocation: placement.invocation,
      cgroupId: placement.cgroupId,
      cgroup: expect.stringMatching(/^(ENOENT|ENODEV|populated 0)$/), // systemd removes it at about that moment
    });
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    const directory = join(
      suite.machine.root,
      suite.machine.runDirectory,
      'own',
      'test_2f' + resource.slice(5).replace('-', '_2d'),
    );
    expect(await readdir(join(directory, 'floor'))).toEqual([String(placement.generation)]);
    expect(JSON.parse(await readFile(join(directory, `g${placement.generation}`, 'end.json'), 'utf8'))).toEqual({
      proof,
      exit,
    });
  });

  it.each([
    ['exits with 0', 'exit 0', { wording: 'exit 0', kind: 'exit', status: 0 }],
    ['exits with 3', 'exit 3', { wording: 'exit 3 (exit-code)', kind: 'exit', status: 3, source: 'unit' }],
    [
      'is killed by its own signal',
      'kill -KILL $$',
      { wording: 'signal 9', kind: 'signal', status: 9, source: 'unit' },
    ],
  ])('tells how a process that %s at once ended (G3, G8)', async (_how, text, wording) => {
    const worker = await suite.worker([script('short', text)]);
    const resource = suite.resource();
    const placement = await worker.runToEnd(resource, 'short');
    expect(placement.invocation).toMatch(/^[0-9a-f]{32}$/);
    expect((await worker.stopUntilProven(resource, placement)).exit).toMatchObject(wording);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
  });

  it.each([
    ['is missing', '/no/such/program'],
    ['is not executable', '/etc/passwd'],
  ])('says of a program that %s that systemd could not execute it (G8)', async (_why, path) => {
    const worker = await suite.worker([program('broken', [path])]);
    const resource = suite.resource();
    const placement = await worker.runToEnd(resource, 'broken');
    const { exit } = await worker.stopUntilProven(resource, placement);
    expect(exit.wording).toBe('exit 203 (exit-code)');
  });

  it('does not count the end of the main process while a child in its own session lives (G3)', async () => {
    const worker = await suite.worker([script('forking', 'setsid sleep 9999 & exit 0')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'forking');
    await eventually(async () => (await worker.unit(placement.unit, 'SubState'))?.SubState === 'exited');

    const watching = worker.stop(resource, placement, { rung: 'watch' });
    await expect(watching).rejects.toThrow(/active \(exited\).*populated 1/);
    await expect(watching).rejects.toMatchObject({ details: { processes: [{ command: 'sleep' }] } });

    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('exit 0');
  });

  it('waits for the children of a failed main process as well (G3)', async () => {
    const worker = await suite.worker([
      script('failing', `setsid sh -c '${stubborn}' & sleep 0.2; exit 3`, {
        stop: { signal: 'SIGTERM', timeoutMs: 3000, killMode: 'control-group' },
      }),
    ]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'failing');
    await eventually(async () => (await worker.unit(placement.unit, 'ActiveState'))?.ActiveState !== 'active');
    await expect(worker.stop(resource, placement, { rung: 'watch' })).rejects.toBeInstanceOf(StillRunningError);
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('exit 3 (exit-code)');
  });

  it('answers StillRunning with the processes and where they wait, then proves it after systemd’s own KILL (G3)', async () => {
    const worker = await suite.worker([script('stubborn', stubborn)]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);

    const error: unknown = await worker.stop(resource, placement).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(StillRunningError);
    const { details } = error as StillRunningError;
    expect(details.reasons).toContain('cgroup: populated 1');
    expect(details.processes.length).toBeGreaterThanOrEqual(2);
    for (const one of details.processes) {
      expect(one).toMatchObject({ pid: expect.any(Number), command: expect.stringMatching(/^(sh|sleep)$/) });
      expect(one.state).toBe('S');
      expect(one.waitChannel).not.toBe('');
    }

    // Nobody asks again: the hold brings the proof.
    const { exit, proof } = await worker.link.event('proven');
    expect(exit.wording).toBe('signal 9');
    expect(proof.by).toBe('empty');
    // Whoever asks all the same hears the same of its end, and a proof of now.
    expect(await worker.stop(resource, placement)).toMatchObject({
      exit,
      proof: { by: 'empty', generation: placement.generation },
    });
    expect(worker.link.events).toHaveLength(1);
  });

  it.each(['kill', 'cgroup-kill'] as const)('ends what ignores TERM at once on the rung %s (G3)', async (rung) => {
    const worker = await suite.worker([
      script('stubborn', stubborn, { stop: { signal: 'SIGTERM', timeoutMs: 60_000, killMode: 'control-group' } }),
    ]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    const { exit } = await worker.stopUntilProven(resource, placement, { rung });
    expect(exit.wording).toBe('signal 9');
  });

  it('clears the left-overs of a unit that systemd gave up on (G3)', async () => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    // A process that somebody moved there after the unit was over: its unit is failed, its cgroup is not empty.
    const cgroup = join('/sys/fs/cgroup/own.slice', placement.slice, 'left');
    await suite.machine.run([
      'sh',
      '-c',
      `mkdir ${cgroup} && (setsid sleep 9999 >/dev/null 2>&1 & echo $! > ${cgroup}/cgroup.procs)`,
    ]);

    await expect(worker.stop(resource, placement)).rejects.toThrow(/populated 1/);
    await expect(worker.stop(resource, placement, { rung: 'kill' })).rejects.toThrow(/populated 1/);
    await suite.machine.run(['sh', '-c', `echo 1 > ${cgroup}/cgroup.kill`]);
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
  });

  it('is not fooled by a cgroup root where everything is gone (G4)', async () => {
    const empty = await mkdtemp('/var/tmp/no-cgroups-');
    try {
      const worker = await suite.worker([script('stubborn', stubborn)]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'stubborn');
      const blind = await suite.worker([script('stubborn', stubborn)], { cgroupRoot: empty });
      await expect(blind.stop(resource, placement)).rejects.toThrow(/the cgroup root could not be verified/);
      // Dead by now, and still not proven: this worker can't know.
      await worker.stopUntilProven(resource, placement, { rung: 'kill' });
      await expect(blind.stop(resource, placement)).rejects.toBeInstanceOf(StillRunningError);
      // Nor does it start anything where it could not see what is left.
      const other = suite.resource();
      expect(await blind.host.start(startInput(other, 'stubborn'))).toMatchObject({
        kind: 'stop-first',
        reason: expect.stringContaining('cgroup root'),
      });
      expect(await suite.loaded(other)).toEqual([]);
    } finally {
      await rm(empty, { recursive: true });
    }
  });

  it('is not fooled by another cgroup tree that has the same names (G4)', async () => {
    const worker = await suite.worker([script('stubborn', stubborn)]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    const other = '/sys/fs/cgroup/other';
    await suite.machine.run(['mkdir', '-p', `${other}/own.slice`]);
    const blind = await suite.worker([script('stubborn', stubborn)], { cgroupRoot: other });
    await expect(blind.stop(resource, placement)).rejects.toThrow(/wrong cgroup root: inode \d+, systemd says \d+/);
    await worker.stopUntilProven(resource, placement, { rung: 'kill' });
  });

  it('proves nothing while systemd gives no answer, and proves it as soon as it does (G4)', async () => {
    let silent = true;
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')], {}, (inner) => ({
      listUnits: async (pattern) => {
        if (silent && pattern !== 'own-*') throw new SystemdError('unknown', 'no answer in time');
        return inner.listUnits(pattern);
      },
    }));
    silent = false;
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    silent = true;
    await expect(worker.stop(resource, placement)).rejects.toThrow(/systemd could not be asked: no answer in time/);
    silent = false;
    expect((await worker.stop(resource, placement)).proof.by).toBe('empty');
  });

  it('finds the proof although a rung can’t be done (G3)', async () => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')], {}, () => ({
      stopInvocation: async () => {
        throw new SystemdError('unknown', 'the stop got no answer');
      },
    }));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await expect(worker.stop(resource, placement)).rejects.toThrow(
      /the stop got no answer; systemd: .* active \(running\)/,
    );
    await suite.machine.systemctl('stop', placement.unit);
    expect((await worker.stop(resource, placement)).proof.by).toBe('empty');
  });

  it('does nothing for a request that is meant for another instance (G4)', async () => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const elsewhere = { ...placement, instance: 'another' };
    await expect(worker.stop(resource, elsewhere)).rejects.toBeInstanceOf(WrongInstanceError);
    await expect(worker.host.hold(holdInput(resource, elsewhere), 'token', 1)).rejects.toBeInstanceOf(
      WrongInstanceError,
    );
    await expect(worker.host.start(startInput(resource, 'sleeper', { instance: 'another' }))).rejects.toBeInstanceOf(
      WrongInstanceError,
    );
    expect(await worker.unit(placement.unit, 'ActiveState')).toEqual({ ActiveState: 'active' });
    await worker.stop(resource, placement);
  });

  it('does not touch the next generation when a stop for the former one arrives late (G11)', async () => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999')]);
    const resource = suite.resource();
    const first = await worker.start(resource, 'sleeper');
    await worker.stop(resource, first);
    const second = await worker.start(resource, 'sleeper');
    expect(second.generation).toBeGreaterThan(first.generation);

    for (const rung of ['stop', 'kill', 'cgroup-kill'] as const) {
      const late = worker.host.stop(stopInput(resource, first, { rung }));
      await expect(late).rejects.toMatchObject({ details: { highest: second.generation } });
    }
    expect(await worker.unit(second.unit, 'ActiveState', 'InvocationID')).toEqual({
      ActiveState: 'active',
      InvocationID: second.invocation,
    });
    await worker.stop(resource, second);
  });

  it('knows how a process ended whose start was never answered (G8)', async () => {
    const worker = await suite.worker([script('short', 'exit 4')]);
    const resource = suite.resource();
    const { generation } = await worker.runToEnd(resource, 'short');
    const { placement: _unknown, ...input } = stopInput(resource, {} as never, { generation });
    const { exit, proof } = await worker.host.stop(input);
    expect(exit.wording).toBe('exit 4 (exit-code)');
    expect(proof.generation).toBe(generation);
    expect((await worker.host.stop({ ...input, resource: suite.resource() })).exit.wording).toBe('never started');
  });

  it('says at most once in two seconds that processes remain (G4)', async () => {
    const worker = await suite.worker([script('stubborn', stubborn)]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    const began = performance.now();
    await Promise.allSettled([1, 2, 3].map(() => worker.stop(resource, placement, { rung: 'watch' })));
    await Promise.allSettled([1, 2, 3].map(() => worker.stop(resource, placement, { rung: 'watch' })));
    const lines = worker.lines.filter(({ message }) => message === 'processes remain, not releasing');
    expect(lines.length).toBeGreaterThanOrEqual(1);
    expect(lines.length).toBeLessThanOrEqual(1 + (performance.now() - began) / 2000);
    await worker.stopUntilProven(resource, placement, { rung: 'kill' });
  });
});
