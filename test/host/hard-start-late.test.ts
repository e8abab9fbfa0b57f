import { generationUnit } from '../../src/contract/names';
import { StillRunningError } from '../../src/host/host';
import { connectSystemd } from '../../src/systemd/dbus-systemd';
import { openBusProxy, type BusProxy } from '../support/bus-proxy';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost, type SystemdFault } from '../support/host-suite';
import { owner, startInput } from '../support/owned-host';
import { livingUnits, loner, overlaps, startAsOwner } from '../support/unit-processes';

/** Long enough that on a busy machine only the call that a test disturbs runs out of it. */
const callTimeoutMs = 1000;

describeOnPrivateHost('a start whose call is lost, late or never answered', () => {
  const suite = new HostSuite();
  const proxies: BusProxy[] = [];
  afterEach(async () => {
    process.kill(suite.machine.pid, 'SIGCONT');
    await Promise.all(proxies.splice(0).map((proxy) => proxy.end()));
  });

  const living = (resource: string): Promise<readonly string[]> => livingUnits(suite.machine, resource);

  /** A worker behind a bus that a test can disturb. */
  async function disturbed(): Promise<{ readonly worker: SuiteHost; readonly proxy: BusProxy }> {
    const proxy = await openBusProxy(suite.machine.busAddress);
    proxies.push(proxy);
    const connection = { busAddress: proxy.busAddress, callTimeoutMs };
    return { worker: await suite.worker([loner(suite.machine)], {}, undefined, connection), proxy };
  }

  /** A worker whose calls are given up soon, on an undisturbed bus. */
  const impatient = (): Promise<SuiteHost> => suite.worker([loner(suite.machine)], {}, undefined, { callTimeoutMs });

  it('whose reply is lost is looked up, and has made one process (G5)', async () => {
    const { worker, proxy } = await disturbed();
    const resource = suite.resource();
    proxy.rule(({ type, member }) => (type === 'reply' && member === 'StartTransientUnit' ? 'drop' : 'pass'));
    const calls = (): number => proxy.count({ type: 'call', member: 'StartTransientUnit' });
    const before = calls();
    const answer = await worker.host.start(startInput(resource, 'loner'));
    expect(answer.kind).toBe('started');
    expect(await living(resource)).toHaveLength(1);
    expect(calls() - before).toBe(1);
    proxy.rule(() => 'pass');
    expect((await worker.host.start(startInput(resource, 'loner'))).kind).toBe('adopted');
    expect(await living(resource)).toHaveLength(1);
  });

  it('whose connection breaks at the call leaves one process or none, and the next start runs (G5)', async () => {
    const { worker, proxy } = await disturbed();
    const resource = suite.resource();
    proxy.rule(({ type, member }) => (type === 'reply' && member === 'StartTransientUnit' ? 'drop' : 'pass'));
    const sent = proxy.next({ from: 'bus', type: 'reply', member: 'StartTransientUnit' });
    const start = worker.host.start(startInput(resource, 'loner')).catch(() => undefined);
    await sent;
    proxy.cut();
    proxy.rule(() => 'pass');
    await start;
    const placement = await startAsOwner(worker.host, resource, 'loner');
    expect(await living(resource)).toEqual([placement.unit]);
    expect(await overlaps(suite.machine)).toBe('');
  });

  it.each([
    ['and the next generation runs', true, 'error'], // the slice that it would make is there
    ['and the next generation is over as well', false, 'reply'], // a job, which the assertion ends
  ])('that arrives an hour late, once it was given up %s, makes nothing (G2, G5)', async (_what, runs, answered) => {
    const { worker, proxy } = await disturbed();
    const [resource, generation] = [suite.resource(), Date.now()];
    proxy.rule(({ type, member }) => (type === 'call' && member === 'StartTransientUnit' ? 'hold' : 'pass'));
    const answer = await worker.host.start(startInput(resource, 'loner', { generation }));
    expect(answer).toMatchObject({ kind: 'blocked', reason: expect.stringMatching(/it is not there/) });
    const other = await suite.worker([loner(suite.machine)]);
    const next = await startAsOwner(other.host, resource, 'loner', generation + 1);
    if (!runs) await other.stopUntilProven(resource, next);
    if (!runs) await eventually(async () => (await suite.loaded(resource)).length === 0);

    const arrived = proxy.next({ from: 'bus', member: 'StartTransientUnit' });
    const over = proxy.next({ type: 'signal', member: 'JobRemoved' });
    proxy.release();
    expect((await arrived).type).toBe(answered);
    if (!runs) await over;
    expect(await living(resource)).toEqual(runs ? [next.unit] : []);
    const late = generationUnit('own', resource, generation);
    expect((await other.unit(late, 'InvocationID'))?.InvocationID || 'never ran').toBe('never ran');
    if (runs) expect(await other.unit(next.unit, 'InvocationID')).toEqual({ InvocationID: next.invocation });
    // Whatever it left of itself goes with the next one.
    const last = await startAsOwner(other.host, resource, 'loner', next.generation + 1);
    await other.stopUntilProven(resource, last);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    expect(await overlaps(suite.machine)).toBe('');
  });

  it('that PID 1 gets to late is adopted by the next one (G5)', async () => {
    const worker = await impatient();
    const resource = suite.resource();
    await expect(stoppedAtTheCall(worker, resource)).rejects.toMatchObject({ kind: 'unknown' });
    process.kill(suite.machine.pid, 'SIGCONT');
    const placement = await startAsOwner(worker.host, resource, 'loner');
    expect(await living(resource)).toEqual([placement.unit]);
    expect(await overlaps(suite.machine)).toBe('');
  });

  it('that PID 1 gets to after the owner has stopped never runs (G3, G5)', async () => {
    const worker = await impatient();
    const [resource, generation] = [suite.resource(), Date.now()];
    await expect(stoppedAtTheCall(worker, resource, generation)).rejects.toMatchObject({ kind: 'unknown' });
    // The stop closes it although nobody answers; that is no proof yet.
    const stop = { resource, owner, rung: 'stop', generation } as const;
    await expect(worker.host.stop(stop)).rejects.toBeInstanceOf(StillRunningError);
    process.kill(suite.machine.pid, 'SIGCONT');
    const placement = (await startAsOwner(worker.host, resource, 'loner', generation + 1)).generation;
    expect(placement).toBeGreaterThan(generation);
    expect(await living(resource)).toEqual([generationUnit('own', resource, placement)]);
    expect(await overlaps(suite.machine)).toBe('');
  });

  it('over which the bus dies leaves one process or none, and the next start runs (G2, G5)', async () => {
    const worker = await impatient();
    const resource = suite.resource();
    const bus = (await suite.machine.systemctl('show', '--property=MainPID', '--value', 'dbus.service')).trim();
    let reach = (): void => undefined;
    const reached = new Promise<void>((resolve) => (reach = resolve));
    const stopped = stoppedAtTheCall(worker, resource, Date.now(), reach);
    const start = expect(stopped).rejects.toMatchObject({ kind: 'unknown' });
    await reached; // else the bus may die before the start has come so far
    await suite.machine.run(['kill', '-KILL', bus]);
    await start;
    process.kill(suite.machine.pid, 'SIGCONT');
    await suite.machine.systemctl('start', 'dbus.service');
    const placement = await startAsOwner(worker.host, resource, 'loner');
    expect(await living(resource)).toEqual([placement.unit]);
    expect(await overlaps(suite.machine)).toBe('');
  });

  it('that wakes up after a reboot is refused, for its leave to start was on that boot (G2, G5)', async () => {
    const [resource, generation] = [suite.resource(), Date.now()];
    let wake = (): void => undefined;
    const woken = new Promise<void>((resolve) => (wake = resolve));
    let asleep = (): void => undefined;
    const sleeping = new Promise<void>((resolve) => (asleep = resolve));
    const fault: SystemdFault = (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        if (!unit.name.endsWith('.service')) return inner.startTransientUnit(unit, auxiliary);
        asleep();
        await woken;
        const now = await connectSystemd({ busAddress: suite.machine.busAddress });
        const job = await now.startTransientUnit(unit, auxiliary);
        expect(await job.done).toBe('assert');
        await now.close();
        return job;
      },
    });
    const worker = await suite.worker([loner(suite.machine)], {}, fault, { callTimeoutMs });
    const start = worker.host.start(startInput(resource, 'loner', { generation })).catch((error: unknown) => error);
    await sleeping;
    await suite.machine.reboot();
    wake();
    expect(await start).not.toMatchObject({ kind: 'started' });
    expect(await living(resource)).toEqual([]);
    const next = await suite.worker([loner(suite.machine)]);
    const placement = await startAsOwner(next.host, resource, 'loner', generation + 1);
    expect(await living(resource)).toEqual([placement.unit]);
    await suite.end(worker);
  });

  /** Begins a start and stops PID 1 when nothing but its call is left to do. */
  async function stoppedAtTheCall(
    worker: SuiteHost,
    resource: string,
    generation = Date.now(),
    onReached: () => void = () => undefined,
  ): Promise<unknown> {
    const { systemd } = worker.host.context;
    const real = systemd.startTransientUnit.bind(systemd);
    let reached = false;
    systemd.startTransientUnit = (unit, auxiliary) => {
      if (!reached) process.kill(suite.machine.pid, 'SIGSTOP');
      reached = true;
      onReached();
      return real(unit, auxiliary);
    };
    try {
      return await worker.host.start(startInput(resource, 'loner', { generation }));
    } finally {
      systemd.startTransientUnit = real;
      expect(reached).toBe(true);
    }
  }
});
