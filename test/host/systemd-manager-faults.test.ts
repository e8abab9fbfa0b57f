import { connectSystemd, type DBusSystemd, type SystemdOptions } from '../../src/systemd/dbus-systemd';
import { SystemdError, type JobResult } from '../../src/systemd/port';
import { eventually, sleepService, startsOnce, until } from '../support/systemd-units';
import { bootPrivateHost, canBootPrivateHosts, type PrivateHost } from '../support/test-host';

/** Faults of a real manager and a real bus. They need a host that can be broken. */
const describeOnPrivateHost = canBootPrivateHosts ? describe : describe.skip;

describeOnPrivateHost('when the manager or its bus fails', () => {
  let host: PrivateHost;
  const open: DBusSystemd[] = [];
  let number = 0;
  const unitName = (): string => `own-faults${++number}.service`;

  beforeAll(async () => (host = await bootPrivateHost()));
  afterAll(() => host?.end());
  afterEach(() => Promise.all(open.splice(0).map((systemd) => systemd.close())));

  async function connect(options: Partial<SystemdOptions> = {}): Promise<DBusSystemd> {
    const systemd = await connectSystemd({ busAddress: host.busAddress, ...options });
    open.push(systemd);
    return systemd;
  }

  const resync = (systemd: DBusSystemd): Promise<void> => eventually((listener) => systemd.onResync(() => listener()));

  test('G4: while PID 1 is stopped every call is unknown by its deadline, and afterwards all work again', async () => {
    const systemd = await connect({ callTimeoutMs: 1_500 });
    const [name, late] = [unitName(), unitName()];
    await (
      await systemd.startTransientUnit(sleepService(name), [])
    ).done;
    const { InvocationID = '' } = (await systemd.unitProperties(name, ['InvocationID']))!;
    process.kill(host.pid, 'SIGSTOP');
    try {
      const began = performance.now();
      const calls = [
        systemd.manager(),
        systemd.listUnits('own-*'),
        systemd.unitProperties(name, ['ActiveState']),
        systemd.startTransientUnit(sleepService(late), []),
        systemd.stopInvocation(InvocationID),
        systemd.stopUnit(name),
        systemd.killUnit(name, 15),
        systemd.resetFailedUnit(name),
      ];
      for (const outcome of await Promise.allSettled(calls)) {
        expect(outcome).toMatchObject({ status: 'rejected', reason: { kind: 'unknown' } });
        expect((outcome as PromiseRejectedResult).reason).toBeInstanceOf(SystemdError);
      }
      expect(performance.now() - began).toBeLessThan(10_000); // one deadline for all of them, not one after the other
      expect(systemd.jobsInFlight).toBe(3);
    } finally {
      process.kill(host.pid, 'SIGCONT');
    }
    // What was sent to a stopped PID 1 is done late. An answer to a later question says what came of it.
    expect(await systemd.unitProperties(late, ['LoadState'])).toEqual({ LoadState: 'loaded' });
    await until(() => systemd.jobsInFlight === 0);
    expect(await systemd.unitProperties(name, ['ActiveState'])).toBeUndefined();
    expect(await (await systemd.stopUnit(late)).done).toBe('done');
  });

  test('G4: a PID 1 that stays stopped is not asked more than the bus has room for', async () => {
    const systemd = await connect({ callTimeoutMs: 1_500, queueTimeoutMs: 500 });
    process.kill(host.pid, 'SIGSTOP');
    try {
      const outcomes = await Promise.allSettled(Array.from({ length: 300 }, () => systemd.listUnits('own-*')));
      const sent = outcomes.filter((outcome) => {
        expect(outcome).toMatchObject({ status: 'rejected', reason: { kind: 'unknown' } });
        return !String((outcome as PromiseRejectedResult).reason).includes('not sent');
      });
      expect(sent).toHaveLength(64);
    } finally {
      process.kill(host.pid, 'SIGCONT');
    }
    await systemd.manager();
  });

  test.each(['daemon-reload', 'daemon-reexec'])(
    '%s during a hundred starts and stops: all of them settle, and everything is read again',
    async (operation) => {
      const systemd = await connect();
      let resyncs = 0;
      systemd.onResync(() => resyncs++);
      const names = Array.from({ length: 100 }, unitName);
      const over = names.map(async (name): Promise<(JobResult | 'unknown')[]> => {
        const unknown = (error: unknown): 'unknown' => {
          expect(error).toMatchObject({ kind: 'unknown' });
          return 'unknown';
        };
        const started = await systemd
          .startTransientUnit(sleepService(name), [])
          .then((job) => job.done)
          .catch(unknown);
        // Only an answered look-up decides after an unknown outcome (G4).
        let unit: { readonly InvocationID?: string } | undefined | 'unknown';
        do unit = await systemd.unitProperties(name, ['InvocationID']).catch(unknown);
        while (unit === 'unknown');
        if (!unit?.InvocationID) return [started];
        const stopped = await systemd
          .stopInvocation(unit.InvocationID)
          .then((job) => job.done)
          .catch(unknown);
        return [started, stopped];
      });
      for (let n = 0; n < 3; n++) await host.systemctl(operation);
      const results = (await Promise.all(over)).flat();
      expect(results.filter((result) => result !== 'done' && result !== 'unknown')).toEqual([]);
      expect(resyncs).toBeGreaterThanOrEqual(1);
      await until(() => systemd.jobsInFlight === 0);
      for (const unit of await systemd.listUnits('own-faults*')) await systemd.stopUnit(unit.name);
    },
  );

  test('daemon-reexec gives PID 1 another name on the bus: resync, and events come again', async () => {
    const systemd = await connect();
    const resynced = resync(systemd);
    await host.systemctl('daemon-reexec');
    await resynced;
    const name = unitName();
    const changed = eventually<string>(
      (listener) => systemd.onUnitChanged(listener),
      (unit) => unit === name,
    );
    await host.run(['systemd-run', `--unit=${name}`, 'sleep', 'infinity']);
    await changed;
    await systemd.stopUnit(name);
  });

  test('G4: the bus is killed with a call pending: unknown, reconnected, resync, and all works again', async () => {
    const systemd = await connect();
    const name = unitName();
    const gate = `${host.runDirectory}-${name}`;
    const job = await systemd.startTransientUnit(sleepService(name, startsOnce(gate)), []);
    const busPid = (await host.systemctl('show', '--property=MainPID', '--value', 'dbus.service')).trim();
    process.kill(host.pid, 'SIGSTOP'); // so that the next call is certainly pending
    const pending = expect(systemd.listUnits('own-*')).rejects.toMatchObject({ kind: 'unknown' });
    const lost = expect(job.done).rejects.toMatchObject({ kind: 'unknown' });
    const resynced = resync(systemd);
    try {
      await host.run(['kill', '-KILL', busPid]);
      await Promise.all([pending, lost]);
    } finally {
      process.kill(host.pid, 'SIGCONT');
    }
    // Nobody can ask for it over the bus; systemctl as root talks to PID 1 directly.
    await host.systemctl('start', 'dbus.service');
    await resynced;
    expect((await systemd.listUnits(name))[0]).toMatchObject({ name, activeState: 'activating' });
    const changed = eventually<string>(
      (listener) => systemd.onUnitChanged(listener),
      (unit) => unit === name,
    );
    await host.run(['touch', gate]);
    await changed;
    await until(() => systemd.jobsInFlight === 0);
    expect(await (await systemd.stopUnit(name)).done).toBe('done');
  });

  test('G8: a signal of anyone else about a job is not believed', async () => {
    const systemd = await connect();
    const name = unitName();
    const gate = `${host.runDirectory}-${name}`;
    const job = await systemd.startTransientUnit(sleepService(name, startsOnce(gate, 1)), []);
    const { stdout } = await host.run(['busctl', '--system', '--unique', '--no-legend', '--no-pager', 'list']);
    const clients = stdout.match(/^:\S+/gm)!;
    for (const client of clients) {
      const signal = ['dbus-send', '--system', '--type=signal', `--dest=${client}`, '/org/freedesktop/systemd1'];
      const jobRemoved = ['org.freedesktop.systemd1.Manager.JobRemoved', 'uint32:1', `objpath:${job.path}`];
      expect(await host.run([...signal, ...jobRemoved, `string:${name}`, 'string:done'])).toMatchObject({ code: 0 });
    }
    await host.run(['touch', gate]);
    expect(await job.done).toBe('failed');
    await systemd.resetFailedUnit(name);
  });
});
