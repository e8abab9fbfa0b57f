import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkflowHandle } from '@temporalio/client';
import type { Program } from '../../src/config';
import { ControlClient } from '../../src/control-server/client';
import type { OwnerHandle, OwnershipClient } from '../../src/client';
import { hereSignal, hostStatusQuery, releaseHostSignal, type HostStatus } from '../../src/contract/host';
import { OWNER_WORKFLOW, type OwnInput } from '../../src/contract/owner';
import { hostWorkflowId, ownerWorkflowId } from '../../src/contract/names';
import { sessionServer } from '../support/control-servers';
import { program, script } from '../support/owned-host';
import type { RunningWorkerOptions } from '../support/running-worker';
import type { TemporalServer } from '../support/temporal-server';
import type { TestHost } from '../support/test-host';

/** Planted in every program's environment; must be in no history. */
export const SECRET = 'planted-secret-3f1c0d7e-never-in-temporal';

const environment = { PLANTED: SECRET };

/** What the recorded owners run. */
export const programs: readonly Program[] = [
  program('sleeper', ['/bin/sleep', '1000'], { environment }),
  script('exits-0', 'exit 0', { environment }),
  script('exits-3', 'exit 3', {
    environment,
    restart: { policy: 'on-failure', backoffMs: 50, maxBackoffMs: 100, limit: 2, resetAfterMs: 600_000 },
  }),
  script('ignores-term', 'trap "" TERM; while :; do sleep 1; done', {
    environment,
    stop: { signal: 'SIGTERM', timeoutMs: 60_000, killMode: 'control-group' },
  }),
  sessionServer('server', '/tmp', { environment, leaseMs: 3_000 }, { lease: { leaseMs: 3_000 } }),
  sessionServer('other-server', '/tmp', { environment }, { capabilities: ['sessions', 'more'] }),
  sessionServer('mortal-server', '/tmp', { environment }, { survive: false }),
  script('says-ready', 'systemd-notify --ready; exec sleep 1000', { environment, ready: 'notify' }),
];

/** The resource that a path is recorded with: an owner checks that its workflow id is its resource's. */
export function recordedResource(path: string): string {
  return `recorded/${path}`;
}

/** What a path is recorded with. */
export interface Recording {
  readonly client: OwnershipClient;
  readonly server: TemporalServer;
  readonly testHost: TestHost;
  readonly host: string;
  readonly resource: string;
  /** Ends the host's worker and begins it again. */
  readonly withoutHost: (meanwhile: () => Promise<unknown>) => Promise<void>;
  /** Ends the host's worker and begins another one in its place for a while. */
  readonly withHost: (
    change: Pick<RunningWorkerOptions, 'capacity'> | Pick<RunningWorkerOptions, 'programs'>,
    meanwhile: () => Promise<void>,
  ) => Promise<void>;
}

const own = async ({ client, host, resource }: Recording, program: string): Promise<OwnerHandle> =>
  (await client.own({ resource, program, host })).handle;

/** Every path through the owner that is recorded: name → how to make one go that way to its end. */
export const paths: Readonly<Record<string, (recording: Recording) => Promise<void>>> = {
  'start-and-stop': async (recording) => {
    const handle = await own(recording, 'sleeper');
    await handle.ready();
    await handle.stop({ reason: 'recorded' });
  },
  'ready-by-notify': async (recording) => {
    const handle = await own(recording, 'says-ready');
    await handle.ready();
    await handle.stop();
  },
  'ends-by-itself': async (recording) => {
    await (await own(recording, 'exits-0')).result();
  },
  'restarts-then-gives-up': async (recording) => {
    const handle = await own(recording, 'exits-3');
    await inState(handle, 'gave-up');
    await handle.stop();
  },
  'restart-by-request': async (recording) => {
    const handle = await own(recording, 'sleeper');
    await handle.ready();
    await restart(handle);
    await handle.stop();
  },
  'program-changed': async (recording) => {
    const handle = await own(recording, 'sleeper');
    await handle.ready();
    const changed = program('sleeper', ['/bin/sleep', '2000'], { environment });
    await recording.withHost({ programs: [changed] }, async () => {
      await until(async () => (await handle.status()).programState === 'changed');
      await restart(handle);
      await until(async () => (await handle.status()).programState !== 'changed');
      await handle.stop();
    });
  },
  'still-running-then-killed': async (recording) => {
    const handle = await own(recording, 'ignores-term');
    await handle.ready();
    await handle.stop({ timeout: '2 s' }).catch(() => undefined); // StillRunningError
    await handle.stop({ now: true });
  },
  'refused-program': async (recording) => {
    await (await own(recording, 'no-such-program')).result().catch(() => undefined); // ProgramRefusedError
  },
  'host-full': async (recording) => {
    await recording.withHost({ capacity: { units: 1 } }, async () => {
      const first = await own({ ...recording, resource: `${recording.resource}/first` }, 'sleeper');
      await first.ready();
      await (await own(recording, 'sleeper')).result().catch(() => undefined); // HostFullError
      await first.stop();
    });
  },
  'other-hands': async (recording) => {
    const handle = await own(recording, 'sleeper');
    const { unit } = await handle.ready();
    await recording.testHost.systemctl('freeze', unit);
    await until(async () => (await handle.status()).lastEvent === 'frozen by other hands');
    await recording.testHost.systemctl('thaw', unit);
    await until(async () => (await handle.status()).lastEvent === 'no longer: frozen by other hands');
    await handle.stop();
  },
  'stopped-before-a-start': async (recording) => {
    await recording.withoutHost(async () => {
      const handle = await own(recording, 'sleeper');
      await handle.stop();
    });
  },
  'host-comes-late': async (recording) => {
    let handle: OwnerHandle | undefined;
    await recording.withoutHost(async () => {
      handle = await own(recording, 'sleeper');
      await until(async () => (await handle!.status()).hostUnreachableSince !== undefined);
    });
    await inState(handle!, 'running');
    await handle!.stop();
  },
  'released-and-adopted': async (recording) => {
    const first = await own(recording, 'sleeper');
    await first.ready();
    await first.release();
    await first.result();
    const second = await own(recording, 'sleeper');
    await second.ready();
    await second.stop();
  },
  'ended-without-owner': async (recording) => {
    const placement = await (await own(recording, 'sleeper')).ready();
    await terminate(recording);
    const { server, host, resource } = recording;
    const found = { wish: 'stopped', by: `host ${host}`, found: placement } as const;
    const input: OwnInput = { resource, program: 'sleeper', host, parameters: {}, requestId: randomUUID(), ...found };
    const workflowId = ownerWorkflowId(resource);
    await server.client.workflow.execute(OWNER_WORKFLOW, { workflowId, taskQueue: server.taskQueue, args: [input] });
  },
  cancelled: async (recording) => {
    const handle = await own(recording, 'sleeper');
    await handle.ready();
    await recording.server.client.workflow.getHandle(ownerWorkflowId(recording.resource)).cancel();
    await handle.result();
  },
  'control-server-adopted': async (recording) => {
    await (await own(recording, 'server')).ready();
    await terminate(recording);
    const next = await own(recording, 'server');
    await next.ready();
    await next.stop();
  },
  'control-server-not-adopted': async (recording) => {
    await (await own(recording, 'server')).ready();
    await terminate(recording);
    const next = await own(recording, 'other-server');
    await until(async () => ((await next.status()).control?.warnings.length ?? 0) > 0);
    await next.stop();
  },
  'control-server-reclaimed': async (recording) => {
    await (await own(recording, 'mortal-server')).ready();
    await terminate(recording);
    const next = await own(recording, 'mortal-server');
    await next.ready();
    await next.stop();
  },
  'control-server-lost': async (recording) => {
    const handle = await own(recording, 'server');
    await handle.ready();
    const { credentialFile = '', available: _, ...endpoint } = await handle.endpoint();
    const credential = await readFile(join(recording.testHost.root, credentialFile), 'utf8');
    const somebody = { ownerId: 'somebody', epoch: Date.now() + 60_000 };
    const server = await new ControlClient(endpoint).prove([credential], 5_000);
    const answer = await server.adopt(credential, somebody, 5_000);
    await server.renew(answer.credential, somebody, 5_000);
    server.close();
    await inState(handle, 'ownership-lost');
    await handle.stop();
  },
  'continued-as-new': async (recording) => {
    const { server, host, resource, client } = recording;
    const input: OwnInput = {
      resource,
      program: 'sleeper',
      host,
      parameters: {},
      requestId: randomUUID(),
      stepsPerRun: 4,
    };
    const first = await server.client.workflow.start(OWNER_WORKFLOW, {
      workflowId: ownerWorkflowId(resource),
      taskQueue: server.taskQueue,
      args: [input],
    });
    const handle = client.handle(resource);
    await handle.ready();
    await until(async () => {
      await handle.ready();
      return (
        (await server.client.workflow.getHandle(ownerWorkflowId(resource)).describe()).runId !==
        first.firstExecutionRunId
      );
    });
    await handle.stop();
  },
};

/** Every path of a host's own workflow: name → how to make it go that way to its end. */
export const hostPaths: Readonly<Record<string, (recording: Recording) => Promise<void>>> = {
  'host-served': async (recording) => {
    const { client, host, withoutHost } = recording;
    await claimAnew(recording);
    await client.drain(host, { reason: 'recorded', by: 'somebody' });
    await client.undrain(host);
    await withoutHost(() => until(async () => (await hostStatus(recording)).unreachableSince !== undefined));
    await until(async () => (await hostStatus(recording)).unreachableSince === undefined);
    await release(recording);
  },
  'host-continued-as-new': async (recording) => {
    await claimAnew(recording);
    const workflow = hostWorkflow(recording);
    const { runId } = await workflow.describe();
    const isNew = async (): Promise<boolean> => (await workflow.describe()).runId !== runId;
    const report = await until(async () => (await hostStatus(recording)).report);
    while (!(await isNew())) await workflow.signal(hereSignal, report); // a run takes so many of them
    await recording.client.drain(recording.host, { reason: 'recorded', by: 'somebody' });
    await release(recording);
  },
};

function hostWorkflow({ server, host }: Recording): WorkflowHandle {
  return server.client.workflow.getHandle(hostWorkflowId(host));
}

function hostStatus(recording: Recording): Promise<HostStatus> {
  return hostWorkflow(recording).query(hostStatusQuery);
}

/** Gives the host's id back, which ends its workflow. */
async function release(recording: Recording): Promise<void> {
  await hostWorkflow(recording).signal(releaseHostSignal);
  await hostWorkflow(recording).result();
}

/** What a history begins with: the host's worker claims an id that nobody has. */
async function claimAnew(recording: Recording): Promise<void> {
  await recording.withoutHost(() => release(recording).catch(() => undefined)); // an earlier path has released it
}

async function restart(handle: OwnerHandle): Promise<void> {
  const { generation } = (await handle.status()).placement!;
  await handle.restart({ reason: 'recorded' });
  await until(async () => {
    const { placement, state } = await handle.status();
    return placement?.generation !== generation && state === 'running';
  });
}

async function terminate({ server, resource }: Recording): Promise<void> {
  await server.client.workflow.getHandle(ownerWorkflowId(resource)).terminate('recorded');
}

async function inState(handle: OwnerHandle, state: string): Promise<void> {
  await until(async () => (await handle.status()).state === state);
}

/** Asks until it is so: there is no event for what only the owner knows. */
async function until<T>(ask: () => Promise<T | undefined | false>): Promise<T> {
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
