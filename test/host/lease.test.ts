import { join } from 'node:path';
import { readPopulated } from '../../src/cgroup/cgroup';
import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { monotonicNow } from '../../src/host/context';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, program, script } from '../support/owned-host';
import { SystemdError } from '../../src/systemd/port';

const leaseMs = 3000;
const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs });

describeOnPrivateHost('a lease', () => {
  const suite = new HostSuite();

  /** Resolves once the unit's cgroup is empty or gone: asked of the kernel, for the manager may be busy with itself. */
  async function ended({ slice, unit }: Placement): Promise<void> {
    const cgroup = join(suite.machine.cgroupRoot, 'own.slice', slice, unit);
    await eventually(async () => ['gone', 'empty'].includes((await readPopulated(cgroup)).kind));
  }

  /** Starts, holds, and resolves once the first renewal stands in the files. */
  async function startAndHold(worker: SuiteHost, resource: string, name: string): Promise<Placement> {
    const placement = await worker.start(resource, name);
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    return placement;
  }

  const renewed = (resource: string, { generation }: Placement, n = 2): Promise<void> =>
    eventually(async () => ((await suite.filesOf(resource).generation(generation).lease.read())?.oldest ?? 0) >= n);

  it('that nobody renews ends the process on time, with no worker there, and the next one says unowned (G7)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const began = monotonicNow();
    const placement = await worker.start(resource, 'sleeper');
    await suite.end(worker);
    await ended(placement);
    const lived = (monotonicNow() - began) / 1000;
    expect(lived).toBeGreaterThan(leaseMs - 100);
    expect(lived).toBeLessThan(leaseMs + 2000);

    const next = await suite.worker([sleeper]);
    const { exit, proof } = await next.stopUntilProven(resource, placement);
    expect(exit).toEqual({ wording: 'unowned', kind: 'unowned', source: 'lease' });
    expect(proof.by).toBe('empty');
    // Its oneshot goes a little later than the process.
    await eventually(async () => (await suite.loaded(resource)).length === 0);
  });

  it('ends although the worker is there, when the owner gives no answer (G4, G7)', async () => {
    const worker = await suite.worker([sleeper]);
    worker.link.answer = 'unknown';
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    await ended(placement);
    // Asked again several times before the lease was over, by the same hold.
    expect(worker.link.beats.length).toBeGreaterThan(3);
    expect((await worker.link.event('ended')).reason).toMatch(/gone|inactive|failed|deactivating/);
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('unowned');
  });

  it('that is renewed keeps the process for several leases, with one timer at a time (G7)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    await renewed(resource, placement, 8);
    const files = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => {
      const { n = 0, oldest = 0 } = (await files.lease.read()) ?? {};
      return n === oldest && (await suite.timers(placement)).join() === leaseUnits(placement.unit, n).timer;
    });
    expect(await worker.unit(placement.unit, 'InvocationID')).toEqual({ InvocationID: placement.invocation });
    expect(worker.link.beats.every(({ details }) => details.leaseUntil > Date.now() - 10_000)).toBe(true);
    await worker.stop(resource, placement);
    expect(await suite.timers(placement)).toEqual([]);
  });

  it('counts from before the heartbeat was sent, however slow the answer is (G7)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const sent: number[] = [];
    worker.link.onTheWay = async () => {
      sent.push(monotonicNow());
      await new Promise((resolve) => setTimeout(resolve, 700));
    };
    const placement = await startAndHold(worker, resource, 'sleeper');
    await renewed(resource, placement);
    const { deadline } = (await suite.filesOf(resource).generation(placement.generation).lease.read())!;
    expect(deadline).toBeLessThanOrEqual(sent[0]! + leaseMs * 1000);
    expect(deadline).toBeGreaterThan(sent[0]! + leaseMs * 1000 - 300_000);
    await worker.stop(resource, placement);
  });

  it.each(['ok', 'paused', 'cancelled'] as const)('is renewed when the owner’s end answers %s (G7)', async (answer) => {
    const worker = await suite.worker([sleeper]);
    worker.link.answer = answer;
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    await renewed(resource, placement);
    await worker.link.heard(2);
    expect(worker.link.failed).toEqual([]);
    await worker.stop(resource, placement);
  });

  it('is renewed when the activity was reset, whose hold is handed back once (G7)', async () => {
    const worker = await suite.worker([sleeper]);
    worker.link.answer = 'reset';
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    await worker.link.handedBack('token');
    const { hold, lease } = suite.filesOf(resource).generation(placement.generation);
    expect((await lease.read())!.n).toBe(2);
    await eventually(async () => (await hold.read()) === undefined);
    worker.link.answer = 'ok';
    await worker.host.hold(holdInput(resource, placement), 'again', 2);
    await worker.link.heardFrom('again');
    expect(worker.link.failed).toEqual(['token']);
    await worker.stop(resource, placement);
  });

  it('is not renewed for a token that is not found, and is by the next hold (G4, G7)', async () => {
    const worker = await suite.worker([sleeper]);
    worker.link.answer = 'not-found';
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    const { hold, lease } = suite.filesOf(resource).generation(placement.generation);
    await worker.link.heard(1);
    await eventually(async () => (await hold.read()) === undefined);
    expect((await lease.read())!.n).toBe(1);
    worker.link.answer = 'ok';
    await worker.host.hold(holdInput(resource, placement), 'next', 2);
    await renewed(resource, placement);
    expect(worker.link.beats.map(({ token }) => token)).toEqual(expect.arrayContaining(['token', 'next']));
    await worker.stop(resource, placement);
  });

  it('whose timer other hands have stopped is armed again for the deadline it had (G7)', async () => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }], { resyncMs: 200 });
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const before = (await lease.read())!;
    await suite.machine.systemctl('stop', leaseUnits(placement.unit, before.n).timer);
    await renewed(resource, placement);
    expect(await lease.read()).toEqual({ n: 2, oldest: 2, deadline: before.deadline });
    expect(await suite.timers(placement)).toEqual([leaseUnits(placement.unit, 2).timer]);
    await worker.stop(resource, placement);
  });

  it('that can’t be armed ends the process, and its owner hears why (G7)', async () => {
    let broken = false;
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }], { resyncMs: 200 }, (inner) => ({
      startTransientUnit: (unit, auxiliary) =>
        broken
          ? Promise.reject(new SystemdError('refused', 'no timers today'))
          : inner.startTransientUnit(unit, auxiliary),
    }));
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    broken = true;
    await suite.machine.systemctl('stop', leaseUnits(placement.unit, 1).timer);
    expect(await worker.link.event('ended')).toEqual({ kind: 'ended', reason: 'its lease could not be armed' });
    await ended(placement);
  });

  it('that a start could not arm as it should ends that process as well (G7)', async () => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }], {}, (inner) => ({
      // A manager that counts from another moment than it says.
      manager: async () => ({ ...(await inner.manager()), userspaceTimestampMonotonic: 0 }),
    }));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await ended(placement);
    expect(worker.lines.map(({ attributes }) => String(attributes.error)).join()).toContain('ms off its deadline');
    await worker.stopUntilProven(resource, placement);
  });

  it('is renewed although a renewal before it failed halfway, and no former timer is left to end it (G7)', async () => {
    let halfway = 0;
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        const job = await inner.startTransientUnit(unit, auxiliary);
        if (!unit.name.endsWith('.timer') || halfway++ >= 2) return job;
        await job.done;
        throw new SystemdError('unknown', 'no answer in time');
      },
    }));
    const resource = suite.resource();
    const placement = await startAndHold(worker, resource, 'sleeper');
    await renewed(resource, placement, 4);
    const { n } = (await suite.filesOf(resource).generation(placement.generation).lease.read())!;
    expect(await suite.timers(placement)).toEqual([leaseUnits(placement.unit, n).timer]);
    await worker.stop(resource, placement);
  });

  it('is renewed for a notify program that takes longer than a lease to be ready, which is then told (G7)', async () => {
    const text = `sleep ${(1.5 * leaseMs) / 1000}; systemd-notify --ready; exec sleep 9999`;
    const slow = script('slow', text, {
      leaseMs,
      ready: 'notify',
      stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
    });
    const worker = await suite.worker([slow]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'slow');
    await worker.host.hold(holdInput(resource, placement, { ready: false }), 'token', 1);
    await worker.link.event('ready');
    expect(await worker.unit(placement.unit, 'ActiveState', 'InvocationID')).toEqual({
      ActiveState: 'active',
      InvocationID: placement.invocation,
    });
    await worker.stop(resource, placement);
  });

  it('ends a notify program that would extend its own stop for ever (G7)', async () => {
    const text = `const { execFile } = require('node:child_process');
      process.on('SIGTERM', () => undefined);
      const say = (...words) => execFile('systemd-notify', words);
      say('--ready');
      setInterval(() => say('EXTEND_TIMEOUT_USEC=60000000'), 200);`;
    const worker = await suite.worker([
      program('clinging', [process.execPath, '-e', text], {
        leaseMs,
        ready: 'notify',
        stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
      }),
    ]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'clinging');
    await suite.end(worker);
    await ended(placement);
  });

  it('is neither extended nor lost by daemon-reload and daemon-reexec (G7)', async () => {
    const worker = await suite.worker([sleeper]);
    const began: number[] = [];
    const placements: Placement[] = [];
    // Many deadlines, so that some of them pass while the manager is away.
    for (let i = 0; i < 30; i++) {
      began.push(monotonicNow());
      placements.push(await worker.start(suite.resource(), 'sleeper'));
    }
    await suite.end(worker);
    let living = true;
    const reloading = (async () => {
      for (let i = 0; living; i++) {
        await suite.machine.systemctl(i % 4 === 3 ? 'daemon-reexec' : 'daemon-reload').catch(() => ''); // reexec cuts the call
      }
    })();
    try {
      const ends = placements.map(async (placement, i) => {
        await ended(placement);
        return (monotonicNow() - began[i]!) / 1000;
      });
      for (const lived of await Promise.all(ends)) {
        expect(lived).toBeGreaterThan(leaseMs - 100);
        expect(lived).toBeLessThan(leaseMs + 15_000); // the loop goes on until then: a lease that it extends has no end
      }
    } finally {
      living = false;
      await reloading;
    }
  });
});
