import { join } from 'node:path';
import { readPopulated } from '../../src/cgroup/cgroup';
import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { monotonicNow } from '../../src/host/context';
import type { Held } from '../../src/host/held';
import { Renewals } from '../../src/host/renewals';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, program, script } from '../support/owned-host';

const leaseMs = 3000;
const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs });

describeOnPrivateHost('a hold in hard times', () => {
  const suite = new HostSuite();

  const mainPid = async ({ unit }: Placement): Promise<string> =>
    (await suite.machine.systemctl('show', '--value', '--property=MainPID', unit)).trim();

  /** What a worker knows of a generation that it has just started, for a lease keeper of the test's own. */
  async function heldOf(resource: string, placement: Placement): Promise<Held> {
    const files = suite.filesOf(resource).generation(placement.generation);
    return { files, launch: (await files.launch.read())!, lease: (await files.lease.read())!, stopping: false };
  }

  it.each(['daemon-reload', 'daemon-reexec'])(
    'goes on over several leases while the manager does %s again and again: one process, one timer (G7)',
    async (command) => {
      const worker = await suite.worker([sleeper]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'sleeper');
      const pid = await mainPid(placement);
      const { lease } = suite.filesOf(resource).generation(placement.generation);
      const first = (await lease.read())!.deadline;
      await worker.host.hold(holdInput(resource, placement), 'token', 1);

      let rounds = 0;
      while ((await lease.read())!.deadline < first + 3 * leaseMs * 1000) {
        // A manager that re-executes itself cuts the very call that asked for it.
        await suite.machine.systemctl(command).catch(() => '');
        rounds++;
        // Read after the manager is back: there is no moment without a lease.
        const listed = await suite.timers(placement).catch(() => undefined);
        if (listed) expect(listed).not.toEqual([]);
        expect(worker.link.events).toEqual([]);
      }
      expect(rounds).toBeGreaterThan(5);

      expect(await worker.unit(placement.unit, 'ActiveState', 'InvocationID')).toEqual({
        ActiveState: 'active',
        InvocationID: placement.invocation,
      });
      expect(await mainPid(placement)).toBe(pid);
      // Renewals that were cut off may have left timers; the next one that gets through takes them along.
      await eventually(async () => {
        const { n, oldest } = (await lease.read())!;
        return n === oldest && (await suite.timers(placement)).join() === leaseUnits(placement.unit, n).timer;
      });
      await worker.stopUntilProven(resource, placement);
      await eventually(async () => (await suite.loaded(resource)).length === 0);
    },
  );

  it.each([
    [
      'at the same time',
      (renewals: Renewals, held: Held, all: number[]) =>
        Promise.all(all.map((deadline) => renewals.renew(held, deadline))),
    ],
    [
      'at the same time, the newest first',
      (renewals: Renewals, held: Held, all: number[]) =>
        Promise.all([...all].reverse().map((deadline) => renewals.renew(held, deadline))),
    ],
    [
      'one right after the other',
      async (renewals: Renewals, held: Held, all: number[]) => {
        for (const deadline of all) await renewals.renew(held, deadline);
      },
    ],
  ])('renewed five times %s has one timer left, and that waits for the newest deadline (G7)', async (_how, renew) => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const renewals = new Renewals(worker.host.context);
    const held = await heldOf(resource, placement);
    const all = [1, 2, 3, 4, 5].map((seconds) => monotonicNow() + (60 + seconds) * 1_000_000); // the newest last
    await renew(renewals, held, all);
    await left(worker, resource, placement, all.at(-1)!);
  });

  it('renewed by two worker processes in turn, each of which knows its own renewals alone, never has two timers or none (G5, G7)', async () => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const workers = await Promise.all(
      [1, 2].map(async () => ({
        renewals: new Renewals(worker.host.context),
        held: await heldOf(resource, placement),
      })),
    );
    let deadline = monotonicNow() + 61_000_000;
    for (let round = 1; round <= 3; round++) {
      for (const { renewals, held } of workers) {
        deadline += 1_000_000;
        await renewals.renew(held, deadline);
        const { n } = (await suite.filesOf(resource).generation(placement.generation).lease.read())!;
        expect(await suite.timers(placement)).toEqual([leaseUnits(placement.unit, n).timer]);
      }
    }
    await left(worker, resource, placement, deadline);
  });

  /** One timer waits for the newest deadline, the files say so, the process lives, and nothing else is loaded. */
  async function left(worker: SuiteHost, resource: string, placement: Placement, newest: number): Promise<void> {
    const { n, oldest, deadline } = (await suite.filesOf(resource).generation(placement.generation).lease.read())!;
    expect({ oldest, deadline }).toEqual({ oldest: n, deadline: newest });
    const { timer, oneshot } = leaseUnits(placement.unit, n);
    expect(await suite.timers(placement)).toEqual([timer]);
    const { NextElapseUSecMonotonic } = (await worker.unit(timer, 'NextElapseUSecMonotonic'))!;
    expect(Math.abs(NextElapseUSecMonotonic! - newest)).toBeLessThan(250_000);
    expect(await worker.unit(placement.unit, 'ActiveState', 'InvocationID')).toEqual({
      ActiveState: 'active',
      InvocationID: placement.invocation,
    });
    // The unit wants its first timer, so that the manager keeps the first pair loaded, long stopped, for as long as it lives.
    const first = leaseUnits(placement.unit, 1);
    const expected = [placement.unit, placement.slice, first.timer, first.oneshot, timer, oneshot].sort();
    await eventually(async () => (await suite.loaded(resource)).sort().join() === expected.join());
    await worker.stopUntilProven(resource, placement);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
  }

  it('that nobody renews ends a notify program, whatever it says and however long it asks for (G7, G8)', async () => {
    /** Ignores SIGTERM, says this for ever, and asks for another minute each time. */
    const clinging = (name: string, ...words: string[]): ReturnType<typeof program> => {
      const text = `const { execFile } = require('node:child_process');
        process.on('SIGTERM', () => undefined);
        const say = (...words) => execFile('systemd-notify', words);
        setInterval(() => say(...${JSON.stringify(words)}, 'EXTEND_TIMEOUT_USEC=60000000'), 200);`;
      return program(name, [process.execPath, '-e', text], {
        leaseMs,
        ready: 'notify',
        stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
      });
    };
    const programs = [
      clinging('starting'),
      clinging('running', '--ready'),
      clinging('reloading', '--ready', 'RELOADING=1'),
      clinging('stopping', '--ready', 'STOPPING=1'),
    ];
    const worker = await suite.worker(programs);
    const started = await Promise.all(
      programs.map(async ({ name }) => {
        const resource = suite.resource();
        return { resource, name, placement: await worker.start(resource, name) };
      }),
    );
    await suite.end(worker);
    for (const { placement } of started) {
      const cgroup = join(suite.machine.cgroupRoot, 'own.slice', placement.slice, placement.unit);
      await eventually(async () => ['gone', 'empty'].includes((await readPopulated(cgroup)).kind));
    }

    const next = await suite.worker(programs);
    for (const { resource, placement } of started) {
      const { exit, proof } = await next.stopUntilProven(resource, placement);
      expect(exit.wording).toBe('unowned');
      expect(proof.by).toBe('empty');
    }
    for (const { resource } of started) await eventually(async () => (await suite.loaded(resource)).length === 0);
  });
});
