import { mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invocationPath } from '../../src/systemd/unit-path';
import { credentialIn, own, sessionServer, use, writtenServer, type Serving } from '../support/control-servers';
import type { CommandResult } from '../support/test-host';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

const PROCESSES = 'h3';

const SYSTEMD = 'org.freedesktop.systemd1';

describe('the credential of a control server', () => {
  let scene: Scene;
  let home: string;
  let config: string;
  let worker: CliProcess | undefined;

  beforeAll(async () => {
    const testHost = await openTestHost();
    home = join(testHost.stateDirectory, 'sessions');
    await mkdir(home, { recursive: true });
    scene = await Scene.open([sessionServer('sessions', home)], { testHost, workers: [{ run: ['workflows'] }] });
    config = await writeConfig(
      { server: scene.server, testHost, hostId: scene.hostId(PROCESSES) },
      { sessions: writtenServer(home, '45s') },
      { run: ['host'] },
    );
  });
  afterAll(async () => {
    worker?.kill('SIGKILL');
    await worker?.ended;
    await scene?.end();
  });

  async function startProcess(): Promise<void> {
    worker = runCli(scene.testHost, ['--config', config, 'worker'], { LOG_LEVEL: 'debug' });
    await worker.line('serving the host');
  }

  it('is in no history, heartbeat, memo, log, bus property, environment or command line, whatever happens to it (G9)', async () => {
    const secrets = new Set<string>();
    const seen = new Map<string, string>();
    const look = (where: string, text: string): void => void seen.set(where, (seen.get(where) ?? '') + text);
    const outputs: CommandResult[] = [];

    /** Everything there is at this moment that others than host and server may read. */
    async function collect({ endpoint, placement, self }: Serving): Promise<void> {
      secrets.add(await credentialIn(scene.testHost, endpoint));
      const { raw } = await scene.workflow('secret').describe();
      look('description', textOf(raw));
      look('status', textOf(await scene.client.handle(scene.resource('secret')).status()));
      look('heartbeat', textOf(raw.pendingActivities));
      look('memo', textOf(raw.workflowExecutionInfo?.memo));
      look('bus', await scene.testHost.systemctl('show', '--all', '*'));
      look('unit', await onTheBus(placement.invocation));
      const inside = (file: string): Promise<string> => readFile(join(scene.testHost.root, 'proc', file), 'latin1');
      for (const pid of (await readdir(join(scene.testHost.root, 'proc'))).filter((name) => /^[0-9]+$/.test(name))) {
        const of = pid === String(self.pid) ? 'of the server' : 'of others';
        look(`environment ${of}`, await inside(`${pid}/environ`).catch(() => ''));
        look(`command line ${of}`, await inside(`${pid}/cmdline`).catch(() => ''));
      }
    }

    /** All of a service's properties, those too that systemctl does not show. */
    async function onTheBus(invocation: string): Promise<string> {
      const call = ['call', SYSTEMD, invocationPath(invocation), 'org.freedesktop.DBus.Properties', 'GetAll'];
      const { manager } = scene.testHost;
      const { stdout } = await scene.testHost.run(['busctl', `--${manager}`, ...call, 's', `${SYSTEMD}.Service`]);
      return stdout;
    }

    async function endProcess(signal: NodeJS.Signals): Promise<void> {
      worker!.kill(signal);
      outputs.push(await worker!.ended);
    }

    await startProcess();
    const first = await own(scene, 'secret', 'sessions', PROCESSES);
    await use(scene.testHost, first.endpoint, 'POST', '/sessions');
    await scene.status('secret', 'is held', ({ live }) => live !== undefined);
    await collect(first);
    // Refused, which is told: by a credential that is none, and by an epoch that is over.
    await use(scene.testHost, first.endpoint, 'POST', '/v1/renew', 'x'.repeat(43), first.owner);

    await scene.workflow('secret').terminate('its owner is gone');
    const second = await own(scene, 'secret', 'sessions', PROCESSES);
    await use(scene.testHost, second.endpoint, 'POST', '/v1/renew', first.credential, first.owner);
    await scene.status('secret', 'is held', ({ live }) => live !== undefined);
    await collect(second);

    await endProcess('SIGKILL');
    await startProcess();
    const since = Date.now();
    await scene.status('secret', 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    await collect(second);
    await second.handle.release();
    const third = await own(scene, 'secret', 'sessions', PROCESSES);
    await collect(third);

    const other = { ownerId: 'somebody-else', epoch: third.owner.epoch + 1 };
    const { body } = await use(scene.testHost, third.endpoint, 'POST', '/v1/adopt', undefined, other);
    secrets.add(String(body.credential));
    await scene.status('secret', 'is lost', ({ state }) => state === 'ownership-lost');
    await collect(third);
    await third.handle.restart();
    await scene.status('secret', 'serves again', ({ control }) => control?.available === true);
    await collect(await own(scene, 'secret', 'sessions', PROCESSES));
    await third.handle.stop();
    await endProcess('SIGTERM');

    for (const { history } of await scene.histories()) look('history', textOf(history));
    for (const { stdout, stderr } of outputs) look('log of the worker', stdout + stderr);
    for (const name of await readdir(home)) look('files of the server', await readFile(join(home, name), 'utf8'));
    const journal = await scene.testHost.run(['journalctl', '--output=export', '--no-pager']);
    look('journal', journal.stdout);

    expect(secrets.size).toBe(5); // of two starts and two adoptions, and that which somebody else got
    const known: Readonly<Record<string, string>> = {
      description: third.handle.ownerId!,
      status: third.endpoint.credentialFile,
      heartbeat: third.placement.unit,
      memo: scene.hostId(PROCESSES),
      bus: first.placement.unit,
      unit: third.endpoint.credentialFile,
      'environment of the server': `OWNED_GENERATION=${first.placement.generation}`,
      'environment of others': 'PATH=',
      'command line of the server': 'control-server/server.js',
      'command line of others': 'systemd',
      history: third.endpoint.credentialFile,
      'log of the worker': 'control server not renewed',
      'files of the server': 'starts in process',
      journal: `session server ${String(first.self.serverId)}`,
    };
    expect([...seen.keys()].sort()).toEqual(Object.keys(known).sort());
    for (const [where, text] of seen) {
      expect([where, text.includes(known[where]!)]).toEqual([where, true]); // it was really read
      for (const secret of secrets) {
        const forms = [
          secret,
          Buffer.from(secret).toString('base64').slice(0, -3),
          Buffer.from(secret).toString('hex'),
        ];
        expect([where, forms.filter((form) => text.includes(form))]).toEqual([where, []]);
      }
    }
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(2);
  });
});

/** All texts in a value, the bytes of payloads as what they are. */
function textOf(value: unknown): string {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('utf8');
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.entries(value)
    .map(([key, one]) => `${key}: ${textOf(one)}`)
    .join('\n');
}
