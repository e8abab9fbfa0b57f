import { connectSystemd, type DBusSystemd, type SystemdOptions } from '../../src/systemd/dbus-systemd';
import { openBusProxy, type BusMessage, type BusProxy } from '../support/bus-proxy';
import { eventually, sleepService, startsOnce, until } from '../support/systemd-units';
import { openTestHost, type TestHost } from '../support/test-host';

/** Faults on the way to a real manager: each is caused by a proxy in front of its bus. */
let host: TestHost;
let proxy: BusProxy;
const open: DBusSystemd[] = [];
let number = 0;
const unitName = (): string => `${host.unitPrefix}-bus${++number}.service`;

beforeAll(async () => (host = await openTestHost()));
afterAll(() => host?.end());
beforeEach(async () => (proxy = await openBusProxy(host.busAddress)));
afterEach(async () => {
  await Promise.all(open.splice(0).map((systemd) => systemd.close()));
  await proxy.end();
});

async function connect(options: Partial<SystemdOptions> = {}): Promise<DBusSystemd> {
  const systemd = await connectSystemd({ busAddress: proxy.busAddress, ...options });
  open.push(systemd);
  return systemd;
}

const resync = (systemd: DBusSystemd): Promise<void> => eventually((listener) => systemd.onResync(() => listener()));
const call = (member: string): Partial<BusMessage> => ({ from: 'client', type: 'call', member });

describe('G4: a call whose answer is lost', () => {
  test('rejects as unknown by its deadline, and is not sent again', async () => {
    const systemd = await connect({ callTimeoutMs: 1_500, recheckMs: 50 });
    const name = unitName();
    proxy.rule((message) => (message.type === 'reply' && message.member === 'StartTransientUnit' ? 'drop' : 'pass'));
    await expect(systemd.startTransientUnit(sleepService(name), [])).rejects.toMatchObject({
      kind: 'unknown',
      message: expect.stringContaining(`StartTransientUnit ${name}: sent, but not answered`),
    });
    // The outcome was unknown, and it was: started. So only an answered look-up decides.
    expect(await systemd.unitProperties(name, ['LoadState'])).toEqual({ LoadState: 'loaded' });
    expect(proxy.count(call('StartTransientUnit'))).toBe(1);
    // The lost answer's slot comes back once the manager was asked for its jobs.
    await until(() => systemd.jobsInFlight === 0);
    await systemd.stopUnit(name);
  });

  test('rejects as unknown when the connection breaks, and the next call works', async () => {
    const systemd = await connect();
    const name = unitName();
    proxy.rule((message) => (message.type === 'reply' && message.member === 'StartTransientUnit' ? 'drop' : 'pass'));
    const reply = proxy.next({ type: 'reply', member: 'StartTransientUnit' });
    const start = expect(systemd.startTransientUnit(sleepService(name), [])).rejects.toMatchObject({ kind: 'unknown' });
    const resynced = resync(systemd);
    await reply;
    proxy.cut();
    await start;
    expect(await systemd.unitProperties(name, ['LoadState'])).toEqual({ LoadState: 'loaded' });
    await resynced;
    expect(proxy.count(call('StartTransientUnit'))).toBe(1);
    await systemd.stopUnit(name);
  });

  test('has an answer that comes too late counted: its job keeps a slot until it ends', async () => {
    const systemd = await connect({ callTimeoutMs: 1_500, recheckMs: 3_600_000 });
    const name = unitName();
    proxy.rule(({ type, member }) => (type === 'reply' && member === 'StartTransientUnit' ? 'hold' : 'pass'));
    await expect(systemd.startTransientUnit(sleepService(name), [])).rejects.toMatchObject({ kind: 'unknown' });
    expect(systemd.jobsInFlight).toBe(1);
    proxy.release();
    await systemd.unitProperties(name, ['LoadState']); // answered after it, so it was read by now
    expect(systemd.jobsInFlight).toBe(0);
    await systemd.stopUnit(name);
  });
});

describe('the end of a job', () => {
  test('may be signalled before the answer that names the job', async () => {
    const systemd = await connect();
    const name = unitName();
    proxy.rule(({ type, member }) => (type === 'reply' && member === 'StartTransientUnit' ? 'hold' : 'pass'));
    const [removed, start] = [
      proxy.next({ type: 'signal', member: 'JobRemoved' }),
      systemd.startTransientUnit(sleepService(name), []),
    ];
    await removed;
    proxy.release();
    expect(await (await start).done).toBe('done');
    await systemd.stopUnit(name);
  });

  test('G4: is unknown when its signal was lost, once the manager no longer has the job', async () => {
    const systemd = await connect({ recheckMs: 50 });
    const name = unitName();
    proxy.rule(({ member }) => (member === 'JobRemoved' ? 'drop' : 'pass'));
    const job = await systemd.startTransientUnit(sleepService(name), []);
    await expect(job.done).rejects.toMatchObject({ kind: 'unknown', message: expect.stringContaining(name) });
    expect(systemd.jobsInFlight).toBe(0);
    await systemd.stopUnit(name);
  });

  test('G4: is unknown when the bus was lost meanwhile, whoever waits for it', async () => {
    const systemd = await connect({ recheckMs: 50 });
    const name = unitName();
    const gate = `${host.runDirectory}-gate`;
    const job = await systemd.startTransientUnit(sleepService(name, startsOnce(gate)), []);
    proxy.cut();
    await expect(job.done).rejects.toMatchObject({ kind: 'unknown' });
    await systemd.manager(); // connected again, and looked for jobs
    expect(systemd.jobsInFlight).toBe(1); // it still runs, and counts
    await host.run(['touch', gate]);
    await until(() => systemd.jobsInFlight === 0);
    expect(await systemd.unitProperties(name, ['ActiveState'])).toEqual({ ActiveState: 'active' });
    await host.run(['rm', gate]);
    await systemd.stopUnit(name);
  });
});

describe('without a connection', () => {
  test('a call waits for the next one, and is then sent once', async () => {
    const systemd = await connect();
    proxy.rule(({ member }) => (member === 'Hello' ? 'hold' : 'pass'));
    proxy.cut();
    await proxy.next(call('Hello'));
    const name = unitName();
    const start = systemd.startTransientUnit(sleepService(name), []);
    proxy.rule(() => 'pass');
    proxy.release();
    expect(await (await start).done).toBe('done');
    expect(proxy.count(call('StartTransientUnit'))).toBe(1);
    await systemd.stopUnit(name);
  });

  test('a call that can not be sent by its deadline says that it was not', async () => {
    const systemd = await connect({ callTimeoutMs: 200 });
    proxy.rule(() => 'drop');
    proxy.cut();
    await proxy.next(call('Hello'));
    await expect(systemd.stopUnit(unitName())).rejects.toMatchObject({
      kind: 'unknown',
      message: expect.stringContaining('not sent'),
    });
    expect(proxy.count(call('StopUnit'))).toBe(0);
    expect(systemd.jobsInFlight).toBe(0);
  });

  test('a call that waits for one is rejected by close', async () => {
    const systemd = await connect();
    proxy.rule(() => 'drop');
    proxy.cut();
    await proxy.next(call('Hello'));
    const waiting = expect(systemd.manager()).rejects.toMatchObject({
      kind: 'unknown',
      message: expect.stringContaining('not sent: the connection was closed'),
    });
    await systemd.close();
    await waiting;
  });

  test('signals that can not be subscribed to are as good as no connection', async () => {
    const systemd = await connect({ callTimeoutMs: 1_000 });
    proxy.rule(({ type, member }) => (type === 'reply' && member === 'Subscribe' ? 'drop' : 'pass'));
    proxy.cut();
    await proxy.next(call('Hello')); // the loss is known
    await expect(systemd.manager()).rejects.toMatchObject({ message: expect.stringContaining('not sent') });
    const resynced = resync(systemd);
    proxy.rule(() => 'pass');
    await resynced;
    await systemd.manager();
  });

  test('a bus that accepts and says nothing is given up and tried again', async () => {
    const systemd = await connect({ callTimeoutMs: 1_000 });
    proxy.rule(() => 'drop');
    proxy.cut();
    while (proxy.count(call('Hello')) < 3) await proxy.next(call('Hello'));
    proxy.rule(() => 'pass');
    await resync(systemd);
    await systemd.manager();
  });

  test('nothing is left behind by several of them', async () => {
    const systemd = await connect();
    const handles = (): number => process.getActiveResourcesInfo().length;
    const before = handles();
    for (let n = 0; n < 5; n++) {
      const rules = proxy.count(call('AddMatch'));
      const resynced = resync(systemd);
      proxy.cut();
      await resynced;
      expect(proxy.count(call('AddMatch')) - rules).toBe(5);
    }
    await until(() => handles() <= before);
  });

  test('events come again after it', async () => {
    const systemd = await connect();
    const resynced = resync(systemd);
    proxy.cut();
    await resynced;
    const name = unitName();
    const changed = eventually<string>(
      (listener) => systemd.onUnitChanged(listener),
      (unit) => unit === name,
    );
    await host.run([
      'systemd-run',
      ...(host.manager === 'user' ? ['--user'] : []),
      `--unit=${name}`,
      'sleep',
      'infinity',
    ]);
    await changed;
    await systemd.stopUnit(name);
  });
});

describe('what others do', () => {
  test('G11: malformed names are not sent at all', async () => {
    const systemd = await connect();
    const calls = (): number => proxy.count({ from: 'client', type: 'call' });
    const before = calls();
    const badUnit = { kind: 'bad-unit' };
    await expect(systemd.killUnit('', 9)).rejects.toMatchObject(badUnit);
    await expect(systemd.stopUnit('')).rejects.toMatchObject(badUnit);
    await expect(systemd.resetFailedUnit('no-suffix')).rejects.toMatchObject(badUnit);
    await expect(systemd.unitProperties('a/b.service', ['ActiveState'])).rejects.toMatchObject(badUnit);
    await expect(systemd.startTransientUnit(sleepService(''), [])).rejects.toMatchObject(badUnit);
    await expect(systemd.startTransientUnit(sleepService('x.service'), [sleepService('')])).rejects.toMatchObject(
      badUnit,
    );
    await expect(systemd.stopInvocation('')).rejects.toMatchObject(badUnit);
    await expect(systemd.stopInvocation('0'.repeat(32))).rejects.toMatchObject(badUnit);
    await expect(systemd.listUnits('')).rejects.toMatchObject(badUnit);
    expect(calls()).toBe(before);
  });

  test('a listener that throws disturbs neither the others nor the manager', async () => {
    const warnings: string[] = [];
    const log = { debug: () => undefined, info: () => undefined, warn: (text: string) => void warnings.push(text) };
    const systemd = await connect({ log });
    systemd.onUnitChanged(() => {
      throw new Error('a fault of ours');
    });
    const name = unitName();
    const changed = eventually<string>(
      (listener) => systemd.onUnitChanged(listener),
      (unit) => unit === name,
    );
    const job = await systemd.startTransientUnit(sleepService(name), []);
    expect(await job.done).toBe('done');
    await changed;
    expect(warnings[0]).toContain('a fault of ours');
    expect(proxy.count({ from: 'client', type: 'error' })).toBe(0);
    await systemd.stopUnit(name);
  });
});
