import type { Hardening, HardeningValue } from './config';
import { expand } from './expand';
import { Misfit, readPath } from './scalars';

/** One property for the unit, with its D-Bus signature. */
export type HardeningSetting = readonly [name: string, signature: 'b' | 's' | 'as', value: boolean | string | string[]];

interface Property {
  readonly kind: 'flag' | 'word' | 'words' | 'paths';
  /** A flag takes true and false; of these words, the first one is the same as false, `yes` the same as true. */
  readonly words?: readonly string[];
  /**
   * Whether a user's manager can do it: `always`; only with `PrivateUsers`, in whose namespace it has the privileges
   * that it takes; or `never` (systemd.exec(5)). Without them 252 goes on silently (mount namespaces) or fails the
   * unit with 218/CAPABILITIES (`PrivateDevices`, `ProtectClock`, `ProtectKernelLogs`, `ProtectKernelModules`).
   */
  readonly user: 'always' | 'with PrivateUsers' | 'never';
  /** Gives the process more, not less: no harm where it has no effect. */
  readonly opens?: true;
}

const YES_NO = ['no', 'yes'];

/**
 * The properties that `hardening` takes: those of systemd.exec(5) on systemd 252 with a signature of `b`, `s` or `as`.
 *
 * Not here: properties that choose who runs and where (User, RootDirectory, DynamicUser), and RemoveIPC, which would
 * take objects of other units of the same user along (G11).
 */
const PROPERTIES: Readonly<Record<string, Property>> = {
  ProtectSystem: { kind: 'word', words: [...YES_NO, 'full', 'strict'], user: 'with PrivateUsers' },
  ProtectHome: { kind: 'word', words: [...YES_NO, 'read-only', 'tmpfs'], user: 'with PrivateUsers' },
  ProtectProc: { kind: 'word', words: ['default', 'noaccess', 'invisible', 'ptraceable'], user: 'never' },
  ProcSubset: { kind: 'word', words: ['all', 'pid'], user: 'never' },
  PrivateTmp: { kind: 'flag', user: 'with PrivateUsers' },
  PrivateDevices: { kind: 'flag', user: 'with PrivateUsers' },
  PrivateNetwork: { kind: 'flag', user: 'with PrivateUsers' },
  PrivateIPC: { kind: 'flag', user: 'with PrivateUsers' },
  PrivateMounts: { kind: 'flag', user: 'with PrivateUsers' },
  PrivateUsers: { kind: 'flag', user: 'always' },
  ProtectHostname: { kind: 'flag', user: 'with PrivateUsers' },
  ProtectClock: { kind: 'flag', user: 'with PrivateUsers' },
  ProtectKernelTunables: { kind: 'flag', user: 'with PrivateUsers' },
  ProtectKernelModules: { kind: 'flag', user: 'with PrivateUsers' },
  ProtectKernelLogs: { kind: 'flag', user: 'with PrivateUsers' },
  ProtectControlGroups: { kind: 'flag', user: 'never' },
  NoNewPrivileges: { kind: 'flag', user: 'always' },
  RestrictSUIDSGID: { kind: 'flag', user: 'always' },
  RestrictRealtime: { kind: 'flag', user: 'always' },
  LockPersonality: { kind: 'flag', user: 'always' },
  MemoryDenyWriteExecute: { kind: 'flag', user: 'always' },
  SystemCallArchitectures: { kind: 'words', user: 'always' },
  ReadWritePaths: { kind: 'paths', user: 'with PrivateUsers', opens: true },
  ReadOnlyPaths: { kind: 'paths', user: 'with PrivateUsers' },
  InaccessiblePaths: { kind: 'paths', user: 'with PrivateUsers' },
  ExecPaths: { kind: 'paths', user: 'with PrivateUsers', opens: true },
  NoExecPaths: { kind: 'paths', user: 'with PrivateUsers' },
};

/**
 * `strict`: what a program with ordinary needs does not miss. It has the network, its own /tmp, and writes where
 * `ReadWritePaths` says. Left out on purpose: MemoryDenyWriteExecute (ends programs that compile while they run: node,
 * java), SystemCallArchitectures (32-bit game servers), PrivateUsers (other users' files would belong to nobody),
 * ProcSubset (programs read /proc/meminfo to size themselves).
 */
const STRICT: Readonly<Record<string, HardeningValue>> = {
  // Nothing is writable but /dev, its own /tmp and ReadWritePaths; and /run, to those who may write there anyway: 252
  // leaves it out as soon as it mounts /proc and /sys anew (MountAPIVFS=), which several properties below imply.
  ProtectSystem: 'strict',
  ProtectHome: 'yes', // other people's keys and tokens lie there
  PrivateTmp: true, // names in a shared /tmp can be guessed and taken first
  PrivateDevices: true, // no disks, no memory devices; null, zero, random, tty and shm stay
  ProtectProc: 'invisible', // other users' processes and their arguments
  ProtectHostname: true, // would be renamed for all processes of the host
  ProtectClock: true, // leases run by the clock
  ProtectKernelTunables: true, // /proc/sys and /sys act on the whole host
  ProtectKernelModules: true, // code in the kernel ends every other promise
  ProtectKernelLogs: true, // the kernel's messages tell of every process
  ProtectControlGroups: true, // the cgroup tree is the evidence that a process is gone (G3)
  NoNewPrivileges: true, // no way up through set-uid programs
  RestrictSUIDSGID: true, // leaves no set-uid program behind for others
  RestrictRealtime: true, // a real-time loop keeps the host's worker and systemd from the processor
  LockPersonality: true, // odd execution domains are where kernels have bugs
};

/**
 * The properties that a hardening puts on a resource's unit. A record goes over the strict set, property by property.
 *
 * A user's manager gets only what it can do (systemd.exec(5)): all of it with `PrivateUsers: true`, else the part that
 * needs no privileges. A unit never fails for what `strict` holds and the manager can't do.
 */
export function hardeningSettings(
  hardening: Hardening,
  resource: string,
  manager: 'system' | 'user',
): HardeningSetting[] {
  if (hardening === 'off') return [];
  const own = hardening === 'strict' ? {} : hardening;
  const merged = { ...STRICT, ...own };
  // ProtectClock brings `DeviceAllow=char-rtc r` along (systemd.exec(5)): a list of devices without the ones wanted.
  if (own.PrivateDevices === false && own.ProtectClock === undefined) delete merged.ProtectClock;
  return Object.entries(merged).flatMap(([name, value]): HardeningSetting[] => {
    const property = PROPERTIES[name]!;
    if (isOff(property, value) || (manager === 'user' && !worksForUser(property, merged))) return [];
    if (typeof value === 'boolean') return [[name, 'b', value]];
    if (typeof value === 'string') return [[name, 's', value]];
    return [[name, 'as', value.map((entry) => expand(entry, { resource }))]];
  });
}

/** Names of all properties that `hardening` takes. */
export const hardeningProperties: readonly string[] = Object.keys(PROPERTIES);

/** Reads one property of `temporal.yaml`: as the bus wants it, or what is wrong with it. */
export function readHardeningProperty(name: string, input: unknown): HardeningValue | Misfit {
  if (!Object.hasOwn(PROPERTIES, name)) {
    return new Misfit('is no property that hardening takes', `use one of: ${hardeningProperties.join(', ')}`);
  }
  const { kind, words = YES_NO } = PROPERTIES[name]!;
  if (kind === 'flag' || kind === 'word') {
    const word = typeof input === 'boolean' ? (input ? 'yes' : words[0]!) : input;
    if (typeof word !== 'string' || !words.includes(word)) {
      return new Misfit(
        'is no value of this property',
        `write ${kind === 'flag' ? 'true or false' : words.join(' or ')}`,
      );
    }
    return kind === 'flag' ? word === 'yes' : word;
  }
  if (!Array.isArray(input)) return new Misfit('is not a list', 'write a list: ["…"]');
  const list: string[] = [];
  for (const entry of input as unknown[]) {
    const value = kind === 'paths' ? readPath(entry, { resource: true, prefix: '-' }) : readArchitecture(entry);
    if (value instanceof Misfit) return value;
    list.push(value);
  }
  return list;
}

/** Why a property that was asked for does nothing under a user's manager, or undefined when it does something. */
export function ineffectiveForUser(name: string, own: Readonly<Record<string, unknown>>): Misfit | undefined {
  const property = Object.hasOwn(PROPERTIES, name) ? PROPERTIES[name]! : undefined;
  if (!property || property.opens || isOff(property, own[name]) || worksForUser(property, own)) return undefined;
  return property.user === 'never'
    ? new Misfit(
        "is not available in a user's systemd (systemd.exec(5))",
        "remove it, or run under the system's manager",
      )
    : new Misfit("does nothing in a user's systemd (systemd.exec(5))", 'add "PrivateUsers: true", or remove it');
}

function worksForUser({ user }: Property, merged: Readonly<Record<string, unknown>>): boolean {
  return user === 'always' || (user === 'with PrivateUsers' && merged.PrivateUsers === true);
}

function isOff({ words }: Property, value: unknown): boolean {
  return value === false || (Array.isArray(value) ? value.length === 0 : value === words?.[0]);
}

function readArchitecture(input: unknown): string | Misfit {
  if (typeof input === 'string' && /^[a-z0-9-]{1,32}$/.test(input)) return input;
  return new Misfit('is no name of an architecture', 'write "native", or names of systemd.exec(5)');
}
