import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Program } from '../../src/config';
import { ControlClient } from '../../src/control-server/client';
import type { OwnerHandle, OwnershipClient } from '../../src/client';
import { OWNER_WORKFLOW, type OwnInput } from '../../src/contract/owner';
import { ownerWorkflowId } from '../../src/contract/names';
import { sessionServer } from '../support/control-servers';
import { program, script } from '../support/owned-host';
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
  readonly withoutHost: (meanwhile: () => Promise<void>) => Promise<void>;
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
    const first = await handle.ready();
    await handle.restart({ reason: 'recorded' });
    await until(
      async () =>
        (await handle.status()).placement?.generation !== first.generation &&
        (await handle.status()).state === 'running',
    );
    await handle.stop();
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

async function terminate({ server, resource }: Recording): Promise<void> {
  await server.client.workflow.getHandle(ownerWorkflowId(resource)).terminate('recorded');
}

async function inState(handle: OwnerHandle, state: string): Promise<void> {
  await until(async () => (await handle.status()).state === state);
}

/** Asks until it is so: there is no event for what only the owner knows. */
async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 100));
}
