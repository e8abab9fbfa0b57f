import { answeredError, kindOfDBusError, UnsentError } from '../../src/systemd/errors';
import { SystemdError, type SystemdErrorKind } from '../../src/systemd/port';

const SYSTEMD = 'org.freedesktop.systemd1';
const DBUS = 'org.freedesktop.DBus.Error';

const table: [string, SystemdErrorKind][] = [
  [`${SYSTEMD}.NoSuchUnit`, 'no-such-unit'],
  [`${SYSTEMD}.NoUnitForInvocationID`, 'no-such-invocation'],
  [`${SYSTEMD}.UnitExists`, 'unit-exists'],
  [`${SYSTEMD}.TransactionIsDestructive`, 'busy'],
  [`${SYSTEMD}.TransactionJobsConflicting`, 'busy'],
  [`${SYSTEMD}.LoadFailed`, 'bad-unit'],
  [`${SYSTEMD}.BadUnitSetting`, 'bad-unit'],
  [`${SYSTEMD}.UnitMasked`, 'bad-unit'],
  [`${DBUS}.InvalidArgs`, 'bad-unit'],
  [`${SYSTEMD}.ShuttingDown`, 'shutting-down'],
  [`${DBUS}.AccessDenied`, 'refused'],
  [`${DBUS}.InteractiveAuthorizationRequired`, 'refused'],
];

describe('errors of the bus', () => {
  test.each(table)('%s means %s', (dbusName, kind) => {
    expect(kindOfDBusError(dbusName)).toBe(kind);
  });

  test.each([
    'NoReply',
    'Timeout',
    'TimedOut',
    'Disconnected',
    'LimitsExceeded',
    'ServiceUnknown',
    'NameHasNoOwner',
    'Failed',
    'NoMemory',
    'NeverHeardOf',
  ])('G4: %s leaves the outcome unknown', (name) => {
    expect(kindOfDBusError(`${DBUS}.${name}`)).toBe('unknown');
  });

  test('G4: that a signal reached no process is no proof that the unit is gone', () => {
    expect(kindOfDBusError(`${SYSTEMD}.NoSuchProcess`)).toBe('unknown');
  });

  test('G4: names that every object has are not in the table', () => {
    for (const name of ['constructor', 'toString', '__proto__', '']) expect(kindOfDBusError(name)).toBe('unknown');
  });

  test('an answered error names the call, the reason and what the bus called it', () => {
    const error = answeredError('StopUnit db.service', `${SYSTEMD}.NoSuchUnit`, 'Unit db.service not loaded.');
    expect(error).toBeInstanceOf(SystemdError);
    expect(error).toMatchObject({
      kind: 'no-such-unit',
      dbusName: `${SYSTEMD}.NoSuchUnit`,
      message: `StopUnit db.service: Unit db.service not loaded. (${SYSTEMD}.NoSuchUnit)`,
    });
  });

  test('a call that was not sent says so and is a SystemdError like any other', () => {
    const cause = new Error('connect ENOENT');
    const error = new UnsentError('StopUnit db.service', 'no bus', { cause });
    expect(error).toBeInstanceOf(SystemdError);
    expect(error).toMatchObject({ kind: 'unknown', message: 'StopUnit db.service: not sent: no bus', cause });
  });
});
