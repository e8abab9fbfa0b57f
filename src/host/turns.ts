/** Lets one thing at a time happen per key, in the order of asking. Keys that nobody waits for take no memory. */
export class Turns {
  private readonly last = new Map<string, Promise<void>>();

  /** Runs when all that was asked for this key before has settled; settles as `run` does. */
  take<T>(key: string, run: () => Promise<T>): Promise<T> {
    const mine = (this.last.get(key) ?? Promise.resolve()).then(run);
    const after = (): void => {
      if (this.last.get(key) === settled) this.last.delete(key);
    };
    const settled: Promise<void> = mine.then(after, after);
    this.last.set(key, settled);
    return mine;
  }

  /** Resolves when everything that was asked for up to now has settled. */
  async idle(): Promise<void> {
    await Promise.all(this.last.values());
  }
}

/** Lets somebody wait for the next wake-up of a key. */
export class Wakers {
  private readonly waiting = new Map<string, Set<() => void>>();

  /** Resolves at the key's next wake-up, or after `atMostMs`. */
  next(key: string, atMostMs: number): Promise<void> {
    return new Promise((resolve) => {
      const waiting = this.waiting.get(key) ?? new Set();
      this.waiting.set(key, waiting);
      const done = (): void => {
        clearTimeout(timer);
        waiting.delete(done);
        if (waiting.size === 0 && this.waiting.get(key) === waiting) this.waiting.delete(key);
        resolve();
      };
      const timer = setTimeout(done, atMostMs);
      waiting.add(done);
    });
  }

  wake(key: string): void {
    for (const done of this.waiting.get(key) ?? []) done();
  }
}

/** Resolves when `done` does, or after `atMostMs`. */
export async function within(atMostMs: number, done: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([done, new Promise<void>((resolve) => (timer = setTimeout(resolve, atMostMs)))]);
  clearTimeout(timer);
}

/** Does it for each, at most `limit` of them at the same time; resolves when all are done. `run` must not reject. */
export async function forEachOf<T>(all: readonly T[], limit: number, run: (one: T) => Promise<void>): Promise<void> {
  const left = all.values();
  const work = async (): Promise<void> => {
    for (const one of left) await run(one);
  };
  await Promise.all(Array.from({ length: Math.min(limit, all.length) }, work));
}

/** Does all at the same time; resolves when all are done, and rejects with the first failure once none is under way. */
export async function together(all: readonly Promise<unknown>[]): Promise<void> {
  const failed = (await Promise.allSettled(all)).find((outcome) => outcome.status === 'rejected');
  if (failed) throw failed.reason;
}
