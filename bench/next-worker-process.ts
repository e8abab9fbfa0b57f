import { AsyncCompletionClient } from '@temporalio/client';
import { DefaultLogger, NativeConnection, Runtime } from '@temporalio/worker';
import { resolveConnection } from '../src/config';
import type { HoldDetails } from '../src/contract/activities';
import { createHostWorker } from '../src/host-worker';
import type { NextWorker, NextWorkerOptions } from './next-worker';

/**
 * The process of {@link NextWorker}: serves the host that its parent names, tells it once how that went, and goes on until it
 * is killed.
 */
async function serve({ config, root }: NextWorkerOptions): Promise<void> {
  Runtime.install({ logger: new DefaultLogger('ERROR') });
  const begun = performance.now();
  let found = 0;
  let polls = NaN;
  /** When each was first answered, and renewed. */
  const answered = new Map<unknown, number>();
  const renewed = new Map<unknown, number>();
  const happened = (to: Map<unknown, number>, which: unknown): void => {
    if (!to.has(which)) to.set(which, performance.now());
    look();
  };
  const look = (): void => {
    if (Number.isNaN(polls) || answered.size < found || renewed.size < found) return;
    const held = Math.max(...answered.values());
    const measured: NextWorker = {
      found,
      toPollMs: polls - begun,
      toHeldMs: held - begun,
      heldMs: Math.max(0, held - polls),
      renewedMs: Math.max(0, Math.max(...renewed.values()) - polls),
    };
    if (process.connected) process.send?.(measured);
  };
  onHoldAnswered((unit) => happened(answered, unit));

  const { connectionOptions, namespace } = resolveConnection(config.connection, process.env, config.file);
  const worker = await createHostWorker({
    config,
    connection: await NativeConnection.connect(connectionOptions),
    namespace,
    root,
    log: {
      debug: (message, attributes) => {
        if (message === 'renewed') happened(renewed, attributes?.resource);
      },
      info: (message, attributes) => {
        if (message === 'going on with' && attributes?.hold === true) found++;
      },
      warn: (message, attributes) => console.error(message, attributes),
      error: (message, attributes) => console.error(message, attributes),
    },
  });
  const running = worker.run();
  polls = performance.now();
  look();
  await running;
}

/** Tells the unit of each hold whose heartbeat was answered. The product logs no such thing: it comes 33 times a second. */
function onHoldAnswered(tell: (unit: string) => void): void {
  const heartbeat = Reflect.get(AsyncCompletionClient.prototype, 'heartbeat');
  AsyncCompletionClient.prototype.heartbeat = async function (this: AsyncCompletionClient, ...args: [never, unknown]) {
    await heartbeat.apply(this, args);
    const { unit } = args[1] as Partial<HoldDetails>; // the host's own heartbeats have none
    if (unit !== undefined) tell(unit);
  };
}

process.once('disconnect', () => process.exit());
process.once('message', (options: NextWorkerOptions) => {
  serve(options).catch((error: unknown) => {
    console.error(error);
    process.exit(1);
  });
});
