import { hardeningSettings } from '../../src/config';
import { hardeningProperties } from '../../src/config/hardening';

const names = (settings: readonly (readonly [string, ...unknown[]])[]): string[] => settings.map(([name]) => name);

describe('hardening', () => {
  it('is nothing when it is off', () => {
    expect(hardeningSettings('off', 'db/x', 'system')).toEqual([]);
  });

  it('takes record entries over the strict set, property by property', () => {
    const settings = hardeningSettings(
      { PrivateTmp: false, ProtectHome: 'read-only', PrivateNetwork: true },
      'db/x',
      'system',
    );
    expect(names(settings)).not.toContain('PrivateTmp');
    expect(settings).toContainEqual(['ProtectHome', 's', 'read-only']);
    expect(settings).toContainEqual(['PrivateNetwork', 'b', true]);
    expect(settings).toContainEqual(['ProtectSystem', 's', 'strict']);
  });

  it('fills the resource into paths', () => {
    const settings = hardeningSettings({ ReadWritePaths: ['/srv/${resource}', '-/x'] }, 'db/tenant-42', 'system');
    expect(settings).toContainEqual(['ReadWritePaths', 'as', ['/srv/db/tenant-42', '-/x']]);
  });

  it('keeps programs alive that compile while they run', () => {
    expect(names(hardeningSettings('strict', 'db/x', 'system'))).not.toContain('MemoryDenyWriteExecute');
    expect(hardeningSettings({ MemoryDenyWriteExecute: true }, 'db/x', 'system')).toContainEqual([
      'MemoryDenyWriteExecute',
      'b',
      true,
    ]);
  });

  it("gives devices back with PrivateDevices: false, which ProtectClock's own list would take away again", () => {
    expect(names(hardeningSettings('strict', 'db/x', 'system'))).toContain('ProtectClock');
    expect(names(hardeningSettings({ PrivateDevices: false }, 'db/x', 'system'))).not.toContain('ProtectClock');
    expect(names(hardeningSettings({ PrivateDevices: false, ProtectClock: true }, 'db/x', 'system'))).toContain(
      'ProtectClock',
    );
  });

  it("asks a user's manager for what needs no privileges, and for the rest only within PrivateUsers", () => {
    expect(names(hardeningSettings('strict', 'db/x', 'user')).sort()).toEqual([
      'LockPersonality',
      'NoNewPrivileges',
      'RestrictRealtime',
      'RestrictSUIDSGID',
    ]);
    const inNamespace = names(hardeningSettings({ PrivateUsers: true }, 'db/x', 'user'));
    expect(inNamespace).toEqual(expect.arrayContaining(['PrivateUsers', 'ProtectSystem', 'PrivateDevices']));
    expect(inNamespace).not.toContain('ProtectProc');
  });

  it('holds only properties that it takes', () => {
    expect(hardeningProperties).toEqual(expect.arrayContaining(names(hardeningSettings('strict', 'db/x', 'system'))));
  });
});
