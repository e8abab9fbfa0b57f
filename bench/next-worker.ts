import type { NativeConnection } from '@temporalio/worker';
import type { Config } from '../src/config';
import { createHostWorker } from '../src/host-worker';

/** What a new worker process of a host takes to hold again what the one before it held. */
export interface NextWorker {
  /** From its beginning until it polls, in ms: by then it has every hold that it found. */
  readonly openMs: number;
  /** Holds that it goes on with. */
  readonly held: number;
  /** From its first poll until each of them was renewed once more, in ms. */
  readonly renewedMs: number;
}

/** Begins one more worker for a host on which so many are held, and ends it once it has renewed them all. */
export async function measureNextWorker(
  config: Config,
  connection: NativeConnection,
  namespace: string,
  root: string,
  count: number,
): Promise<NextWorker> {
  let held = 0;
  const renewed = new Set<unknown>();
  let all = (): void => undefined;
  const done = new Promise<void>((resolve) => (all = resolve));
  const from = performance.now();
  const worker = await createHostWorker({
    config,
    connection,
    namespace,
    root,
    log: {
      debug: (message, attributes) => {
        if (message === 'renewed') renewed.add(attributes?.resource);
        if (renewed.size >= count) all();
      },
      info: (message, attributes) => {
        if (message === 'going on with' && attributes?.hold === true) held++;
      },
      warn: (message, attributes) => console.error(message, attributes),
      error: (message, attributes) => console.error(message, attributes),
    },
  });
  const openMs = performance.now() - from;
  const running = worker.run();
  const polled = performance.now();
  await Promise.race([done, running]);
  const renewedMs = performance.now() - polled;
  worker.shutdown();
  await running;
  return { openMs, held, renewedMs };
}
