import { randomUUID } from 'node:crypto';
import { mkdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { writeFileDurably } from './files';

/**
 * Which host this really is. A host id is only a name that two machines can share by mistake; the instance is made
 * once, at random, and kept with the machine and the manager that it was made for.
 */
export interface Instance {
  readonly instance: string;
  readonly hostId: string;
  readonly machineId: string;
  /** `system`, or `user:<uid>`. */
  readonly manager: string;
  readonly namespace: string;
  readonly taskQueue: string;
  /** Boots seen by this instance, oldest first; the last one is now. A later one proves an earlier one's processes dead. */
  readonly bootIds: readonly string[];
  /** What the names of its units begin with. */
  readonly unitPrefix: string;
}

/** What is asked while an instance is opened. */
export interface InstanceChecks {
  /** Claims the host id; rejects with {@link ClaimedError} where another instance has it. */
  readonly claimId?: (instance: Instance) => Promise<void>;
  /** Units of a former prefix that are still there; nothing more of that prefix starts once it has resolved. */
  readonly unitsOf: (formerPrefix: string) => Promise<readonly string[]>;
}

/** The host can't be served as it is configured. The message says what claims it, and what to do. */
export class ClaimedError extends Error {
  override readonly name = 'ClaimedError';
}

/** So many boots are remembered; an owner older than that many boots has to be confirmed by a person. */
const MAX_BOOTS = 1000;

/**
 * Reads the instance from the state directory, or makes it, and adds the current boot to its list.
 *
 * Another machine id or another manager makes a *new* instance: a copied state directory must not answer for the
 * machine that it was copied from. Another host id, namespace or task queue is refused with {@link ClaimedError}; so is
 * another unit prefix, as long as units of the former one are there: under the new one nobody would see them, and an
 * absence that is only a look in the wrong place proves nothing (G3).
 *
 * `claimId` is asked once the instance is written, for it must not be forgotten again once others know of it; where it
 * rejects, an instance that was made just now is taken back, so that another host id can be tried.
 */
export async function openInstance(
  stateDirectory: string,
  root: string,
  identity: Pick<Instance, 'hostId' | 'manager' | 'namespace' | 'taskQueue' | 'unitPrefix'>,
  checks: InstanceChecks,
): Promise<Instance> {
  const file = join(root, stateDirectory, 'instance.json');
  const machineId = (await readFile(join(root, 'etc/machine-id'), 'utf8')).trim();
  const bootId = await readBootId(root);
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });

  let known = await readInstance(file);
  if (known && (known.machineId !== machineId || known.manager !== identity.manager)) {
    await rename(file, `${file}.of-another-host`);
    known = undefined;
  }
  for (const key of ['hostId', 'namespace', 'taskQueue'] as const) {
    if (known && known[key] !== identity[key]) {
      throw new ClaimedError(
        `state directory ${stateDirectory} belongs to ${key} "${known[key]}", not to "${identity[key]}": ` +
          `give this worker a host.stateDirectory of its own (and a unitPrefix of its own), or, ` +
          `once nothing of "${known[key]}" runs here any more, remove ${file}`,
      );
    }
  }
  const { unitPrefix } = identity;
  if (known && known.unitPrefix !== unitPrefix) {
    const left = await checks.unitsOf(known.unitPrefix);
    if (left.length > 0) {
      throw new ClaimedError(
        `systemd.unitPrefix was "${known.unitPrefix}" on this host and is "${unitPrefix}" now, while units of the former are there: ` +
          `${left.slice(0, 5).join(', ')}${left.length > 5 ? ` and ${left.length - 5} more` : ''}. ` +
          `Set it back to "${known.unitPrefix}"; it can be changed once all of them are stopped`,
      );
    }
  }
  const bootIds = known?.bootIds ?? [];
  const instance: Instance = {
    ...identity,
    machineId,
    instance: known?.instance ?? randomUUID(),
    bootIds: bootIds.at(-1) === bootId ? bootIds : [...bootIds, bootId].slice(-MAX_BOOTS),
  };
  const text = JSON.stringify(instance, null, 2);
  try {
    // In a boot that it has seen there is nothing to write: a full disk must not keep the next worker from what runs.
    if (!known || JSON.stringify(known, null, 2) !== text) await writeFileDurably(file, text, known === undefined);
  } catch (error) {
    if (known || (error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    return openInstance(stateDirectory, root, identity, checks); // another worker process made it in this very moment
  }
  try {
    await checks.claimId?.(instance);
  } catch (error) {
    if (error instanceof ClaimedError && !known) await rm(file);
    throw error;
  }
  return instance;
}

/** The kernel's boot id of the host whose root directory is `root` (random(4)). */
export async function readBootId(root: string): Promise<string> {
  return (await readFile(join(root, 'proc/sys/kernel/random/boot_id'), 'utf8')).trim();
}

async function readInstance(file: string): Promise<Instance | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  // A file that can't be understood is no reason to invent a new identity: owners may wait for the old one's answers.
  try {
    const parsed = JSON.parse(text) as Partial<Instance>;
    if (typeof parsed.instance === 'string' && Array.isArray(parsed.bootIds)) return parsed as Instance;
  } catch {
    // said below
  }
  throw new ClaimedError(
    `${file} is not an instance file: restore it from a backup, or remove it to become a new instance`,
  );
}
