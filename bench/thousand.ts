import { readFile } from 'node:fs/promises';
import type { OwnerHandle, OwnershipClient } from '../src/client';
import { unitPattern } from '../src/contract/names';
import { connectSystemd } from '../src/systemd/dbus-systemd';
import type { SystemdPort } from '../src/systemd/port';
import type { TestHost } from '../test/support/test-host';
import type { NextWorkers } from './next-worker';
import { Samples } from './samples';

/** What a thousand resources on one host cost. */
export interface Thousand {
  readonly startAllMs: number;
  readonly stopAllMs: number;
  /** A single stop, while all others start and while all others stop. */
  readonly stopAmidStarts: Samples;
  readonly stopAmidStops: Samples;
  /** Share of one core while all are held. */
  readonly heldCpu: number;
  /** Renewed leases a second, while all are held. */
  readonly renewals: number;
  /** CPU that renewing each of them once takes, in s: of the worker, and of the host's PID 1 where it is one of ours. */
  readonly roundCpu: { readonly worker: number; readonly manager?: number };
  /** Calls on the manager's bus that renewing each of them once takes. */
  readonly roundCalls: number;
  readonly nextWorkers: NextWorkers;
  /** How often systemd was gone from its bus, or came back to it. */
  readonly managerChanges: number;
  readonly rssMb: number;
  /** Length of one owner's history after one renewal, and after ten. */
  readonly historyAfter: readonly [one: number, ten: number];
  readonly lost: readonly string[];
}

export interface ThousandOptions {
  readonly client: OwnershipClient;
  readonly host: string;
  readonly count: number;
  /** How long they are held while CPU is measured. */
  readonly holdMs: number;
  /** `own` calls in flight. */
  readonly concurrency: number;
  readonly historyLength: (resource: string) => Promise<number>;
  readonly renewals: () => number;
  readonly busCalls: () => number;
  /** Lets other workers hold them for a while. */
  readonly nextWorkers: () => Promise<NextWorkers>;
  readonly testHost: TestHost;
}

/** Owns `count` resources at once, holds them for a while, and stops them all. */
export async function measureThousand(options: ThousandOptions): Promise<Thousand> {
  const systemd = await connectSystemd({ busAddress: options.testHost.busAddress });
  let managerChanges = 0;
  systemd.onResync(() => managerChanges++);
  try {
    return { ...(await ownHoldStop(options, systemd)), managerChanges };
  } finally {
    await systemd.close();
  }
}

async function ownHoldStop(options: ThousandOptions, systemd: SystemdPort): Promise<Omit<Thousand, 'managerChanges'>> {
  const { client, host, count, concurrency } = options;
  const stopAmidStarts = new Samples(`a single stop while ${count} start`);
  const stopAmidStops = new Samples(`a single stop while ${count} stop`);
  const names = Array.from({ length: count }, (_, i) => `thousand/${i}`);
  const lost: string[] = [];

  const singles = await all(
    range(10).map((i) => `single/${i}`),
    10,
    (resource) => ownReady(client, host, resource),
  );
  const handles = new Map<string, OwnerHandle>();
  const startFrom = performance.now();
  const starting = all(names, concurrency, async (resource) => {
    const handle = await ownReady(client, host, resource).catch(
      (error: unknown) => void lost.push(`${resource}: ${String(error)}`),
    );
    if (handle) handles.set(resource, handle);
  });
  for (const handle of singles.slice(0, 5)) await stopAmidStarts.time(() => handle.stop({ timeout: '2 min' }));
  await starting;
  const startAllMs = performance.now() - startFrom;

  const historyOne = await options.historyLength(names[0]!);
  const renewalsBefore = options.renewals();
  const callsBefore = options.busCalls();
  const cpuBefore = process.cpuUsage();
  const managerBefore = await managerCpu(options.testHost);
  const heldFrom = performance.now();
  await new Promise((resolve) => setTimeout(resolve, options.holdMs));
  const cpu = process.cpuUsage(cpuBefore);
  const heldCpu = (cpu.user + cpu.system) / 1000 / (performance.now() - heldFrom);
  const renewals = (options.renewals() - renewalsBefore) / ((performance.now() - heldFrom) / 1000);
  const managerAfter = await managerCpu(options.testHost);
  const rounds = (options.renewals() - renewalsBefore) / count;
  const roundCpu = {
    worker: (cpu.user + cpu.system) / 1e6 / rounds,
    ...(managerBefore !== undefined &&
      managerAfter !== undefined && { manager: (managerAfter - managerBefore) / rounds }),
  };
  const roundCalls = (options.busCalls() - callsBefore) / rounds;
  const rssMb = process.memoryUsage.rss() / 1e6;
  const historyTen = await options.historyLength(names[0]!);

  const nextWorkers = await options.nextWorkers();
  const stopFrom = performance.now();
  const stopping = all([...handles], concurrency, async ([resource, handle]) => {
    const result = await handle
      .stop({ timeout: '5 min' })
      .catch((error: unknown) => void lost.push(`${resource}: ${String(error)}`));
    if (result && !result.proof) lost.push(`${resource}: ended without proof`);
  });
  for (const handle of singles.slice(5)) await stopAmidStops.time(() => handle.stop({ timeout: '2 min' }));
  await stopping;
  const stopAllMs = performance.now() - stopFrom;
  lost.push(...(await livingUnits(systemd, options.testHost.unitPrefix)));
  return {
    startAllMs,
    stopAllMs,
    stopAmidStarts,
    stopAmidStops,
    heldCpu,
    renewals,
    roundCpu,
    roundCalls,
    nextWorkers,
    rssMb,
    historyAfter: [historyOne, historyTen],
    lost,
  };
}

/** CPU that a private host's PID 1 has used, in s (proc(5), in ticks of 1/100 s); undefined for a manager that is not ours. */
async function managerCpu(testHost: TestHost & { readonly pid?: number }): Promise<number | undefined> {
  if (testHost.pid === undefined) return undefined;
  // The command's name, in parentheses, may hold anything; user and system time are fields 14 and 15 of the line.
  const fields = (await readFile(`/proc/${testHost.pid}/stat`, 'utf8')).split(') ').at(-1)!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

async function ownReady(client: OwnershipClient, host: string, resource: string): Promise<OwnerHandle> {
  const { handle } = await client.own({ resource, program: 'sleeper', host });
  await handle.ready({ timeout: '5 min' });
  return handle;
}

/** Processes of ours that are left after everything was stopped. */
async function livingUnits(systemd: SystemdPort, prefix: string): Promise<readonly string[]> {
  const units = await systemd.listUnits(unitPattern(prefix));
  return units
    .filter(({ name, activeState }) => name.endsWith('.service') && activeState === 'active')
    .map(({ name, subState }) => `${name}: ${subState}`);
}

function range(count: number): readonly number[] {
  return Array.from({ length: count }, (_, i) => i);
}

/** Runs `work` for every item, so many at a time. */
async function all<T, R>(items: readonly T[], atATime: number, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  const rest = [...items.entries()];
  await Promise.all(
    range(atATime).map(async () => {
      for (let next = rest.shift(); next; next = rest.shift()) results[next[0]] = await work(next[1]);
    }),
  );
  return results;
}
