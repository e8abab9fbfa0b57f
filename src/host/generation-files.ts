import { mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { escapeResource, generationUnit, unescapeResource } from '../contract/names';
import type { OwnerIdentity } from '../contract/activities';
import type { ExitReport, Placement, ProgramState, Proof } from '../contract/facts';
import { entriesIfThere, isUnwritable, makeDirectory, writeFileWhole } from './files';
import { isObject, JsonRecord, RecordError } from './records';

/** What was started, written before the start and completed after it. Names of the environment, never its values. */
export interface LaunchRecord {
  readonly version: 1;
  readonly resource: string;
  readonly parameters: Readonly<Record<string, string>>;
  /** Whose it is now: adoption writes the next owner. */
  readonly owner: OwnerIdentity;
  readonly placement: Placement;
  /** Stands for the program's definition as it was then (programs.ts). */
  readonly definition?: string;
  /** Of a control server: the epoch of its adoption; its generation where nobody has adopted it. */
  readonly epoch?: number;
  /** The limit that systemd holds it to. */
  readonly memoryBytes?: number;
  /** The command as it was resolved. */
  readonly command: readonly string[];
  /** Variable name → the file, or `environment`, or `temporal-systemd`, that its value comes from. */
  readonly environment: Readonly<Record<string, string>>;
  /** The process's user, for the directory of its exit record. */
  readonly uid?: number;
}

/**
 * The lease pairs of a unit. A number is written here before it is used, or taken from the clock where that can't be done, so
 * that none is used twice.
 */
export interface LeaseRecord {
  /** The highest number that was ever used. */
  readonly n: number;
  /** The lowest number whose timer may still wait. */
  readonly oldest: number;
  /** Up to when the lease surely holds, in µs of CLOCK_MONOTONIC. */
  readonly deadline: number;
}

/** How the next worker process goes on with the hold of this one. */
export interface HoldRecord {
  /** base64 */
  readonly token: string;
  readonly owner: OwnerIdentity;
  /** As in the hold's input. */
  readonly ready: boolean;
  readonly greet: boolean;
  readonly lost?: boolean;
  readonly programState?: ProgramState;
  /** Epoch ms at which this attempt was scheduled: a newer hold replaces an older one. */
  readonly scheduledAt: number;
}

/** The owner wants this generation stopped: from here on it is watched until it is proven. */
export interface StoppingRecord {
  /** Whether the unit still lived when it was first asked to stop: then its end was asked for, and no lost lease. */
  readonly lived: boolean;
}

/** What is kept of a generation after proof, so that a question asked twice gets the same answer. */
export interface EndRecord {
  readonly proof: Proof;
  readonly exit: ExitReport;
}

/**
 * The directory of one resource below the run directory: a `floor`, and one directory per generation.
 *
 * The floor is the highest generation that may never start (again). Together with each generation's `open` file, which
 * systemd itself asserts before it executes anything, it fences every start that wakes up late (G5).
 */
export class ResourceFiles {
  /** As the host's own processes see it. */
  readonly inside: string;
  private readonly outside: string;

  /** `root` is where the host's file system is seen from here: `/`, except from outside of a host. */
  constructor(
    private readonly root: string,
    runDirectory: string,
    prefix: string,
    readonly resource: string,
  ) {
    this.inside = join(runDirectory, prefix, escapeResource(resource));
    this.outside = join(root, this.inside);
  }

  /** The resources that have a directory. */
  static async list(root: string, runDirectory: string, prefix: string): Promise<readonly string[]> {
    const entries = await namesIn(join(root, runDirectory, prefix));
    return entries.filter((name) => /^([A-Za-z0-9]|_[0-9a-f]{2})+$/.test(name)).map(unescapeResource);
  }

  /** Closes every generation of a prefix that there is: none of them starts after this has resolved. */
  static async closeAll(root: string, runDirectory: string, prefix: string): Promise<void> {
    for (const resource of await ResourceFiles.list(root, runDirectory, prefix)) {
      const files = new ResourceFiles(root, runDirectory, prefix, resource);
      const highest = (await files.generations()).at(-1);
      if (highest !== undefined) await files.close(highest);
    }
  }

  generation(generation: number): GenerationFiles {
    const name = `g${generation}`;
    return new GenerationFiles(join(this.inside, name), join(this.outside, name), this.resource, generation);
  }

  /** The generations that have a directory, lowest first. */
  async generations(): Promise<readonly number[]> {
    const entries = await namesIn(this.outside);
    return entries
      .flatMap((name) => (/^g[1-9][0-9]*$/.test(name) ? [Number(name.slice(1))] : []))
      .sort((a, b) => a - b);
  }

  /** The floor; 0 where none was raised since the boot. */
  async floor(): Promise<number> {
    return (await this.floors()).at(-1) ?? 0;
  }

  /**
   * Closes all generations up to `generation`: none of them starts after this has resolved. The floor goes up before
   * the `open` files go: a starter that creates its file in between reads the floor again after it, and gives up.
   */
  async close(generation: number): Promise<void> {
    try {
      await makeDirectory(this.floorDirectory, 0o711);
      await this.raise(generation);
      for (const g of await this.generations()) if (g <= generation) await this.generation(g).close();
    } catch (error) {
      if (!isUnwritable(error) || !(await this.isSpent(generation))) throw error;
    }
  }

  /**
   * Whether nothing up to a generation can start any more although it was not closed: all below it are closed, and its own
   * one start is over. A directory is made once, so there is no second starter; and the invocation of its unit is written
   * once that was executed. So what runs can be proven dead under a read-only run directory as well.
   */
  private async isSpent(generation: number): Promise<boolean> {
    if ((await this.floor()) < generation - 1) return false;
    const launch = await this.generation(generation)
      .launch.read()
      .catch(() => undefined);
    return launch !== undefined && launch.placement.invocation !== '';
  }

  private get floorDirectory(): string {
    return join(this.outside, 'floor');
  }

  /**
   * Makes an empty file named like the new floor, then removes the lower ones. The highest name counts, so that the floor
   * never goes down, whoever else raises it at the same time: a number in one file would be read by two workers and
   * written last by the one with the lower number.
   */
  private async raise(generation: number): Promise<void> {
    const lower = await this.floors();
    const former = lower.at(-1);
    if (generation <= (former ?? 0)) return;
    try {
      await writeFile(this.floorFile(generation), '', { mode: 0o600 });
    } catch (error) {
      if (!isUnwritable(error) || former === undefined) throw error;
      await this.raiseByName(former, generation);
    }
    for (const floor of lower) await rm(this.floorFile(floor), { force: true });
  }

  /** On a full disk, where no file can be made: a name can still be changed. */
  private async raiseByName(former: number, generation: number): Promise<void> {
    try {
      await rename(this.floorFile(former), this.floorFile(generation));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      await this.raise(generation); // somebody else has raised it meanwhile
    }
  }

  private floorFile(generation: number): string {
    return join(this.floorDirectory, String(generation));
  }

  /** Lowest first. */
  private async floors(): Promise<readonly number[]> {
    const names = await namesIn(this.floorDirectory);
    const strange = names.find((name) => !/^[1-9][0-9]*$/.test(name) || !Number.isSafeInteger(Number(name)));
    if (strange !== undefined) {
      throw new Error(`${join(this.inside, 'floor')} holds ${JSON.stringify(strange.slice(0, 40))}, not a generation`);
    }
    return names.map(Number).sort((a, b) => a - b);
  }

  /** Makes the directory of a generation above the floor; undefined when somebody else made it. */
  async make(generation: number): Promise<GenerationFiles | undefined> {
    const files = this.generation(generation);
    try {
      await mkdir(files.outside, { mode: 0o711 });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return undefined;
      throw error;
    }
    return files;
  }
}

/**
 * The files of one generation. Every file is written whole or not at all, and read only where it is what it has to be: a
 * record of another version, resource or generation is as unreadable as half of one.
 */
export class GenerationFiles {
  readonly launch: JsonRecord<LaunchRecord>;
  readonly lease: JsonRecord<LeaseRecord>;
  readonly hold: JsonRecord<HoldRecord>;
  readonly stopping: JsonRecord<StoppingRecord>;
  readonly end: JsonRecord<EndRecord>;

  constructor(
    readonly inside: string,
    readonly outside: string,
    readonly resource: string,
    readonly generation: number,
  ) {
    this.launch = new JsonRecord(join(outside, 'launch.json'), (record) => flawOfLaunch(record, resource, generation));
    this.lease = new JsonRecord(join(outside, 'lease.json'), flawOfLease);
    this.hold = new JsonRecord(join(outside, 'hold.json'), ({ token, owner }) =>
      typeof token === 'string' && isObject(owner) ? undefined : 'it has no token or no owner',
    );
    this.stopping = new JsonRecord(join(outside, 'stopping.json'));
    this.end = new JsonRecord(join(outside, 'end.json'), ({ proof, exit }) =>
      isObject(proof) && isObject(exit) ? undefined : 'it has no proof or no exit report',
    );
  }

  /** The names that are in its directory; none where there is no directory. */
  names(): Promise<readonly string[]> {
    return namesIn(this.outside);
  }

  /** Exists while systemd may execute this generation: the unit asserts it. Absence means no, so a reboot is safe. */
  get openFile(): string {
    return join(this.inside, 'open');
  }

  get environmentFile(): string {
    return join(this.inside, 'environment');
  }

  /** Of a control server: what it is started with, and what its owner rotates. */
  get credentialFile(): string {
    return join(this.inside, 'credential');
  }

  /** Of a control server: where it listens, for the next owner. */
  get controlRecord(): string {
    return join(this.outside, 'control.json');
  }

  /** Belongs to the unit's user; the one place here that the process can write to. */
  get exitDirectory(): string {
    return join(this.inside, 'exit');
  }

  get exitRecord(): string {
    return join(this.outside, 'exit', 'record');
  }

  async open(): Promise<void> {
    await writeFile(join(this.outside, 'open'), '', { flag: 'wx', mode: 0o600 });
  }

  async close(): Promise<void> {
    await rm(join(this.outside, 'open'), { force: true });
  }

  async writeEnvironment(content: string): Promise<void> {
    await writeFileWhole(join(this.outside, 'environment'), content);
  }

  /** Writes the end; also where nothing of the generation was ever made, for a host that was restarted is asked as well. */
  async recordEnd(end: EndRecord): Promise<void> {
    await makeDirectory(this.outside, 0o711);
    await this.end.write(end);
  }

  /**
   * Lets go of everything but the end record; of the launch record last. Writes the end where that was not possible before:
   * on a full disk there is room for it now.
   */
  async letGo(end?: EndRecord): Promise<void> {
    for (const name of await this.names()) {
      if (name !== 'end.json' && name !== 'launch.json')
        await rm(join(this.outside, name), { recursive: true, force: true });
    }
    if (end && !(await this.end.read().catch(() => undefined))) await this.recordEnd(end);
    await this.launch.remove();
  }

  async remove(): Promise<void> {
    await rm(this.outside, { recursive: true, force: true });
  }
}

function flawOfLaunch(
  { version, resource, owner, parameters, placement }: Partial<LaunchRecord>,
  expected: string,
  generation: number,
): string | RecordError | undefined {
  if (version !== 1) {
    return new RecordError(
      'other-version',
      `the launch record is of version ${JSON.stringify(version)?.slice(0, 40)}, and this worker knows version 1`,
    );
  }
  if (!isObject(placement) || !isObject(owner) || !isObject(parameters))
    return 'it has no owner, no parameters or no placement';
  const { unit, slice, bootId, invocation, leaseMs } = placement;
  const texts = [unit, slice, bootId, invocation, placement.instance, placement.prefix, owner.workflowId];
  if (texts.some((text) => typeof text !== 'string') || typeof leaseMs !== 'number')
    return 'its placement is not whole';
  const names = generationUnit(placement.prefix, expected, generation) === unit;
  if (resource === expected && placement.generation === generation && names) return undefined;
  return new RecordError(
    'other-subject',
    `the launch record in the directory of ${expected}, generation ${generation}, is of ${String(resource).slice(0, 200)}, ` +
      `generation ${String(placement.generation).slice(0, 40)}, unit ${unit.slice(0, 200)}`,
  );
}

function flawOfLease({ n, oldest, deadline }: Partial<LeaseRecord>): string | undefined {
  return [n, oldest, deadline].every((value) => typeof value === 'number' && Number.isFinite(value) && value > 0)
    ? undefined
    : 'it has no number or no deadline';
}

async function namesIn(path: string): Promise<readonly string[]> {
  return (await entriesIfThere(path)) ?? [];
}
