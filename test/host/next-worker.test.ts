import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { HoldEvent } from '../../src/contract/activities';
import { NEVER_STARTED } from '../../src/contract/facts';
import { generationUnit, resourceSlice } from '../../src/contract/names';
import { monotonicNow } from '../../src/host/context';
import { armLease } from '../../src/host/lease';
import { forEachOf } from '../../src/host/turns';
import { SystemdError } from '../../src/systemd/port';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, placementOf, script, startInput } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs: 3000 });
const patient = { ...sleeper, leaseMs: 60_000 };
const stubborn = script('stubborn', 'trap "" TERM; while :; do sleep 9999; done');

describeOnPrivateHost('holds, and the next worker process', () => {
  const suite = new HostSuite();
  const kinds = (events: readonly { readonly event: HoldEvent }[]): string[] => events.map(({ event }) => event.kind);

  it('goes on with the holds of the one before it by their tokens, and the process does not notice (G5, G7)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await worker.link.heard(1);
    const { MainPID } = (await worker.unit(placement.unit, 'MainPID'))!;
    await suite.end(worker);

    const next = await suite.worker([sleeper]);
    await next.link.heardFrom('token');
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const { n } = (await lease.read())!;
    await eventually(async () => (await lease.read())!.oldest > n); // renewed, more than once
    expect(await next.unit(placement.unit, 'MainPID')).toEqual({ MainPID });
    expect(worker.link.events).toEqual([]);
    await next.stop(resource, placement);
  });

  it('tells what ended while no worker was there (G4)', async () => {
    const worker = await suite.worker([script('brief', 'sleep 0.5; exit 3')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'brief');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.end(worker);
    await eventually(async () => (await suite.machine.systemctl('is-active', placement.unit).catch(() => '')) === '');

    const next = await suite.worker([]);
    expect(await next.link.event('ended')).toEqual({ kind: 'ended', reason: 'failed (failed), result exit-code' });
    // Stop and proof need nothing of temporal.yaml: the program is gone from it.
    expect((await next.stopUntilProven(resource, placement)).exit.wording).toBe('exit 3 (exit-code)');
    expect(next.link.events).toHaveLength(1);
  });

  it('goes on with a stop that the one before it began, and tells its proof (G3)', async () => {
    const worker = await suite.worker([stubborn]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await expect(worker.stop(resource, placement)).rejects.toThrow(/still running/);
    await suite.end(worker);

    const next = await suite.worker([stubborn]);
    expect((await next.link.event('proven')).exit.wording).toBe('signal 9');
    expect(kinds(next.link.events)).toEqual(['proven']);
  });

  it('goes on letting go of what the one before it had proven, and had no time for (G3)', async () => {
    const worker = await suite.worker([script('brief', 'exit 3')], {}, () => ({
      resetFailedUnit: () => Promise.reject(new SystemdError('unknown', 'no answer in time')),
    }));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'brief');
    const { exit } = await worker.stopUntilProven(resource, placement);
    await suite.end(worker);
    const { end, outside } = suite.filesOf(resource).generation(placement.generation);
    expect((await readdir(outside)).length).toBeGreaterThan(1);

    const next = await suite.worker([]);
    await eventually(async () => (await readdir(outside)).join() === 'end.json');
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    expect((await end.read())!.exit).toEqual(exit);
    expect(next.link.events).toEqual([]);
  });

  it('stops what it is asked to while it lets go of 500 others that were proven, however long that takes (G11)', async () => {
    const worker = await suite.worker([patient]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const launch = (await suite.filesOf(resource).generation(placement.generation).launch.read())!;
    const left = Array.from({ length: 500 }, (_, i) => suite.filesOf(`left/${i}`));
    const deadline = monotonicNow() + 600_000_000;
    await forEachOf(left, 8, async (files) => {
      const [unit, slice] = [generationUnit('own', files.resource, 1), resourceSlice('own', files.resource)];
      const of = { ...placement, generation: 1, unit, slice };
      const proof = { by: 'empty', ...of, units: '', cgroup: 'ENOENT', readAt: 1 } as const;
      await mkdir(dirname(files.generation(1).outside), { recursive: true });
      const generation = (await files.make(1))!;
      await generation.launch.write({ ...launch, resource: files.resource, placement: of });
      await generation.lease.write({ n: 1, oldest: 1, deadline });
      await generation.end.write({ proof, exit: NEVER_STARTED });
      await armLease(worker.host.context, of, 1, deadline);
    });
    await suite.end(worker);

    let proven = (): void => undefined;
    const slow = new Promise<void>((resolve) => (proven = resolve)); // however long systemd takes over the others
    const next = await suite.worker([patient], {}, (inner) => ({
      listUnits: async (pattern) => {
        if (pattern.includes('left')) await slow;
        return inner.listUnits(pattern);
      },
    }));
    await next.stopUntilProven(resource, placement);
    const kept = async (): Promise<number> => {
      const names = await Promise.all(left.map((files) => files.generation(1).names()));
      return names.filter((of) => of.join() !== 'end.json').length;
    };
    expect(await kept()).toBe(500);
    proven();
    await eventually(async () => (await kept()) === 0);
    expect(await suite.loaded('left')).toEqual([]);
  });

  it('tells the owner once that the process ended, and the stop that follows how (G3)', async () => {
    const worker = await suite.worker([script('brief', 'sleep 0.3; exit 3')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'brief');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await worker.link.event('ended');
    // Nobody holds it now and nobody asks: it is proven and let go of all the same.
    const { end, outside } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await end.read()) !== undefined);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    expect(await readdir(outside)).toEqual(['end.json']);

    const answer = await worker.stop(resource, placement);
    expect(answer.exit.wording).toBe('exit 3 (exit-code)');
    expect((await end.read())!.exit).toEqual(answer.exit);
    expect((await worker.stop(resource, placement)).exit).toEqual(answer.exit);
    expect(kinds(worker.link.events)).toEqual(['ended']);
  });

  it('answers a hold of what is proven with the proof, and of what it never had with ended (G3, G4)', async () => {
    const worker = await suite.worker([patient]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const answer = await worker.stop(resource, placement);
    await worker.host.hold(holdInput(resource, placement), 'late', 1);
    expect(worker.link.events).toEqual([{ token: 'late', event: { kind: 'proven', ...answer } }]);
    await worker.host.hold(holdInput(suite.resource(), placement), 'elsewhere', 1);
    expect(worker.link.events[1]!.event.kind).toBe('ended');
  });

  it('answers a hold whose owner wants a word at once with holding (G4)', async () => {
    const worker = await suite.worker([patient]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement, { greet: true }), 'token', 1);
    await worker.link.event('holding');
    await eventually(
      async () => (await suite.filesOf(resource).generation(placement.generation).hold.read()) === undefined,
    );
    await worker.stop(resource, placement);
  });

  it('lets a newer hold replace an older one, and drops an older one that arrives late (G5)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'second', 2);
    await worker.host.hold(holdInput(resource, placement), 'first', 1);
    await worker.link.heard(1);
    await worker.host.hold(holdInput(resource, placement), 'third', 3);
    await worker.link.heardFrom('third');
    expect(worker.link.beats.map(({ token }) => token)).not.toContain('first');
    expect((await suite.filesOf(resource).generation(placement.generation).hold.read())!.token).toBe('third');
    await worker.stop(resource, placement);
  });

  it('tells an event again while Temporal gives no answer (G4)', async () => {
    const worker = await suite.worker([script('brief', 'sleep 0.3; exit 3', { leaseMs: 3000 })]);
    worker.link.completion = 'unknown';
    const resource = suite.resource();
    const placement = await worker.start(resource, 'brief');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await eventually(async () => kinds(worker.link.events).filter((kind) => kind === 'ended').length >= 2);
    expect(await suite.filesOf(resource).generation(placement.generation).hold.read()).toBeDefined();
    worker.link.completion = 'ok';
    await eventually(
      async () => (await suite.filesOf(resource).generation(placement.generation).hold.read()) === undefined,
    );
  });

  it('takes a hold of what another worker process of the host has started (G5)', async () => {
    const [one, two] = [await suite.worker([sleeper]), await suite.worker([sleeper])];
    const resource = suite.resource();
    const placement = await one.start(resource, 'sleeper');
    await two.host.hold(holdInput(resource, placement), 'token', 1);
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await lease.read())!.oldest >= 3);
    // And back again: the renewals of the other one are no riddle to this one.
    await one.host.hold(holdInput(resource, placement), 'back', 2);
    await suite.end(two);
    await one.link.heardFrom('back');
    const { n } = (await lease.read())!;
    await eventually(async () => (await lease.read())!.oldest >= n + 3);
    expect(await one.unit(placement.unit, 'InvocationID')).toEqual({ InvocationID: placement.invocation });
    expect([...one.link.events, ...two.link.events]).toEqual([]);
    await one.stop(resource, placement);
  });

  it('shares its holds with another worker process for a while, and nobody notices (G5, G7)', async () => {
    const one = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await one.start(resource, 'sleeper');
    await one.host.hold(holdInput(resource, placement), 'token', 1);
    const two = await suite.worker([sleeper]); // it finds the same hold in the files, and renews the same lease
    const renewed = (worker: SuiteHost): number => worker.lines.filter(({ message }) => message === 'renewed').length;
    await eventually(() => Promise.resolve(renewed(one) >= 5 && renewed(two) >= 5)); // longer than a lease
    expect(await one.unit(placement.unit, 'InvocationID')).toEqual({ InvocationID: placement.invocation });
    expect([...one.link.events, ...two.link.events]).toEqual([]);
    await suite.end(one);
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const { n } = (await lease.read())!;
    await eventually(async () => (await lease.read())!.oldest > n);
    expect(await suite.timers(placement)).toHaveLength(1);
    await two.stop(resource, placement);
  });

  it('leaves a generation whose files can’t be read to its lease, and serves the others (G4, G11)', async () => {
    const worker = await suite.worker([patient]);
    const [bad, good] = [suite.resource(), suite.resource()];
    const placements = [await worker.start(bad, 'sleeper'), await worker.start(good, 'sleeper')] as const;
    await worker.host.hold(holdInput(good, placements[1]), 'good', 1);
    await suite.end(worker);
    await writeFile(join(suite.filesOf(bad).generation(placements[0].generation).outside, 'launch.json'), 'torn');
    const next = await suite.worker([patient]);
    await next.link.heard(1);
    expect(next.link.beats[0]!.token).toBe('good');
    await next.host.reconciled();
    expect(next.host.findings).toMatchObject([{ kind: 'files-unreadable', resource: bad }]);
    expect(await next.unit(placements[0].unit, 'ActiveState')).toEqual({ ActiveState: 'active' });
    await next.stop(bad, placements[0]);
    await next.stop(good, placements[1]);
  });

  it('watches what was started by a worker that died before it could write down that it had (G5)', async () => {
    const worker = await suite.worker([patient]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await suite.end(worker);
    const { launch } = suite.filesOf(resource).generation(placement.generation);
    const record = (await launch.read())!;
    await launch.write({ ...record, placement: { ...placement, invocation: '', cgroupId: '' } });
    const next = await suite.worker([patient]);
    expect(placementOf(await next.host.start(startInput(resource, 'sleeper')))).toEqual(placement);
    await next.host.hold(holdInput(resource, placement, { greet: true }), 'token', 1);
    await next.link.event('holding');
    await next.stop(resource, placement);
  });

  it('goes on while the manager re-executes itself, and while its own slice was stopped by other hands (G4)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.machine.systemctl('daemon-reexec').catch(() => '');
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await lease.read())!.oldest >= 3);
    await suite.machine.systemctl('stop', 'own.slice');
    await worker.link.event('ended');
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect((await worker.host.start(startInput(resource, 'sleeper'))).kind).toBe('started');
  });

  it('has nothing under way any more once it is closed (G5)', async () => {
    const worker = await suite.worker([patient]);
    const resources = [1, 2, 3, 4, 5].map(() => suite.resource());
    const starts = resources.map((resource) => worker.host.start(startInput(resource, 'sleeper')));
    await suite.end(worker);
    const outcomes = await Promise.allSettled(starts);
    expect(outcomes).toHaveLength(5);
    // Whatever was cut off: the next worker makes one process of it.
    const next = await suite.worker([patient]);
    for (const resource of resources) {
      const answer = await next.host.start(startInput(resource, 'sleeper'));
      expect(['started', 'adopted']).toContain(answer.kind);
      await next.stop(resource, placementOf(answer));
    }
  });
});
