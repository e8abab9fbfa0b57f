import promises from 'node:fs/promises';
import { SystemdError, type SystemdPort } from '../../src/systemd/port';

/**
 * - `dead before` and `dead after`: the worker process dies right before or after a step; nothing that it does later
 *   happens.
 * - `fails`: the step alone fails, undone; the worker goes on.
 */
export type Manner = 'dead before' | 'dead after' | 'fails';

const fileCalls = ['mkdir', 'open', 'readFile', 'readdir', 'rename', 'rm', 'writeFile'] as const;
const systemdCalls = ['listUnits', 'unitProperties', 'startTransientUnit', 'stopInvocation', 'stopUnit'] as const;

/**
 * Cuts a worker off at the n-th step that it takes: each of its calls of systemd, and each call on files in the resource's
 * directory. Everything of this process that touches that directory is the worker's, so there can be only one at a time.
 */
export class Cut {
  steps = 0;
  private at = Infinity;
  private manner: Manner = 'fails';
  private within: string | undefined;

  constructor() {
    for (const name of fileCalls) {
      const real = promises[name] as (...args: unknown[]) => Promise<unknown>;
      jest.spyOn(promises, name as 'rm').mockImplementation(((...args: unknown[]) => {
        const ours = this.within !== undefined && String(args[0]).includes(this.within);
        return ours ? this.step(() => real.apply(promises, args)) : real.apply(promises, args);
      }) as typeof promises.rm);
    }
  }

  /** Runs something and cuts it at its n-th step, counted from 1. Settles as it does. */
  async during<T>(directory: string, at: number, manner: Manner, run: () => Promise<T>): Promise<T> {
    Object.assign(this, { steps: 0, at, manner, within: directory });
    return run();
  }

  /** Nothing is cut any more. */
  heal(): void {
    this.within = undefined;
  }

  end(): void {
    jest.restoreAllMocks();
  }

  /** The systemd of a worker that can be cut off. */
  readonly systemd = (inner: SystemdPort): Partial<SystemdPort> =>
    Object.fromEntries(
      systemdCalls.map((name) => {
        const real = inner[name].bind(inner) as (...args: unknown[]) => Promise<unknown>;
        const cutting = (...args: unknown[]): Promise<unknown> =>
          this.within === undefined ? real(...args) : this.step(() => real(...args));
        return [name, cutting];
      }),
    );

  private async step<T>(run: () => Promise<T>): Promise<T> {
    const n = ++this.steps;
    if (n < this.at || (n > this.at && this.manner === 'fails')) return run();
    if (n === this.at && this.manner === 'dead after') {
      const made: unknown = await run();
      await (made as promises.FileHandle | undefined)?.close?.(); // as the kernel would
    }
    // What a caller of systemd hears; one of a file takes any error.
    throw new SystemdError('unknown', `cut at step ${n}`);
  }
}
