// What `npm run demo` and `npm test` need before anything of this project can be loaded: npm packages, and, as root on a
// Debian that has none, the packages that a private systemd host is made of.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const repository = fileURLToPath(new URL('..', import.meta.url));

/** A file of each Debian package; `test/support/private-host-requirements.ts` says what a host needs of them. */
const debianPackages = {
  systemd: '/lib/systemd/systemd',
  dbus: '/usr/bin/dbus-daemon',
  'dbus-user-session': '/usr/lib/systemd/user/dbus.socket',
  'util-linux': '/usr/bin/nsenter',
};

/** Installs what is missing. Returns what could not be, as a sentence, or undefined. */
export function installRequirements() {
  return npmPackages() ?? hostPackages();
}

function npmPackages() {
  if (existsSync(join(repository, 'node_modules'))) return undefined;
  return run('npm', ['ci', '--no-audit', '--no-fund']);
}

function hostPackages() {
  const missing = Object.keys(debianPackages).filter((name) => !existsSync(debianPackages[name]));
  // An ordinary user has a systemd of their own, or is told what is missing where it is used; so is root elsewhere.
  if (missing.length === 0 || process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return undefined;
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  return (
    run('apt-get', ['update', '-qq'], env) ??
    run('apt-get', ['install', '--yes', '-qq', '--no-install-recommends', ...missing], env)
  );
}

function run(command, args, env = process.env) {
  const line = [command, ...args].join(' ');
  console.log(`\n> ${line}`);
  const { status, error } = spawnSync(command, args, { cwd: repository, stdio: 'inherit', env });
  return status === 0 ? undefined : `\`${line}\` ended with ${error?.message ?? `exit code ${status}`}`;
}
