/**
 * A process that outlives its owner and its worker: `npm run demo -- control-server` runs this file.
 *
 * The process is the session server beside it, whose sessions tick. The owner is terminated and the worker is killed; the
 * sessions tick on; a new worker and a new owner adopt the very same server.
 */
import { randomBytes } from 'node:crypto';
import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { OwnershipClient, type OwnerHandle, type Placement, type OwnedEndpoint } from '../../src/client';
import { recoveryText } from '../../src/contract/control';
import { ownerWorkflowId } from '../../src/contract/names';
import { openTemporalServer } from '../../test/support/temporal-server';
import { openTestHost, type TestHost } from '../../test/support/test-host';
import { runCli, writeConfig, type CliProcess } from '../../test/support/worker-process';
import {
  CleanUp,
  endWorkflows,
  lookCommand,
  print,
  printChanges,
  printEnd,
  printTable,
  time,
  workflowLink,
} from '../demo-support';
import { Ticks } from './ticks';

const RESOURCE = 'demo/sessions';

/** The session server as `temporal.yaml` has it. */
function sessionProgram(home: string): Record<string, unknown> {
  const hook = join(__dirname, '../../test/support/typescript-hook.js');
  return {
    exec: [process.execPath, '--require', hook, join(__dirname, 'server.js')],
    hardening: 'off', // strict hides /home and /tmp, where this clone may be
    control: {
      port: '7700-7799',
      home,
      capabilities: ['sessions'],
      lease: '20s', // without a renewal it ends, once it has also been idle …
      idleTimeout: '10s',
      busyCap: '2 min', // … and even a busy one now
    },
  };
}

async function main(cleanUp: CleanUp): Promise<void> {
  // 1. A Temporal server and a systemd host: existing ones, else embedded ones.
  const server = await cleanUp.after(openTemporalServer({ ui: true, report: print }), (opened) => opened.stop());
  const host = await cleanUp.after(openTestHost(), (opened) => opened.end());
  print(`Temporal server  ${server.address}, namespace ${server.namespace}`);
  print(`systemd host     ${'pid' in host ? 'a private systemd, booted for this demo' : 'your own user manager'}`);

  // 2. A worker for owners and host, in a process of its own: `temporal-systemd worker`, as on a real host.
  const home = join(host.stateDirectory, 'sessions');
  await mkdir(home);
  const hostId = `demo-${randomBytes(3).toString('hex')}`;
  const config = await writeConfig({ server, testHost: host, hostId }, { sessions: sessionProgram(home) });
  cleanUp.add(() => endWorkflows(server, hostId, RESOURCE));
  const startWorker = async (): Promise<CliProcess> => {
    if (cleanUp.hasBegun) throw new Error('interrupted');
    const worker = runCli(host, ['--config', config, 'worker']);
    cleanUp.add(async () => {
      worker.kill('SIGTERM');
      await worker.ended;
    });
    await worker.line('serving the host');
    print(`${time()}  worker serves the host`);
    return worker;
  };
  print('\nstart a worker');
  const worker = await startWorker();

  // 3. Own a session server. Its users get from the handle where it listens, and the file on its host with the credential.
  const client = new OwnershipClient(server.client, { taskQueue: server.taskQueue });
  const own = { resource: RESOURCE, program: 'sessions', host: hostId };
  print(`\nown ${RESOURCE}: a control server`);
  const first = await ownReady(client, own);
  const before = await Sessions.open(host, first.handle);
  printTable([
    ['unit', first.placement.unit],
    ['server', `${before.url}, process ${before.pid}, server id ${before.serverId}`],
    ['credential', `in ${before.credentialFile} on that host; not shown here, and never in Temporal`],
    ['Temporal UI', workflowLink(server, RESOURCE)],
    ['look at it', lookCommand(host, first.placement.unit)],
  ]);

  // 4. Its work: a session that ticks every 100 ms.
  print('\nstart a session');
  const { session } = (await before.ask('POST')) as { readonly session: number };
  const ticks = new Ticks(join(home, `${session}.log`), (count) =>
    print(`${time()}  session ${session}: tick ${count}`),
  );
  cleanUp.add(async () => void ticks.close());
  await sleep(2_500);

  // 5. Nobody owns it any more, and nobody serves its host.
  print('\nterminate the owner and kill the worker');
  await server.client.workflow.getHandle(ownerWorkflowId(RESOURCE)).terminate('the demo kills the owner');
  print(`${time()}  owner  terminated`);
  first.forget();
  worker.kill('SIGKILL');
  const { code } = await worker.ended;
  print(`${time()}  worker killed, exit code ${code}`);
  await sleep(3_500);

  // 6. The next ones find it, make sure that it is the resource's own, and take it over with a credential of their own.
  print('\nstart another worker, and own it again');
  await startWorker();
  const second = await ownReady(client, own);
  const after = await Sessions.open(host, second.handle);
  const former = await before.status();
  await sleep(2_500);
  const { count, missing, longestMs } = ticks.close();
  print('');
  printTable([
    ['found', second.placement.control?.recovery && recoveryText(second.placement.control.recovery)],
    ['server', `process ${after.pid}: ${same(before.pid, after.pid)}; id: ${same(before.serverId, after.serverId)}`],
    ['credential', `${same(before.credential, after.credential)}; the former one is answered ${former}`],
    ['ticks', `1 to ${count}, ${missing} missing; the longest wait for one was ${(longestMs / 1000).toFixed(2)} s`],
  ]);

  // 7. Stop it. This resolves after the proof and not before.
  print(`\nstop ${RESOURCE}`);
  const result = await second.handle.stop({ reason: 'the demo is over', by: 'demo' });
  await second.watching;
  printEnd(result);
}

/** Owns it and waits until it is ready, while what the owner says is printed. */
async function ownReady(
  client: OwnershipClient,
  own: Parameters<OwnershipClient['own']>[0],
): Promise<{ handle: OwnerHandle; placement: Placement; watching: Promise<void>; forget: () => void }> {
  const from = performance.now();
  const { handle } = await client.own(own);
  let forgotten = false;
  const watching = printChanges(handle, () => forgotten);
  const placement = await handle.ready();
  print(`${time()}  ready  ${Math.round(performance.now() - from)} ms after own()`);
  return { handle, placement, watching, forget: () => void (forgotten = true) };
}

/** Somebody on the host who uses the server, with the credential that it has now. */
class Sessions {
  readonly pid!: number;
  readonly serverId!: string;

  private constructor(
    readonly url: string,
    readonly credentialFile: string,
    readonly credential: string,
  ) {}

  static async open({ root }: TestHost, handle: OwnerHandle): Promise<Sessions> {
    const { credentialFile, ...endpoint }: OwnedEndpoint = await handle.endpoint();
    if (!('port' in endpoint) || credentialFile === undefined)
      throw new Error('the demo’s server is a control server on a port');
    const credential = await readFile(join(root, credentialFile), 'utf8');
    const sessions = new Sessions(`http://${endpoint.host}:${endpoint.port}/sessions`, credentialFile, credential);
    const { pid, serverId } = (await sessions.ask('GET')) as Pick<Sessions, 'pid' | 'serverId'>;
    return Object.assign(sessions, { pid, serverId });
  }

  async ask(method: 'GET' | 'POST'): Promise<unknown> {
    return (await this.fetch(method)).json();
  }

  async status(): Promise<number> {
    return (await this.fetch('GET')).status;
  }

  private fetch(method: string): Promise<Response> {
    return fetch(this.url, { method, headers: { authorization: `Bearer ${this.credential}`, connection: 'close' } });
  }
}

/** Without showing either. */
function same(a: unknown, b: unknown): string {
  return a === b ? 'the same' : 'changed';
}

void CleanUp.around(main);
