import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { Config } from '../src/config';
import { Samples } from './samples';

/** What is served. */
export interface NextWorkerOptions {
  readonly config: Config;
  /** The host's root directory as seen from here. */
  readonly root: string;
}

/** What a new worker process of a host takes to hold again what the one before it held. */
export interface NextWorker {
  /** Holds that it has read from the files of the one before. */
  readonly found: number;
  /** From its beginning, its code loaded, until it polls. By then it has read them all. */
  readonly toPollMs: number;
  /** From its beginning until the owner of each has answered its first heartbeat through it: until it holds them again. */
  readonly toHeldMs: number;
  /** From its first poll until then; 0 where that was before. */
  readonly heldMs: number;
  /** From its first poll until each lease was renewed on such an answer; 0 where that was before. */
  readonly renewedMs: number;
}

/** One that has not renewed all by then never will. */
const PATIENCE_MS = 120_000;

/** Several of them, one after the other. */
export class NextWorkers {
  readonly toPoll: Samples;
  readonly toHeld: Samples;
  readonly held: Samples;
  readonly renewed: Samples;
  /** Most of the resources that one of them did not find. */
  missing = 0;

  constructor(private readonly count: number) {
    this.toPoll = new Samples('next worker: beginning to first poll');
    this.toHeld = new Samples(`next worker: beginning to ${count} held`);
    this.held = new Samples(`next worker: first poll to ${count} held`);
    this.renewed = new Samples(`next worker: first poll to ${count} renewed`);
  }

  /** Begins one, a process of its own with nothing in memory, and kills it once it has renewed all that it found. */
  async round(options: NextWorkerOptions): Promise<void> {
    const child = fork(require.resolve('./next-worker-process'), { serialization: 'advanced' });
    const ended = once(child, 'exit');
    const told = once(child, 'message', { signal: AbortSignal.timeout(PATIENCE_MS) }) as Promise<[NextWorker]>;
    child.send(options);
    const early = ended.then(([code]) => Promise.reject(new Error(`the next worker ended with ${code}`)));
    const [{ found, toPollMs, toHeldMs, heldMs, renewedMs }] = await Promise.race([told, early]);
    child.kill('SIGKILL');
    await ended;
    this.missing = Math.max(this.missing, this.count - found);
    this.toPoll.add(toPollMs);
    this.toHeld.add(toHeldMs);
    this.held.add(heldMs);
    this.renewed.add(renewedMs);
  }
}
