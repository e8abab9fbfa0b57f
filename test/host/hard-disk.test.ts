import { appendFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { StartAnswer } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { NothingStartedError } from '../../src/host/host';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost, type SystemdFault } from '../support/host-suite';
import { holdInput, owner, placementOf, script, startInput } from '../support/owned-host';

const leaseMs = 5000;
const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs });
/** Ends by itself after its first lease would have been over. */
const brief = script('brief', `sleep ${(1.5 * leaseMs) / 1000}; exit 3`, { leaseMs });

const faults = [
  ['full', 'ENOSPC'],
  ['out of inodes', 'ENOSPC'],
  ['read-only', 'EROFS'],
] as const;

type Fault = (typeof faults)[number][0];

describeOnPrivateHost('a run directory that takes no writes', () => {
  const suite = new HostSuite();

  beforeAll(async () => {
    const { machine } = suite;
    const { runDirectory } = machine;
    await machine.run(['mkdir', '-p', runDirectory]);
    const size = ['-o', 'size=1m,nr_inodes=1000,mode=0711'];
    expect(await machine.run(['mount', '-t', 'tmpfs', ...size, 'tmpfs', runDirectory])).toMatchObject({ code: 0 });
  });
  afterEach(() => heal());

  const outside = (name = ''): string => join(suite.machine.root, suite.machine.runDirectory, name);

  async function remount(how: 'ro' | 'rw'): Promise<void> {
    const command = ['mount', '-o', `remount,${how}`, suite.machine.runDirectory];
    // Not while somebody has a file open for writing.
    await eventually(async () => (await suite.machine.run(command)).code === 0);
  }

  /** Fills it until not one more byte, or not one more file, fits in. */
  async function cause(fault: Fault): Promise<void> {
    if (fault === 'read-only') return remount('ro');
    // The kernel counts on each CPU for itself: full is what stays full.
    for (let i = 0, failures = 0; failures < 50; i++) {
      try {
        if (fault === 'full') await appendFile(outside('ballast-0'), Buffer.alloc(4096));
        else await writeFile(outside(`ballast-${i}`), '');
        failures = 0;
      } catch (error) {
        expect(error).toMatchObject({ code: 'ENOSPC' });
        failures++;
      }
    }
  }

  async function heal(): Promise<void> {
    await remount('rw');
    const names = await readdir(outside());
    await Promise.all(names.filter((name) => name.startsWith('ballast-')).map((name) => rm(outside(name))));
  }

  /** Notes the name of every lease timer that is asked for. */
  const noting =
    (names: string[]): SystemdFault =>
    (inner) => ({
      startTransientUnit: (unit, auxiliary) => {
        names.push(...[unit, ...auxiliary].map(({ name }) => name).filter((name) => name.endsWith('.timer')));
        return inner.startTransientUnit(unit, auxiliary);
      },
    });

  async function held(worker: SuiteHost, token = 'token'): Promise<{ resource: string; placement: Placement }> {
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), token, 1);
    await worker.link.heard(1);
    return { resource, placement };
  }

  /** Waits for so many renewals from now on, as systemd shows them. */
  async function renewed(placement: Placement, times: number): Promise<void> {
    const seen = new Set(await suite.timers(placement));
    const enough = seen.size + times;
    await eventually(async () => {
      for (const timer of await suite.timers(placement)) seen.add(timer);
      return seen.size >= enough;
    });
  }

  async function livesOn({ unit, invocation }: Placement, worker: SuiteHost): Promise<void> {
    expect(await worker.unit(unit, 'ActiveState', 'InvocationID')).toEqual({
      ActiveState: 'active',
      InvocationID: invocation,
    });
  }

  it.each(faults)('%s: what runs is held on for several leases, and by a next hold as well (G7)', async (fault) => {
    const names: string[] = [];
    const worker = await suite.worker([sleeper], {}, noting(names));
    const { resource, placement } = await held(worker);
    const { lease, hold } = suite.filesOf(resource).generation(placement.generation);
    await cause(fault);
    await renewed(placement, 4);
    await worker.host.hold(holdInput(resource, placement), 'second', 2);
    await worker.link.heardFrom('second');
    await renewed(placement, 3);
    await livesOn(placement, worker);
    expect((await hold.read())!.token).toBe('token');

    await heal();
    await eventually(async () => (await hold.read())!.token === 'second');
    // One timer is left, and it is the recorded one.
    await eventually(async () => {
      const [timer, ...others] = await suite.timers(placement);
      return others.length === 0 && timer!.endsWith(`-lease${(await lease.read())!.n}.timer`);
    });
    await livesOn(placement, worker);
    expect(worker.link.events).toEqual([]);
    expect(names).toEqual([...new Set(names)]); // no lease number was used twice
    await worker.stop(resource, placement);
  });

  it.each(faults)('%s: the next worker process goes on with what the one before it held (G5, G7)', async (fault) => {
    const names: string[] = [];
    const worker = await suite.worker([sleeper], {}, noting(names));
    const { resource, placement } = await held(worker);
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    await cause(fault);
    const recorded = (await lease.read())!.n;
    await renewed(placement, 2);
    await suite.end(worker);
    expect((await lease.read())!.n).toBe(recorded); // what it did since is on no disk

    const next = await suite.worker([sleeper], {}, noting(names));
    await next.link.heardFrom('token');
    await renewed(placement, 2);
    await suite.end(next);
    // And the one after it, which can write again.
    await heal();
    const last = await suite.worker([sleeper], {}, noting(names));
    await renewed(placement, 4);
    await eventually(async () => (await suite.timers(placement)).length === 1);
    await livesOn(placement, last);
    expect(names).toEqual([...new Set(names)]);
    expect([...next.link.events, ...last.link.events, ...last.host.findings]).toEqual([]);
    await last.stop(resource, placement);
  });

  it.each(faults)('%s: what runs is stopped and proven dead, and its files go once they can (G3)', async (fault) => {
    const worker = await suite.worker([sleeper], { resyncMs: 300 });
    const { resource, placement } = await held(worker);
    await cause(fault);
    const { proof, exit } = await worker.stopUntilProven(resource, placement);
    expect(proof).toMatchObject({ by: 'empty', generation: placement.generation });
    expect(exit.wording).toBe('signal 15');
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    await heal();
    const { end, outside: folder } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await readdir(folder)).join() === 'end.json');
    expect((await end.read())!.exit).toEqual(exit);
    const again = startInput(resource, 'sleeper', { generation: placement.generation });
    expect((await worker.host.start(again)).kind).toBe('outdated');
  });

  it.each(faults)('%s: a start is refused, says why, and leaves nothing behind (G5)', async (fault, code) => {
    const worker = await suite.worker([sleeper]);
    const used = suite.resource();
    await worker.stop(used, await worker.start(used, 'sleeper'));
    await eventually(async () => (await suite.loaded(used)).length === 0);
    const before = await suite.filesOf(used).generations();
    await cause(fault);
    const fresh = suite.resource();
    for (const resource of [used, fresh]) {
      const refused = worker.host.start(startInput(resource, 'sleeper'));
      await expect(refused).rejects.toBeInstanceOf(NothingStartedError);
      const remedy = code === 'EROFS' ? 'mount it read-write' : 'free space';
      await expect(refused).rejects.toThrow(new RegExp(`${suite.machine.runDirectory}.*${remedy}.*${code}`));
      expect(await suite.loaded(resource)).toEqual([]);
    }
    expect(await suite.filesOf(used).generations()).toEqual(before);
    expect(await suite.filesOf(fresh).generations()).toEqual([]);

    await heal();
    for (const resource of [used, fresh]) await worker.stop(resource, await worker.start(resource, 'sleeper'));
  });

  // Without inodes it may be adopted: what is closed for that makes room for what is written.
  it.each(['full', 'read-only'] as const)(
    '%s: the next owner can’t adopt what runs, and does once it can be written (G6)',
    async (fault) => {
      const worker = await suite.worker([sleeper]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'sleeper');
      await cause(fault);
      const next = { ...owner, ownerId: 'owner-2' };
      const adopting = (): Promise<StartAnswer> => worker.host.start(startInput(resource, 'sleeper', { owner: next }));
      await expect(adopting()).rejects.toBeInstanceOf(NothingStartedError);
      await livesOn(placement, worker);
      await heal();
      const answer = await adopting();
      expect(answer.kind).toBe('adopted');
      expect(placementOf(answer)).toEqual(placement);
      await worker.stop(resource, placement);
    },
  );

  it('says how a process ended under a lease that could not be recorded (G8)', async () => {
    const worker = await suite.worker([brief]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'brief');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await cause('full');
    await worker.link.event('ended');
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('exit 3 (exit-code)');
  });

  it('is told of a process that was started while the disk became full, and holds it (G5, G7)', async () => {
    let full = false;
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        const job = await inner.startTransientUnit(unit, auxiliary);
        if (unit.name.endsWith('.service') && !full) await cause('full');
        full = true;
        return job;
      },
    }));
    const { resource, placement } = await held(worker);
    expect(placement.invocation).not.toBe('');
    await renewed(placement, 4);
    await livesOn(placement, worker);
    expect(worker.link.events).toEqual([]);
    await heal();
    const { launch } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await launch.read())!.placement.invocation === placement.invocation);
    await worker.stopUntilProven(resource, placement);
  });
});
