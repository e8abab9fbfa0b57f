import fc from 'fast-check';
import { interfaceOf, readProperty } from '../../src/systemd/properties';
import { read, settingsOf } from '../../src/systemd/values';

describe('values from the bus', () => {
  test('64-bit integers become numbers, and "never" becomes Infinity', () => {
    expect(read.number(0n)).toBe(0);
    expect(read.number(1_560_036_402n)).toBe(1_560_036_402);
    expect(read.number(2n ** 64n - 1n)).toBe(Infinity);
    expect(read.number(7)).toBe(7);
  });

  test('an inode keeps every digit', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), (inode) => {
        expect(readProperty('ControlGroupId', inode)).toBe(inode.toString());
      }),
    );
  });

  test('an invocation is 32 hex digits, and none is the empty string', () => {
    expect(readProperty('InvocationID', Buffer.from('00ff'.repeat(8), 'hex'))).toBe('00ff'.repeat(8));
    expect(readProperty('InvocationID', Buffer.alloc(0))).toBe('');
  });

  test('journal fields are decoded as UTF-8', () => {
    expect(readProperty('LogExtraFields', [Buffer.from('OWNER=žluť')])).toEqual(['OWNER=žluť']);
  });

  test('G4: a value of another type than expected is absent, not something else', () => {
    expect(readProperty('ActiveState', 1n)).toBeUndefined();
    expect(readProperty('InvocationID', 'abc')).toBeUndefined();
    expect(readProperty('MainPID', 'abc')).toBeUndefined();
    expect(readProperty('ControlGroupId', '7')).toBeUndefined();
    expect(readProperty('StopWhenUnneeded', 0)).toBeUndefined();
    expect(readProperty('LogExtraFields', ['text'])).toBeUndefined();
  });
});

describe('where a property lives', () => {
  test('what every unit has is on the unit', () => {
    expect(interfaceOf('own.slice', 'ActiveState')).toBe('org.freedesktop.systemd1.Unit');
    expect(interfaceOf('db.service', 'InvocationID')).toBe('org.freedesktop.systemd1.Unit');
  });

  test('the rest is on the interface of its type', () => {
    expect(interfaceOf('db.service', 'ControlGroupId')).toBe('org.freedesktop.systemd1.Service');
    expect(interfaceOf('own.slice', 'ControlGroupId')).toBe('org.freedesktop.systemd1.Slice');
    expect(interfaceOf('a.b.timer', 'NextElapseUSecMonotonic')).toBe('org.freedesktop.systemd1.Timer');
  });

  test('a type without the property has none', () => {
    expect(interfaceOf('own.slice', 'MainPID')).toBeUndefined();
    expect(interfaceOf('db.service', 'NextElapseUSecMonotonic')).toBeUndefined();
    expect(interfaceOf('x.timer', 'ControlGroup')).toBeUndefined();
  });
});

test('settings go to the bus under their own signatures', () => {
  const settings = settingsOf({ name: 'x.service', properties: [['KillSignal', 'i', 15]] });
  expect(settings).toEqual([['KillSignal', expect.objectContaining({ signature: 'i', value: 15 })]]);
});
