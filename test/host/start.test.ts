import { existsSync } from 'node:fs';
import type { StartAnswer } from '../../src/contract/activities';
import { generationUnit, resourceSlice } from '../../src/contract/names';
import { ProgramRefusedError } from '../../src/host/host';
import { SystemdError, type TransientUnit } from '../../src/systemd/port';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { owner, placementOf, program, script, startInput } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 9999');

describeOnPrivateHost('starting', () => {
  const suite = new HostSuite();

  /** The resource's processes that live, by the one thing they have in common: their slice. */
  async function processes(resource: string): Promise<string[]> {
    const procs = `/sys/fs/cgroup/own.slice/${resourceSlice('own', resource)}`;
    const { stdout } = await suite.machine.run(['sh', '-c', `cat ${procs}/*/cgroup.procs 2>/dev/null; true`]);
    return stdout.split('\n').filter((pid) => pid !== '');
  }

  /** What an owner does until it has a process: higher generations, and stops where it is told to. */
  async function startAsOwner(worker: SuiteHost, resource: string, change = {}): Promise<StartAnswer> {
    let generation = Date.now();
    for (;;) {
      const answer = await worker.host.start(startInput(resource, 'sleeper', { ...change, generation }));
      if (answer.kind === 'started' || answer.kind === 'adopted') return answer;
      generation = Math.max(generation + 1, answer.kind === 'outdated' ? answer.highest + 1 : 0);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 100)); // an owner backs off too
    }
  }

  it('makes one process of a start that is made twice, and the owner’s next one adopts it (G5)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const input = startInput(resource, 'sleeper');
    const first = await worker.host.start(input);
    expect(first.kind).toBe('started');
    expect(await worker.host.start(input)).toMatchObject({ kind: 'outdated', highest: input.generation });
    const next = await worker.host.start({ ...input, generation: input.generation + 1 });
    expect(next.kind).toBe('adopted');
    expect(placementOf(next)).toEqual(placementOf(first));
    expect(await processes(resource)).toHaveLength(1);
  });

  it('does nothing for an attempt that wakes up after its owner has gone on (G5, G11)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const late = startInput(resource, 'sleeper', { generation: Date.now() - 3_600_000 });
    const now = placementOf(
      await worker.host.start(startInput(resource, 'sleeper', { owner: { ...late.owner, ownerId: 'the next owner' } })),
    );
    expect((await worker.host.start(late)).kind).toBe('outdated');
    const launch = await suite.filesOf(resource).generation(now.generation).launch.read();
    expect(launch?.owner.ownerId).toBe('the next owner');
    expect(await processes(resource)).toHaveLength(1);
  });

  it('makes one process when two workers of a host race with one generation (G2, G5)', async () => {
    const workers = [await suite.worker([sleeper]), await suite.worker([sleeper])];
    for (let round = 0; round < 10; round++) {
      const resource = suite.resource();
      const input = startInput(resource, 'sleeper');
      const answers = await Promise.all([...workers, ...workers].map(({ host }) => host.start(input)));
      expect(answers.filter(({ kind }) => kind === 'started').length).toBeLessThanOrEqual(1);
      const { kind } = await workers[0]!.host.start(
        startInput(resource, 'sleeper', { generation: input.generation + 1 }),
      );
      expect(kind).toBe('adopted');
      expect(await processes(resource)).toHaveLength(1);
    }
  });

  it('makes one process when owners with rising generations race on two workers (G2, G5)', async () => {
    const workers = [await suite.worker([sleeper]), await suite.worker([sleeper])];
    for (let round = 0; round < 5; round++) {
      const resource = suite.resource();
      const answers = await Promise.all([...workers, ...workers].map((worker) => startAsOwner(worker, resource)));
      expect(new Set(answers.map((answer) => placementOf(answer).unit)).size).toBe(1);
      expect(answers.filter(({ kind }) => kind === 'started')).toHaveLength(1);
      expect(await processes(resource)).toHaveLength(1);
    }
  });

  it('has systemd itself refuse a start that was closed while it was on its way (G3, G5)', async () => {
    const resource = suite.resource();
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        if (unit.name.startsWith(generationPrefix(resource))) await suite.filesOf(resource).close(generation);
        return inner.startTransientUnit(unit, auxiliary);
      },
    }));
    const generation = Date.now();
    const answer = await worker.host.start(startInput(resource, 'sleeper', { generation }));
    expect(answer).toMatchObject({ kind: 'blocked', reason: expect.stringMatching(/did not start .*: job assert/) });
    expect(await processes(resource)).toEqual([]);
    expect(existsSync(suite.filesOf(resource).generation(generation).outside)).toBe(false);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    // And never again under this number.
    expect(await worker.host.start(startInput(resource, 'sleeper', { generation }))).toMatchObject({
      kind: 'outdated',
      highest: generation,
    });
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('started');
  });

  it('gives up by itself when the generation was closed before it asked systemd (G5)', async () => {
    const resource = suite.resource();
    const generation = Date.now();
    let calls = 0;
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      listUnits: async (pattern) => {
        const units = await inner.listUnits(pattern);
        if (pattern.startsWith(generationPrefix(resource))) await suite.filesOf(resource).close(generation);
        return units;
      },
      startTransientUnit: (unit, auxiliary) => {
        if (unit.name.endsWith('.service')) calls++;
        return inner.startTransientUnit(unit, auxiliary);
      },
    }));
    expect(await worker.host.start(startInput(resource, 'sleeper', { generation }))).toMatchObject({
      kind: 'outdated',
    });
    expect(calls).toBe(0);
  });

  it.each([
    ['was done', true, 'started'],
    ['was never done', false, 'blocked'],
  ])('looks up what came of a start without an answer that %s (G4, G5)', async (_what, done, kind) => {
    const resource = suite.resource();
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit: TransientUnit, auxiliary) => {
        if (!unit.name.startsWith(generationPrefix(resource))) return inner.startTransientUnit(unit, auxiliary);
        if (done) await (await inner.startTransientUnit(unit, auxiliary)).done;
        throw new SystemdError('unknown', 'no answer in time');
      },
    }));
    const answer = await worker.host.start(startInput(resource, 'sleeper'));
    expect(answer.kind).toBe(kind);
    expect(await processes(resource)).toHaveLength(done ? 1 : 0);
    const again = await suite.worker([sleeper]);
    expect((await again.host.start(startInput(resource, 'sleeper'))).kind).toBe(done ? 'adopted' : 'started');
    expect(await processes(resource)).toHaveLength(1);
  });

  it('adopts on the next start what a start began whose look-up was not answered either (G4, G5)', async () => {
    const resource = suite.resource();
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit: TransientUnit, auxiliary) => {
        await (
          await inner.startTransientUnit(unit, auxiliary)
        ).done;
        throw new SystemdError('unknown', 'no answer in time');
      },
      unitProperties: async (unit, names) => {
        if (unit.endsWith('.service')) throw new SystemdError('unknown', 'no answer in time');
        return inner.unitProperties(unit, names);
      },
    }));
    await expect(worker.host.start(startInput(resource, 'sleeper'))).rejects.toMatchObject({ kind: 'unknown' });
    const again = await suite.worker([sleeper]);
    expect((await again.host.start(startInput(resource, 'sleeper'))).kind).toBe('adopted');
    expect(await processes(resource)).toHaveLength(1);
  });

  it('lets a new owner adopt the process with its program and parameters, and nothing else (G6)', async () => {
    const port = program('server', ['/bin/sleep', '9${port}'], { parameters: { port: /^[0-9]+$/ } });
    const worker = await suite.worker([port, sleeper]);
    const resource = suite.resource();
    const parameters = { port: '80' };
    const placement = await worker.start(resource, 'server', { parameters });
    const pid = await processes(resource);

    const next = { ...owner, ownerId: 'owner-2' };
    const adopted = await worker.host.start(startInput(resource, 'server', { parameters, owner: next }));
    expect(adopted).toEqual({ kind: 'adopted', placement });
    expect(await processes(resource)).toEqual(pid);

    for (const [name, change] of [
      ['server', { parameters: { port: '81' } }],
      ['sleeper', {}],
      ['server', { parameters, owner: { ...next, namespace: 'another' } }],
      ['server', { parameters, owner: { ...next, taskQueue: 'another' } }],
    ] as const) {
      expect(await worker.host.start(startInput(resource, name, change))).toMatchObject({
        kind: 'stop-first',
        reason: expect.stringContaining(`${placement.unit} is active`),
      });
    }
    expect(await processes(resource)).toEqual(pid);
  });

  it('never adopts, stops or counts as its own a unit of that name that was made by hand (G6, G11)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const stranger = generationUnit('own', resource, 5);
    await suite.machine.run(['systemd-run', '--quiet', `--unit=${stranger}`, 'sleep', '9999']);

    expect(await worker.host.start(startInput(resource, 'sleeper'))).toMatchObject({
      kind: 'stop-first',
      reason: `${stranger} is active (running)`,
    });
    for (const rung of ['stop', 'kill', 'cgroup-kill'] as const) {
      const input = { resource, owner, rung, generation: Date.now() };
      await expect(worker.host.stop(input)).rejects.toThrow(`${stranger} was made by somebody else`);
    }
    expect(await worker.unit(stranger, 'ActiveState')).toEqual({ ActiveState: 'active' });
    await suite.machine.systemctl('stop', stranger);
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('started');
  });

  it('does not believe the marks alone: without its launch record a unit is stopped first (G6)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const { generation } = await worker.start(resource, 'sleeper');
    await suite.filesOf(resource).generation(generation).launch.remove();
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('stop-first');
  });

  it('does not adopt a unit that other hands have restarted (G6)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const { generation } = await worker.start(resource, 'sleeper');
    const { launch } = suite.filesOf(resource).generation(generation);
    const record = (await launch.read())!;
    await launch.write({ ...record, placement: { ...record.placement, invocation: 'f'.repeat(32) } });
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('stop-first');
  });

  it('adopts a process whose stop came to nothing, and holds it like any other (G6)', async () => {
    const worker = await suite.worker([sleeper], {}, () => ({
      stopInvocation: async () => Promise.reject(new SystemdError('unknown', 'no answer in time')),
    }));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await expect(worker.stop(resource, placement)).rejects.toThrow(/still running/);
    const adopted = placementOf(await worker.host.start(startInput(resource, 'sleeper')));
    await worker.host.hold({ resource, placement: adopted, owner, ready: true, greet: true }, 'token', 1);
    await worker.link.event('holding');
  });

  it('stops the left-overs of a failed generation first, and starts the next after their proof (G3)', async () => {
    const worker = await suite.worker([
      script('sleeper', 'trap "" TERM; setsid sleep 9999 & exit 3', {
        stop: { signal: 'SIGTERM', timeoutMs: 60_000, killMode: 'control-group' },
      }),
    ]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('stop-first');
    await worker.stopUntilProven(resource, placement, { rung: 'kill' });
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('started');
  });

  it('answers outdated at and below the floor, and with the highest generation it has seen (G5)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    await suite.filesOf(resource).close(1000);
    for (const generation of [1, 999, 1000]) {
      expect(await worker.host.start(startInput(resource, 'sleeper', { generation }))).toEqual({
        kind: 'outdated',
        highest: 1000,
        instance: worker.host.instance,
      });
    }
    expect((await worker.host.start(startInput(resource, 'sleeper', { generation: 1001 }))).kind).toBe('started');
  });

  it('keeps a start from happening while the floor can’t be read (G4)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    await suite.filesOf(resource).close(1000);
    await suite.machine.run(['sh', '-c', `> ${suite.filesOf(resource).inside}/floor/nonsense`]);
    await expect(worker.host.start(startInput(resource, 'sleeper'))).rejects.toThrow(/not a generation/);
    expect(await processes(resource)).toEqual([]);
  });

  it('refuses what temporal.yaml does not have, and what systemd finds malformed (G10)', async () => {
    const worker = await suite.worker([
      program('parameterised', ['/bin/sleep', '${seconds}'], { parameters: { seconds: /^[0-9]+$/ } }),
      program('malformed', ['/bin/sleep', '9'], { user: '-bad user-' }),
    ]);
    const refused = (name: string, parameters = {}): Promise<unknown> =>
      worker.host.start(startInput(suite.resource(), name, { parameters })).catch((error: unknown) => error);
    expect(await refused('unknown')).toBeInstanceOf(ProgramRefusedError);
    expect(await refused('constructor')).toBeInstanceOf(ProgramRefusedError);
    expect(await refused('parameterised', { seconds: '9; reboot' })).toBeInstanceOf(ProgramRefusedError);
    expect(await refused('parameterised', { seconds: '9', more: '9' })).toBeInstanceOf(ProgramRefusedError);
    expect(await refused('parameterised')).toBeInstanceOf(ProgramRefusedError);
    expect(String(await refused('malformed'))).toContain('no user "-bad user-"');
  });

  it('says blocked, and leaves nothing behind, when systemd answers that it did not start anything (G5)', async () => {
    let busy = true;
    const resource = suite.resource();
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: (unit, auxiliary) =>
        busy && unit.name.startsWith(generationPrefix(resource))
          ? Promise.reject(new SystemdError('busy', 'another job is queued'))
          : inner.startTransientUnit(unit, auxiliary),
    }));
    const input = startInput(resource, 'sleeper');
    expect(await worker.host.start(input)).toMatchObject({ kind: 'blocked', reason: 'another job is queued' });
    expect(existsSync(suite.filesOf(resource).generation(input.generation).outside)).toBe(false);
    busy = false;
    expect((await worker.host.start(input)).kind).toBe('started');
  });

  it('answers for a notify program once it has begun, ready or not (G5)', async () => {
    const worker = await suite.worker([script('slow', 'exec sleep 9999', { ready: 'notify' })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'slow');
    expect(placement.invocation).toMatch(/^[0-9a-f]{32}$/);
    expect(await worker.unit(placement.unit, 'ActiveState')).toEqual({ ActiveState: 'activating' });
    await worker.stop(resource, placement);
  });

  const generationPrefix = (resource: string): string => generationUnit('own', resource, 1).replace(/1\.service$/, '');
});
