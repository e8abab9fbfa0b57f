import { Client, WorkflowExecutionAlreadyStartedError } from '@temporalio/client';
import {
  Worker,
  type ActivityInterceptorsFactory,
  type NativeConnection,
  type WorkerOptions,
} from '@temporalio/worker';
import { createHostActivities } from './activities/host-activities';
import { TemporalLink } from './activities/temporal-link';
import type { Config } from './config';
import { PROTOCOL, type HoldInput, type StartInput } from './contract/activities';
import { hereSignal, HOST_WORKFLOW, type Drain, type HostClaim, type HostReport } from './contract/host';
import { hostTaskQueue, hostWorkflowId } from './contract/names';
import { Host } from './host/host';
import { ClaimedError, type Instance } from './host/instance';
import { messageOf, type HostLog } from './host/log';
import { VERSION } from './version';
import { connectSystemd } from './systemd/dbus-systemd';

/** What a host's worker takes from whoever runs it. */
export interface HostWorkerOptions {
  readonly config: Pick<Config, 'taskQueue' | 'host' | 'programs'>;
  readonly connection: NativeConnection;
  readonly namespace: string;
  readonly log: HostLog;
  /** The host's root directory as seen from here. Default `/`. */
  readonly root?: string;
  /** Passed on to the activity worker, e.g. `dataConverter`, `interceptors`, `maxConcurrentActivityTaskExecutions`. */
  readonly worker?: Partial<WorkerOptions>;
}

/** A running host: its activity worker and everything it watches. */
export interface HostWorker {
  readonly host: Host;
  readonly taskQueue: string;
  /** Serves the host until `shutdown` was called; rejects when the worker fails. All units go on. */
  run(): Promise<void>;
  /** Takes over the programs of a configuration that was read again; see `Host.reload`. */
  reload(config: Pick<Config, 'programs'>): void;
  shutdown(): void;
}

/** How long activities may take to end after a shutdown. They are short; a start that is cut off is looked up. */
const SHUTDOWN_GRACE = '1 s';

/**
 * Opens a host and makes the worker that serves it: activities only, on `<taskQueue>.<host id>`. Rejects with
 * {@link ClaimedError} where the prefix, the state directory or the host id belongs to somebody else.
 */
export async function createHostWorker(options: HostWorkerOptions): Promise<HostWorker> {
  const { config, connection, namespace, root = '/' } = options;
  const { host: hostConfig, programs, taskQueue: ownersQueue } = config;
  const log = ofHost(options.log, hostConfig.id);
  const client = new Client({ connection, namespace, dataConverter: options.worker?.dataConverter });
  const systemd = await connectSystemd({ busAddress: hostConfig.systemd.busAddress, log });
  let host: Host | undefined;
  let claimed: ClaimedId = {};
  try {
    host = await Host.open({
      id: hostConfig.id,
      namespace,
      taskQueue: ownersQueue,
      programs,
      systemd,
      manager: hostConfig.systemd.manager,
      unitPrefix: hostConfig.systemd.unitPrefix,
      runDirectory: hostConfig.runDirectory,
      stateDirectory: hostConfig.stateDirectory,
      cgroupRoot: hostConfig.systemd.cgroupRoot,
      root,
      resyncMs: hostConfig.resyncMs,
      capacity: hostConfig.capacity,
      claimId: async (instance) => void (claimed = await claimHostId(client, instance)),
      link: new TemporalLink(client, log),
      log,
    });
    host.drain(claimed.draining); // until its workflow says so itself
    await report(client, host, config, log);
    const taskQueue = hostTaskQueue(ownersQueue, hostConfig.id);
    const worker = await Worker.create({
      shutdownGraceTime: SHUTDOWN_GRACE,
      maxConcurrentActivityTaskExecutions: 200,
      ...options.worker,
      interceptors: {
        ...options.worker?.interceptors,
        activity: [nameSubject(hostConfig.id), ...(options.worker?.interceptors?.activity ?? [])],
      },
      connection,
      namespace,
      taskQueue,
      activities: createHostActivities(host),
    });
    log.info('serving the host', { taskQueue, instance: host.instance, programs: Object.keys(programs) });
    const opened = host;
    const reload = (changed: Pick<Config, 'programs'>): void => {
      if (opened.reload(changed.programs)) void report(client, opened, { ...config, ...changed }, log);
    };
    return running(host, worker, taskQueue, reload);
  } catch (error) {
    await (host ? host.close() : systemd.close());
    throw error;
  }
}

/** Every line says which host it is about: one log store has the lines of many. */
function ofHost(log: HostLog, host: string): HostLog {
  const at =
    (level: keyof HostLog) =>
    (message: string, attributes: Record<string, unknown> = {}): void =>
      log[level](message, { host, ...attributes });
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

/** The SDK's own lines about an activity name its host, its resource and its generation as well. */
function nameSubject(host: string): ActivityInterceptorsFactory {
  return () => {
    let subject: { readonly resource?: unknown; readonly generation?: unknown } = {};
    return {
      inbound: {
        execute(input, next) {
          const { resource, generation, placement } = Object(input.args[0]) as Partial<StartInput & HoldInput>;
          subject = { resource, generation: placement?.generation ?? generation };
          return next(input);
        },
      },
      outbound: {
        getLogAttributes: (attributes, next) => next({ ...attributes, host, ...subject }),
        getMetricTags: (tags, next) => next({ ...tags, host }), // not the resource: metrics must not grow with their number
      },
    };
  };
}

function running(host: Host, worker: Worker, taskQueue: string, reload: HostWorker['reload']): HostWorker {
  let wanted = true;
  const shutdown = (): void => {
    wanted = false;
    if (worker.getState() === 'RUNNING') worker.shutdown();
  };
  const run = async (): Promise<void> => {
    try {
      if (wanted) await worker.run();
    } finally {
      await host.close();
    }
  };
  return { host, taskQueue, run, reload, shutdown };
}

/** How the claim on a host id was found. */
interface ClaimedId {
  /** Why the host takes on no new resources, as its workflow knows it. */
  readonly draining?: string;
}

/**
 * Claims the host id in Temporal: the open workflow `host:<id>` is the claim, its memo says which instance has it. No
 * worker for workflows is needed for that. Rejects with {@link ClaimedError} when another instance has it.
 */
async function claimHostId(client: Client, identity: Instance): Promise<ClaimedId> {
  const { hostId, machineId, instance, taskQueue } = identity;
  const claim: HostClaim = { host: hostId, instance, machineId, taskQueue };
  const workflowId = hostWorkflowId(hostId);
  try {
    await client.workflow.start(HOST_WORKFLOW, {
      workflowId,
      taskQueue,
      args: [claim],
      memo: { claim },
      staticSummary: `host ${hostId} is instance ${instance}`,
    });
    return {};
  } catch (error) {
    if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    const { memo } = await client.workflow.getHandle(workflowId).describe();
    const found = memo?.claim as HostClaim | undefined;
    if (found?.instance === instance && found.taskQueue === taskQueue) {
      return { draining: (memo?.draining as Drain | undefined)?.reason };
    }
    throw new ClaimedError(
      `host id "${hostId}" is taken: workflow ${workflowId} says instance ${found?.instance ?? '?'} on machine ${found?.machineId ?? '?'}, ` +
        `task queue ${found?.taskQueue ?? '?'}; this is instance ${instance} on machine ${machineId}, task queue ${taskQueue}. ` +
        `Give this host another host.id; or, once the other machine is gone for good, signal "release" to ${workflowId}`,
    );
  }
}

/** Says to the host's workflow what it is now. Where that can't be said, the host is served all the same. */
async function report(client: Client, host: Host, config: HostWorkerOptions['config'], log: HostLog): Promise<void> {
  const { hostId, instance, bootIds } = host.context.identity;
  const says: HostReport = {
    instance,
    bootId: bootIds.at(-1)!,
    version: VERSION,
    protocol: PROTOCOL,
    programs: Object.keys(config.programs),
    capacity: config.host.capacity,
  };
  try {
    await client.workflow.getHandle(hostWorkflowId(hostId)).signal(hereSignal, says);
  } catch (error) {
    log.warn('the host could not be reported to its workflow', { error: messageOf(error) });
  }
}
