import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { connectSystemd, type DBusSystemd } from '../../src/systemd/dbus-systemd';
import type { UnitProperties, UnitPropertyName } from '../../src/systemd/port';
import { eventually, shellService, sleepService, until } from '../support/systemd-units';
import { openTestHost, type TestHost } from '../support/test-host';

let host: TestHost;
let systemd: DBusSystemd;
let number = 0;
/** A name that no other test has used. */
const unitName = (type = 'service'): string => `${host.unitPrefix}-calls${++number}.${type}`;

beforeAll(async () => {
  host = await openTestHost();
  systemd = await connectSystemd({ busAddress: host.busAddress });
});

afterAll(async () => {
  await systemd?.close();
  await host?.end();
});

async function started(name: string, ...settings: Parameters<typeof sleepService>[1][]): Promise<string> {
  const job = await systemd.startTransientUnit(sleepService(name, ...settings), []);
  expect(await job.done).toBe('done');
  const unit = await systemd.unitProperties(name, ['InvocationID']);
  return unit!.InvocationID!;
}

async function stop(invocation: string): Promise<void> {
  expect(await (await systemd.stopInvocation(invocation)).done).toBe('done');
}

describe('a transient service', () => {
  test('starts, is read in plain JSON values, and is stopped by its invocation', async () => {
    const name = unitName();
    const names: UnitPropertyName[] = [
      ...(['LoadState', 'ActiveState', 'SubState', 'Description', 'StopWhenUnneeded', 'InvocationID'] as const),
      ...(['Result', 'ExecMainCode', 'ExecMainStatus', 'ExecMainExitTimestampMonotonic', 'MainPID'] as const),
      ...(['ControlGroup', 'ControlGroupId', 'LogExtraFields', 'FreezerState'] as const),
      'NextElapseUSecMonotonic',
    ];
    const job = await systemd.startTransientUnit(
      sleepService(name, ['Description', 's', 'a test'], ['LogExtraFields', 'aay', [Buffer.from('OWNER=tést')]]),
      [],
    );
    expect(job.path).toMatch(/^\/org\/freedesktop\/systemd1\/job\/\d+$/);
    expect(await job.done).toBe('done');

    const unit = await systemd.unitProperties(name, names);
    expect(JSON.parse(JSON.stringify(unit))).toEqual({
      LoadState: 'loaded',
      ActiveState: 'active',
      SubState: 'running',
      Description: 'a test',
      StopWhenUnneeded: false,
      InvocationID: expect.stringMatching(/^[0-9a-f]{32}$/),
      Result: 'success',
      ExecMainCode: 0,
      ExecMainStatus: 0,
      ExecMainExitTimestampMonotonic: 0,
      MainPID: expect.any(Number),
      ControlGroup: expect.stringMatching(new RegExp(`/${name}$`)),
      ControlGroupId: expect.stringMatching(/^[1-9]\d*$/),
      LogExtraFields: ['OWNER=tést'],
      FreezerState: 'running',
    });
    expect(await systemd.listUnits(`${host.unitPrefix}-calls*`)).toContainEqual({
      name,
      description: 'a test',
      loadState: 'loaded',
      activeState: 'active',
      subState: 'running',
      jobType: '',
    });

    const stop = await systemd.stopInvocation(unit!.InvocationID!);
    expect(await stop.done).toBe('done');
    expect(await systemd.unitProperties(name, names)).toBeUndefined();
    expect(systemd.jobsInFlight).toBe(0);
  });

  test('that fails keeps its exit code until it is reset', async () => {
    const name = unitName();
    const job = await systemd.startTransientUnit(shellService(name, 'exit 3'), []);
    expect(await job.done).toBe('done');
    let unit: UnitProperties | undefined;
    await until(async () => {
      unit = await systemd.unitProperties(name, ['ActiveState', 'Result', 'ExecMainCode', 'ExecMainStatus']);
      return unit?.ActiveState === 'failed';
    });
    expect(unit).toEqual({ ActiveState: 'failed', Result: 'exit-code', ExecMainCode: 1, ExecMainStatus: 3 });
    await systemd.resetFailedUnit(name);
    expect(await systemd.unitProperties(name, ['ActiveState'])).toBeUndefined();
  });

  test('is killed by a signal to all its processes', async () => {
    const name = unitName();
    await started(name, ['RemainAfterExit', 'b', true]);
    await systemd.killUnit(name, 9);
    let unit: UnitProperties | undefined;
    await until(async () => {
      unit = await systemd.unitProperties(name, ['Result', 'ExecMainCode', 'ExecMainStatus']);
      return unit?.ExecMainCode !== 0;
    });
    expect(unit).toEqual({ Result: 'signal', ExecMainCode: 2, ExecMainStatus: 9 });
    await systemd.resetFailedUnit(name);
  });

  test('has a cgroup whose id is the inode of its directory', async () => {
    const name = unitName();
    const invocation = await started(name);
    const unit = await systemd.unitProperties(name, ['ControlGroup', 'ControlGroupId']);
    const directory = await stat(join(host.cgroupRoot, unit!.ControlGroup!), { bigint: true });
    expect(unit!.ControlGroupId).toBe(directory.ino.toString());
    await stop(invocation);
  });

  test('starts together with its auxiliary units', async () => {
    const [service, timer] = [unitName(), unitName('timer')];
    const lease = shellService(timer.replace('timer', 'service'), 'true', ['Type', 's', 'oneshot']);
    const job = await systemd.startTransientUnit(
      sleepService(service, ['Wants', 'as', [timer]], ['After', 'as', [timer]]),
      [
        {
          name: timer,
          properties: [
            ['DefaultDependencies', 'b', false],
            ['TimersMonotonic', 'a(st)', [['OnActiveSec', 3_600_000_000]]],
          ],
        },
        lease,
      ],
    );
    expect(await job.done).toBe('done');
    const read = await systemd.unitProperties(timer, ['SubState', 'NextElapseUSecMonotonic', 'MainPID']);
    expect(read).toEqual({ SubState: 'waiting', NextElapseUSecMonotonic: expect.any(Number) });
    for (const name of [timer, service]) await (await systemd.stopUnit(name)).done;
  });
});

test('an answer is one picture, however often the unit changes meanwhile', async () => {
  const name = unitName();
  // Runs for a moment, restarts at once, for ever.
  const restless = shellService(
    name,
    'exec true',
    ['Restart', 's', 'always'],
    ['RestartUSec', 't', 1000],
    ['StartLimitIntervalUSec', 't', 0],
  );
  await (
    await systemd.startTransientUnit(restless, [])
  ).done;
  const pictures = new Set<string>();
  for (let n = 0; n < 500; n++) {
    const unit = await systemd.unitProperties(name, ['SubState', 'MainPID', 'ControlGroup']);
    pictures.add(`${unit!.SubState} pid ${unit!.MainPID! > 0} cgroup ${unit!.ControlGroup !== ''}`);
  }
  await (
    await systemd.stopUnit(name)
  ).done;
  expect(pictures).toContain('running pid true cgroup true');
  for (const picture of pictures) {
    if (picture.startsWith('running')) expect(picture).toContain('pid true');
    else expect(picture).toContain('pid false');
  }
});

describe('what can not be', () => {
  test('G11: the stop of one invocation does not touch the next one', async () => {
    const name = unitName();
    const first = await started(name);
    await host.systemctl('restart', name);
    await expect(systemd.stopInvocation(first)).rejects.toMatchObject({ kind: 'no-such-invocation' });
    const unit = await systemd.unitProperties(name, ['ActiveState', 'InvocationID']);
    expect(unit!.ActiveState).toBe('active');
    expect(unit!.InvocationID).not.toBe(first);
    await stop(unit!.InvocationID!);
  });

  test('G5: a second start under the same name', async () => {
    const name = unitName();
    const invocation = await started(name);
    await expect(systemd.startTransientUnit(sleepService(name), [])).rejects.toMatchObject({
      kind: 'unit-exists',
      message: expect.stringContaining(name),
    });
    await stop(invocation);
  });

  test.each([
    ['a property that systemd does not know', ['NoSuchProperty', 's', 'x']],
    ['a value that systemd refuses', ['Type', 's', 'nonsense']],
    ['a value that is not of its signature', ['TimeoutStopUSec', 't', 'soon']],
    ['a value that is missing', ['Description', 's', undefined]],
  ] as const)('a unit with %s', async (_what, setting) => {
    const name = unitName();
    const start = systemd.startTransientUnit(sleepService(name, setting), []);
    await expect(start).rejects.toMatchObject({ kind: 'bad-unit', message: expect.stringContaining(name) });
    expect(await systemd.unitProperties(name, ['ActiveState'])).toBeUndefined();
    expect(systemd.jobsInFlight).toBe(0);
  });

  test('calls about a unit that is not loaded', async () => {
    const name = unitName();
    const noSuchUnit = { kind: 'no-such-unit', message: expect.stringContaining(name) };
    expect(await systemd.unitProperties(name, ['ActiveState'])).toBeUndefined();
    await expect(systemd.stopUnit(name)).rejects.toMatchObject(noSuchUnit);
    await expect(systemd.killUnit(name, 9)).rejects.toMatchObject(noSuchUnit);
    await expect(systemd.resetFailedUnit(name)).rejects.toMatchObject(noSuchUnit);
    await expect(systemd.stopInvocation('f'.repeat(32))).rejects.toMatchObject({ kind: 'no-such-invocation' });
    expect(await systemd.listUnits(name)).toEqual([]);
  });

  test('a signal that does not exist', async () => {
    const name = unitName();
    const invocation = await started(name);
    await expect(systemd.killUnit(name, 4711)).rejects.toMatchObject({ kind: 'bad-unit' });
    await stop(invocation);
  });
});

test('the manager tells its version, where it runs, when it started and where it keeps transient units', async () => {
  expect(await systemd.manager()).toEqual({
    version: expect.stringMatching(/^\d{3}/),
    virtualization: expect.any(String),
    userspaceTimestampMonotonic: expect.any(Number),
    transientDirectory: expect.stringMatching(/^\/run\/.*systemd\/transient$/),
  });
});

test('changes are told by the name of the unit, whatever characters it has', async () => {
  const name = `${host.unitPrefix}-cälls`.replace('ä', '\\xe4') + ':_.@9.service';
  const changed = eventually<string>(
    (listener) => systemd.onUnitChanged(listener),
    (unit) => unit === name,
  );
  const invocation = await started(name);
  await changed;
  await stop(invocation);
});

test('a closed connection leaves nothing behind that would keep the process running', async () => {
  const handles = (): number => process.getActiveResourcesInfo().filter((type) => type === 'PipeWrap').length;
  const before = handles();
  const other = await connectSystemd({ busAddress: host.busAddress });
  expect(handles()).toBe(before + 1);
  const pending = expect(other.manager()).rejects.toMatchObject({ kind: 'unknown' });
  await other.close();
  await pending;
  const notSent = { kind: 'unknown', message: expect.stringContaining('not sent') };
  await expect(other.manager()).rejects.toMatchObject(notSent);
  await expect(other.stopUnit('x.service')).rejects.toMatchObject(notSent);
  await until(() => handles() === before);
});
