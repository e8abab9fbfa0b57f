import { mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { escapeResource, unescapeResource } from '../contract/names';
import type { OwnerIdentity } from '../contract/activities';
import type { ExitReport, Placement, ProgramState, Proof } from '../contract/facts';
import { readIfThere, writeFileWhole } from './files';

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

/** The lease pairs of a unit. A number is written here before it is used, so that none is used twice. */
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
    const entries = await readdirIfThere(join(root, runDirectory, prefix));
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
    return new GenerationFiles(join(this.inside, `g${generation}`), join(this.outside, `g${generation}`), generation);
  }

  /** The generations that have a directory, lowest first. */
  async generations(): Promise<readonly number[]> {
    const entries = await readdirIfThere(this.outside);
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
    await mkdir(this.floorDirectory, { recursive: true, mode: 0o711 });
    await this.raise(generation);
    for (const g of await this.generations()) if (g <= generation) await this.generation(g).close();
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
    if (generation <= (lower.at(-1) ?? 0)) return;
    await writeFile(join(this.floorDirectory, String(generation)), '', { mode: 0o600 });
    for (const former of lower) await rm(join(this.floorDirectory, String(former)), { force: true });
  }

  /** Lowest first. */
  private async floors(): Promise<readonly number[]> {
    const names = await readdirIfThere(this.floorDirectory);
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

/** The files of one generation. Every file is written whole or not at all. */
export class GenerationFiles {
  readonly launch: JsonRecord<LaunchRecord>;
  readonly lease: JsonRecord<LeaseRecord>;
  readonly hold: JsonRecord<HoldRecord>;
  readonly stopping: JsonRecord<StoppingRecord>;
  readonly end: JsonRecord<EndRecord>;

  constructor(
    readonly inside: string,
    readonly outside: string,
    readonly generation: number,
  ) {
    this.launch = new JsonRecord(join(outside, 'launch.json'));
    this.lease = new JsonRecord(join(outside, 'lease.json'));
    this.hold = new JsonRecord(join(outside, 'hold.json'));
    this.stopping = new JsonRecord(join(outside, 'stopping.json'));
    this.end = new JsonRecord(join(outside, 'end.json'));
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
    await mkdir(this.outside, { recursive: true, mode: 0o711 });
    await this.end.write(end);
  }

  /** Lets go of everything but the end record; of the launch record last. */
  async letGo(): Promise<void> {
    for (const name of await readdirIfThere(this.outside)) {
      if (name !== 'end.json' && name !== 'launch.json')
        await rm(join(this.outside, name), { recursive: true, force: true });
    }
    await this.launch.remove();
  }

  async remove(): Promise<void> {
    await rm(this.outside, { recursive: true, force: true });
  }
}

/** One JSON file. */
export class JsonRecord<T> {
  constructor(private readonly path: string) {}

  async write(value: T): Promise<void> {
    await writeFileWhole(this.path, JSON.stringify(value));
  }

  /** Undefined where there is no file; rejects when it can't be read or understood. */
  async read(): Promise<T | undefined> {
    const text = await readIfThere(this.path);
    if (text === undefined) return undefined;
    try {
      return JSON.parse(text) as T;
    } catch (cause) {
      throw new Error(`${this.path} is not JSON`, { cause });
    }
  }

  async remove(): Promise<void> {
    await rm(this.path, { force: true });
  }
}

async function readdirIfThere(path: string): Promise<readonly string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
