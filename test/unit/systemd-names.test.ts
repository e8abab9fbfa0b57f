import fc from 'fast-check';
import { socketPath } from '../../src/systemd/address';
import { checkInvocation, checkUnitName } from '../../src/systemd/names';
import { escapeLabel, invocationPath, unescapeLabel, unitOfPath } from '../../src/systemd/unit-path';

function thrownBy(call: () => unknown): unknown {
  try {
    call();
  } catch (error) {
    return error;
  }
  return undefined;
}

describe('object paths', () => {
  // As `busctl tree org.freedesktop.systemd1` shows them.
  test.each([
    ['dbus.service', 'dbus_2eservice'],
    ['own-db_2fx-g1.service', 'own_2ddb_5f2fx_2dg1_2eservice'],
    ['9.service', '_39_2eservice'],
    ['dev-disk-by\\x2did.device', 'dev_2ddisk_2dby_5cx2did_2edevice'],
    ['', '_'],
  ])('%s is escaped as systemd does it', (name, escaped) => {
    expect(escapeLabel(name)).toBe(escaped);
    expect(unescapeLabel(escaped)).toBe(name);
  });

  test('an invocation that begins with a digit has that digit escaped, and only that', () => {
    expect(invocationPath('0123456789abcdef0123456789abcdef')).toBe(
      '/org/freedesktop/systemd1/unit/_30123456789abcdef0123456789abcdef',
    );
    expect(invocationPath('a123456789abcdef0123456789abcdef')).toBe(
      '/org/freedesktop/systemd1/unit/a123456789abcdef0123456789abcdef',
    );
  });

  test('escaping can be undone, so no two names share a path', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (name) => {
        const escaped = escapeLabel(name);
        expect(escaped).toMatch(/^[A-Za-z0-9_]+$/);
        expect(unescapeLabel(escaped)).toBe(name);
      }),
    );
  });

  test('a path names a unit only below the folder of units', () => {
    expect(unitOfPath('/org/freedesktop/systemd1/unit/dbus_2eservice')).toBe('dbus.service');
    expect(unitOfPath('/org/freedesktop/systemd1/job/7')).toBeUndefined();
    expect(unitOfPath('/org/freedesktop/systemd1')).toBeUndefined();
  });
});

describe('names are checked before anything is sent', () => {
  test.each(['own-db-g1.service', 'own.slice', 'a@b.service', 'dev-x\\x2dy.device', '-.slice', 'x.y.timer'])(
    '%s can be a unit',
    (name) => expect(() => checkUnitName('StopUnit', name)).not.toThrow(),
  );

  test.each([
    '',
    'db',
    '.service',
    'db.conf',
    'a b.service',
    'db/x.service',
    '@x.service',
    'template@.service',
    'db.service\n',
    `${'x'.repeat(250)}.service`,
    undefined,
  ])('G11: %j can not', (name) => {
    expect(thrownBy(() => checkUnitName('KillUnit', name))).toMatchObject({
      kind: 'bad-unit',
      message: expect.stringContaining('KillUnit: not sent'),
    });
  });

  test.each(['', '0'.repeat(32), 'A'.repeat(32), 'a'.repeat(31), 'a'.repeat(33), undefined])(
    'G11: %j is no invocation, for systemd would take some of these for the caller itself',
    (invocation) => {
      expect(thrownBy(() => checkInvocation('Stop', invocation))).toMatchObject({ kind: 'bad-unit' });
    },
  );
});

describe('bus addresses', () => {
  test.each([
    ['unix:path=/run/dbus/system_bus_socket', '/run/dbus/system_bus_socket'],
    ['unix:path=/run/user/1000/bus,guid=0123', '/run/user/1000/bus'],
    ['unix:path=/tmp/with%20space', '/tmp/with space'],
    ['unix:abstract=/tmp/dbus;unix:path=/run/bus', '/run/bus'],
  ])('%s is the socket %s', (address, path) => expect(socketPath(address)).toBe(path));

  test.each([
    'unix:abstract=/tmp/dbus-x',
    'tcp:host=localhost,port=1',
    'unix:path=',
    'unix:path=relative',
    'unix:path=/tmp/a%3ab',
    'unix:path=/tmp/%zz',
    `unix:path=/tmp/${'x'.repeat(103)}`,
    '',
  ])('%s can not be used, and the error says what can', (address) => {
    expect(thrownBy(() => socketPath(address))).toMatchObject({
      kind: 'refused',
      message: expect.stringContaining("can't be used"),
    });
  });
});
