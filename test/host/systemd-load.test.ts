import { connectSystemd, type DBusSystemd } from '../../src/systemd/dbus-systemd';
import type { TransientUnit } from '../../src/systemd/port';
import { shellService, sleepService, startsOnce, until } from '../support/systemd-units';
import { openTestHost, type TestHost } from '../support/test-host';

let host: TestHost;
let systemd: DBusSystemd;

beforeAll(async () => {
  host = await openTestHost();
  systemd = await connectSystemd({ busAddress: host.busAddress });
});

afterAll(async () => {
  await systemd?.close();
  await host?.end();
});

test('of 300 starts at once 48 are on the manager, and stops and lease timers pass the others', async () => {
  const running = `${host.unitPrefix}-load-running.service`;
  await (
    await systemd.startTransientUnit(sleepService(running), [])
  ).done;
  const names = Array.from({ length: 300 }, (_, n) => `${host.unitPrefix}-load${n}.service`);
  let most = 0;
  systemd.onUnitChanged(() => (most = Math.max(most, systemd.jobsInFlight)));

  // No start ends before the gate is open.
  const gate = `${host.runDirectory}-gate`;
  const starts = Promise.all(
    names.map(async (name) => {
      const job = await systemd.startTransientUnit(sleepService(name, startsOnce(gate)), []);
      return job.done;
    }),
  );
  const jobs = async (): Promise<number> =>
    (await host.systemctl('list-jobs', '--no-legend')).split('\n').filter((row) => row.includes('-load')).length;
  await until(async () => (await jobs()) >= 48);

  const timer = `${host.unitPrefix}-load-lease1.timer`;
  expect(await (await systemd.stopUnit(running)).done).toBe('done');
  expect(await (await systemd.startTransientUnit(...lease(timer))).done).toBe('done');
  expect(await (await systemd.stopUnit(timer)).done).toBe('done');
  expect(await jobs()).toBe(48);
  expect(most).toBe(49); // those, and one of the three above at a time

  await host.run(['touch', gate]);
  expect(new Set(await starts)).toEqual(new Set(['done']));
  await host.run(['rm', gate]);
  const stops = names.map(async (name) => (await systemd.stopUnit(name)).done);
  expect(new Set(await Promise.all(stops))).toEqual(new Set(['done']));
  expect(most).toBe(56);
  expect(systemd.jobsInFlight).toBe(0);
  expect(await systemd.listUnits(`${host.unitPrefix}-load*`)).toEqual([]);
});

function lease(timer: string): [TransientUnit, TransientUnit[]] {
  const properties: TransientUnit['properties'] = [
    ['DefaultDependencies', 'b', false],
    ['TimersMonotonic', 'a(st)', [['OnActiveSec', 3_600_000_000]]],
  ];
  return [{ name: timer, properties }, [shellService(timer.replace(/timer$/, 'service'), 'true')]];
}
