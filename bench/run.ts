import { writeFileSync } from 'node:fs';
import { Worker } from '@temporalio/worker';
import { ownerWorkflowId } from '../src/contract/names';
import { openTemporalServer, type TemporalServer } from '../test/support/temporal-server';
import { openTestHost, type TestHost } from '../test/support/test-host';
import { program } from '../test/support/owned-host';
import { configOf, hostIdOf } from '../test/support/running-worker';
import { OwnershipClient } from '../src/client';
import { until } from '../test/support/until';
import { countBusCalls } from './bus-calls';
import { benchServer, ControlServers } from './control-servers';
import { BenchHost } from './host';
import { measureLimits, type Limits } from './limits';
import { NextWorkers } from './next-worker';
import { Owned } from './owned';
import { figureOf, holds, Samples, tableOf, type Figure } from './samples';
import { measureThousand, type Thousand } from './thousand';

/** So many rounds have a control server as well: each starts a Node process. */
const SERVER_ROUNDS = 10;

/** So many worker processes of the host, one after the other, go on with what the one before held. */
const NEXT_WORKERS = 3;

/** `npm run bench [-- --json FILE] [--rounds N] [--count N] [--hold SECONDS]`. Exits 1 when a figure misses its bound. */
async function main(): Promise<void> {
  const option = (name: string, fallback: number): number => {
    const at = process.argv.indexOf(`--${name}`);
    return at < 0 ? fallback : Number(process.argv[at + 1]);
  };
  const rounds = option('rounds', 50);
  const count = option('count', 1000);
  const holdMs = option('hold', 330) * 1000;

  const server = await openTemporalServer();
  const testHost = await openTestHost();
  try {
    const figures = await measure(server, testHost, { rounds, count, holdMs });
    console.log(tableOf(figures));
    const json = process.argv.indexOf('--json');
    if (json >= 0) writeFileSync(process.argv[json + 1]!, JSON.stringify(figures, null, 2));
    if (!figures.every(holds)) process.exitCode = 1;
  } finally {
    await testHost.end();
    await server.stop();
  }
}

interface Size {
  readonly rounds: number;
  readonly count: number;
  readonly holdMs: number;
}

async function measure(
  server: TemporalServer,
  testHost: TestHost,
  { rounds, count, holdMs }: Size,
): Promise<readonly Figure[]> {
  const sleeper = program('sleeper', ['/bin/sleep', '100000'], { leaseMs: 90_000 });
  const config = configOf({ server, testHost, programs: [sleeper, await benchServer(testHost)] });
  const host = hostIdOf({ server });
  let renewals = 0;
  const resyncs = new Samples(`observer: resync of ${count}`);
  const busCalls = countBusCalls();
  const benchHost = new BenchHost({
    config,
    connection: server.nativeConnection,
    namespace: server.namespace,
    root: testHost.root,
    log: {
      debug: (message, attributes) => {
        if (message === 'renewed') renewals++;
        if (message === 'resync' && Number(attributes?.tracked) >= count) resyncs.add(Number(attributes?.ms));
      },
      info: () => undefined,
      warn: (message, attributes) => console.error(message, attributes),
      error: (message, attributes) => console.error(message, attributes),
    },
  });
  const worker = await Worker.create({
    connection: server.nativeConnection,
    namespace: server.namespace,
    taskQueue: server.taskQueue,
    workflowsPath: require.resolve('./workflows'),
    activities: { noop: async () => undefined },
    stickyQueueScheduleToStartTimeout: '1 s',
    maxCachedWorkflows: 100,
  });
  const measured = worker.runUntil(async () => {
    await benchHost.begin();
    const client = new OwnershipClient(server.client, { taskQueue: server.taskQueue, timeout: '2 min' });
    const warmUp = new Owned(client, host);
    for (let round = 0; round < 5; round++) await warmUp.round(`warm-up/${round}`);
    const terminate = (resource: string): Promise<unknown> =>
      server.client.workflow.getHandle(ownerWorkflowId(resource)).terminate('bench');
    await new ControlServers(client, host, testHost, terminate).round('warm-up/server');
    const owned = new Owned(client, host);
    const servers = new ControlServers(client, host, testHost, terminate);
    const limits = await measureLimits(testHost, server.client, server.taskQueue, rounds, async (round) => {
      await owned.round(`bench/${round}`);
      if (round < SERVER_ROUNDS) await servers.round(`bench-server/${round}`);
    });
    const historyLength = async (resource: string): Promise<number> =>
      (await server.client.workflow.getHandle(ownerWorkflowId(resource)).describe()).historyLength;
    const thousand =
      count > 0
        ? await measureThousand({
            client,
            host,
            count,
            holdMs,
            concurrency: 4, // on two cores: more at a time make nothing faster, and everybody waits longer
            historyLength,
            testHost,
            renewals: () => renewals,
            busCalls,
            nextWorkers: async () => {
              await benchHost.end();
              const nextWorkers = new NextWorkers(count);
              for (let i = 0; i < NEXT_WORKERS; i++) await nextWorkers.round({ config, root: testHost.root });
              const before = renewals;
              await benchHost.begin();
              await until('the host is at rest again', () => renewals - before >= count, 120_000);
              return nextWorkers;
            },
          })
        : undefined;
    return [
      ...singleFigures(limits, owned),
      ...serverFigures(servers),
      ...(thousand ? thousandFigures(thousand, owned, resyncs, count) : []),
    ];
  });
  return measured.finally(() => benchHost.end());
}

function singleFigures(limits: Limits, { start, stop }: Owned): readonly Figure[] {
  const { systemdStart, systemdStop, oneActivity, updateWithActivity, pollingStop } = limits;
  return [
    ...Object.values(limits).map((samples: Samples) => figureOf(samples)),
    figureOf(start, {
      limit: 1.5 * (systemdStart.p50 + oneActivity.p50),
      because: '1.5 × (systemd start + one activity)',
    }),
    figureOf(stop, {
      limit: 1.5 * (systemdStop.p50 + updateWithActivity.p50),
      because: '1.5 × (systemd stop + update with one activity)',
    }),
    {
      name: 'polling / owned: stop seen',
      value: pollingStop.p50 / stop.p50,
      unit: '×',
      bound: { limit: 10, atLeast: true, because: 'ahead of polling once a second' },
    },
  ];
}

function serverFigures({ fresh, adopted, unavailable }: ControlServers): readonly Figure[] {
  return [
    figureOf(fresh),
    figureOf(adopted, { limit: 2_000, because: 'within 2 s of its start' }),
    figureOf(unavailable, { limit: 1_000, because: 'within a second' }),
    { name: 'fresh / adopted: own() to ready', value: fresh.p50 / adopted.p50, unit: '×' },
  ];
}

function thousandFigures(thousand: Thousand, { stop }: Owned, resyncs: Samples, count: number): readonly Figure[] {
  const amid = { limit: 5 * stop.p50, because: '5 × its idle time' };
  const [one, ten] = thousand.historyAfter;
  return [
    { name: `${count} start`, value: thousand.startAllMs / 1000, unit: 's' },
    { name: `${count} stop`, value: thousand.stopAllMs / 1000, unit: 's' },
    { name: 'lost', value: thousand.lost.length, unit: '', bound: { limit: 0, because: 'none' } },
    figureOf(thousand.stopAmidStarts, amid),
    figureOf(thousand.stopAmidStops, amid),
    {
      name: `${count} held, 90 s lease: one core`,
      value: thousand.heldCpu * 100,
      unit: '%',
      bound: { limit: 8, because: 'of a core' },
    },
    { name: 'renewed leases', value: thousand.renewals, unit: '/s' },
    { name: `one round of ${count} renewals: CPU of the worker`, value: thousand.roundCpu.worker, unit: 's' },
    ...(thousand.roundCpu.manager === undefined
      ? []
      : [{ name: `one round of ${count} renewals: CPU of PID 1`, value: thousand.roundCpu.manager, unit: 's' }]),
    { name: `one round of ${count} renewals: D-Bus calls`, value: thousand.roundCalls, unit: '' },
    {
      name: 'next worker: not found in the files',
      value: thousand.nextWorkers.missing,
      unit: '',
      bound: { limit: 0, because: 'none' },
    },
    figureOf(thousand.nextWorkers.toPoll),
    figureOf(thousand.nextWorkers.toHeld),
    figureOf(thousand.nextWorkers.held, { limit: 1_000, because: 'within a second of its first poll' }),
    figureOf(thousand.nextWorkers.renewed),
    figureOf(resyncs, { limit: 60, because: 'one list of all units' }),
    {
      name: 'PID 1 left its bus, or came back to it',
      value: thousand.managerChanges,
      unit: '×',
      bound: { limit: 0, because: 'never' },
    },
    {
      name: 'memory, owners’ worker included',
      value: thousand.rssMb,
      unit: 'MB',
      bound: { limit: 600, because: 'RSS' },
    },
    { name: 'history: events added by holding', value: ten - one, unit: '', bound: { limit: 0, because: 'none' } },
  ];
}

main().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
