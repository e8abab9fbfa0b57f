import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Worker } from '@temporalio/worker';
import { OwnershipClient } from '../../src/client';
import { openBusProxy, type BusProxy } from '../support/bus-proxy';
import { expectSuccess } from '../support/command';
import { oracleCommand, type Manner } from '../support/oracle';
import { bootPrivateHost, type PrivateHost } from '../support/private-host';
import { workflowBundle } from '../support/running-worker';
import { openOwnTemporalServer, type OwnTemporalServer } from '../support/temporal-server';
import { writeConfig } from '../support/worker-process';
import { ChaosWorker } from './worker';

/** So long a process of a campaign lives without word from its owner. */
export const LEASE_MS = 4_000;

/** So long it may take to end once it was told to. */
export const STOP_TIMEOUT_MS = 1_000;

/** Everything that a campaign breaks. */
export interface ChaosScene {
  readonly server: OwnTemporalServer;
  readonly host: PrivateHost;
  readonly bus: BusProxy;
  readonly worker: ChaosWorker;
  readonly client: OwnershipClient;
  readonly hostId: string;
  /** Folder of the traces, on the real disk. */
  readonly traces: string;
  /** Mounts the run directory, a file system that can be filled; after each boot, before the worker starts. */
  mountRunDirectory(): Promise<void>;
  end(): Promise<void>;
}

const MANNERS: readonly Manner[] = ['steady', 'stubborn', 'brief', 'family'];

/**
 * A host with a worker in it, a Temporal server, and a worker for the owners in this process. The host's worker reaches its
 * bus through a proxy that can cut and hold it.
 */
export async function openChaosScene(): Promise<ChaosScene> {
  const ends: (() => Promise<unknown>)[] = [];
  const end = async (): Promise<void> => {
    // What can't be ended must not keep the others from being ended.
    const failed: unknown[] = [];
    for (const one of ends.splice(0).reverse()) await one().catch((error: unknown) => failed.push(error));
    if (failed.length > 0) throw new AggregateError(failed, 'not everything of the campaign could be ended');
  };
  try {
    const server = await openOwnTemporalServer();
    ends.push(() => server.stop());
    const host = await bootPrivateHost();
    ends.push(() => host.end());
    const bus = await openBusProxy(() => host.busAddress, host.stateDirectory);
    ends.push(() => bus.end());
    const traces = join(host.stateDirectory, 'traces');
    await mkdir(traces);

    const owners = await Worker.create({
      connection: server.nativeConnection,
      namespace: server.namespace,
      taskQueue: server.taskQueue,
      workflowBundle: await workflowBundle(),
      stickyQueueScheduleToStartTimeout: '1 s',
    });
    const running = owners.run();
    running.catch(() => undefined); // awaited below
    ends.push(() => {
      if (owners.getState() === 'RUNNING') owners.shutdown();
      return running;
    });

    const hostId = server.taskQueue;
    const programs = Object.fromEntries(MANNERS.map((manner) => [manner, programOf(traces, manner)]));
    const config = await writeConfig({ server, testHost: host, hostId }, programs, {
      run: ['host'],
      bus: bus.busAddress,
      resync: '2s',
    });
    const worker = new ChaosWorker(host, config);
    ends.push(() => worker.stop('SIGKILL'));
    const mountRunDirectory = async (): Promise<void> => {
      const command = ['sh', '-c', 'mkdir -p "$0" && mount -t tmpfs -o size=4m,mode=0711 run "$0"', host.runDirectory];
      expectSuccess(command, await host.run(command));
    };
    await mountRunDirectory();
    worker.start();
    await worker.serving(60_000);
    const client = new OwnershipClient(server.client, { taskQueue: server.taskQueue });
    return { server, host, bus, worker, client, hostId, traces, mountRunDirectory, end };
  } catch (error) {
    await end();
    throw error;
  }
}

function programOf(traces: string, manner: Manner): unknown {
  return {
    exec: oracleCommand(traces, manner),
    hardening: 'off',
    lease: `${LEASE_MS}ms`,
    stop: { timeout: `${STOP_TIMEOUT_MS}ms` },
    // Many ends and few that give up: what has given up has no process to look at.
    restart: { policy: manner === 'steady' ? 'on-failure' : 'always', backoff: '200ms', maxBackoff: '2s', limit: 10 },
  };
}
