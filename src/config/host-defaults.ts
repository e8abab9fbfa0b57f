import { readFileSync } from 'node:fs';
import { join, isAbsolute } from 'node:path';
import type { HostConfig } from './config';
import { NAME } from './program-schema';
import { Misfit } from './scalars';
import { BUS_PATH } from './schema';
import type { HostSection } from './schema';

/** What the defaults depend on, apart from the environment. */
export interface Machine {
  readonly uid: number;
  /** machine-id(5) */
  readonly machineIdFile: string;
}

/** The machine that this process runs on. */
export const thisMachine: Machine = { uid: process.getuid?.() ?? -1, machineIdFile: '/etc/machine-id' };

const SYSTEM_BUS = 'unix:path=/run/dbus/system_bus_socket';

/** Whose systemd it is, as far as it can be told; works on a section that is not checked yet. */
export function managerOf(section: unknown, machine: Machine): 'system' | 'user' {
  const { bus, manager } = Object(section) as { bus?: unknown; manager?: unknown };
  for (const word of [bus, manager]) if (word === 'system' || word === 'user') return word;
  return machine.uid === 0 ? 'system' : 'user';
}

/**
 * Fills in what `temporal.yaml` leaves out of `host`. Root gets the system's bus and the folders of the system
 * (file-hierarchy(7)), everybody else the user's own bus and folders (XDG Base Directory Specification). Calls `report`
 * for a default that this machine or the environment has no answer for; the value is then empty.
 */
export function resolveHost(
  section: HostSection,
  env: NodeJS.ProcessEnv,
  machine: Machine,
  report: (path: readonly string[], misfit: Misfit) => void,
): HostConfig {
  const or = (given: string | undefined, key: string, byDefault: () => string | Misfit): string => {
    const value = given ?? byDefault();
    if (!(value instanceof Misfit)) return value;
    report(['host', ...key.split('.')], value);
    return '';
  };
  const root = machine.uid === 0;
  const manager = managerOf(section.systemd, machine);
  const { bus, cgroupRoot, unitPrefix } = section.systemd;
  const defaultBus = (): string | Misfit => (manager === 'system' ? SYSTEM_BUS : sessionBus(env));
  return {
    id: or(section.id, 'id', () => machineId(machine)),
    stateDirectory: or(section.stateDirectory, 'stateDirectory', () =>
      root ? '/var/lib/temporal-systemd' : inStateHome(env, 'temporal-systemd'),
    ),
    runDirectory: or(section.runDirectory, 'runDirectory', () =>
      root ? '/run/temporal-systemd' : inRuntimeDirectory(env, 'temporal-systemd', 'name one here'),
    ),
    systemd: {
      busAddress: or(BUS_PATH.test(bus) ? bus : undefined, 'systemd.bus', defaultBus),
      manager,
      cgroupRoot,
      unitPrefix,
    },
    resyncMs: section.resync,
    capacity: { units: section.capacity.units, memoryBytes: section.capacity.memory },
  };
}

function machineId({ machineIdFile }: Machine): string | Misfit {
  const remedy = 'name the host here';
  try {
    const id = readFileSync(machineIdFile, 'utf8').trim();
    // `uninitialized` stands there during the first boot.
    return NAME.test(id) && id !== 'uninitialized'
      ? id
      : new Misfit(`is not set, and ${machineIdFile} holds no id`, remedy);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    return new Misfit(`is not set, and ${machineIdFile} can't be read (${code})`, remedy);
  }
}

/** The first `unix:path` of the session bus's address; its other forms can't be connected to without native code. */
function sessionBus(env: NodeJS.ProcessEnv): string | Misfit {
  for (const address of (env.DBUS_SESSION_BUS_ADDRESS ?? '').split(';')) {
    const bus = address.replace(/,.*$/, '');
    if (BUS_PATH.test(bus)) return bus;
  }
  const path = inRuntimeDirectory(env, 'bus', 'name the bus here: "unix:path=…"');
  return path instanceof Misfit ? path : `unix:path=${path}`;
}

function inRuntimeDirectory(env: NodeJS.ProcessEnv, name: string, remedy: string): string | Misfit {
  const directory = env.XDG_RUNTIME_DIR;
  if (directory !== undefined && isAbsolute(directory)) return join(directory, name);
  return new Misfit('is not set, and there is no XDG_RUNTIME_DIR', `set it (log in, or /run/user/<uid>), or ${remedy}`);
}

function inStateHome({ XDG_STATE_HOME: state, HOME: home }: NodeJS.ProcessEnv, name: string): string | Misfit {
  if (state !== undefined && isAbsolute(state)) return join(state, name);
  if (home !== undefined && isAbsolute(home)) return join(home, '.local/state', name);
  return new Misfit('is not set, and there is neither XDG_STATE_HOME nor HOME', 'set HOME, or name a folder here');
}
