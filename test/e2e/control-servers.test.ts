import { mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { LiveStatus } from '../../src/client';
import { ActivityName } from '../../src/contract/activities';
import type { HoldRecord } from '../../src/host/generation-files';
import { own, sessionServer, serving, use, writtenServer, type Serving } from '../support/control-servers';
import type { RunningWorker } from '../support/running-worker';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

/** The host of the worker processes; the worker of this process has another one, beside it on the same manager. */
const PROCESSES = 'h3';

describe('a control server', () => {
  let scene: Scene;
  let worker: RunningWorker;
  let home: string;
  let config: string;
  const processes = new Set<CliProcess>();

  beforeAll(async () => {
    const testHost = await openTestHost();
    home = join(testHost.stateDirectory, 'sessions');
    await mkdir(home, { recursive: true });
    const short = { leaseMs: 6000 };
    const programs = [
      sessionServer('sessions', home),
      sessionServer('if-started', home, {}, { onCancel: 'stop-if-started' }),
      sessionServer('left', home, {}, { onCancel: 'leave' }),
      sessionServer('on-a-socket', home, {}, { listen: { socket: join(testHost.runDirectory, 'sessions.sock') } }),
      sessionServer('left-alone', home, { leaseMs: 6000 }, { onCancel: 'leave', lease: { leaseMs: 3000 } }),
      sessionServer('mortal', join(home, '${resource}'), short, { survive: false, lease: short }),
    ];
    scene = await Scene.open(programs, { testHost, workers: [] });
    worker = await scene.startWorker();
    config = await writeConfig(
      { server: scene.server, testHost, hostId: scene.hostId(PROCESSES) },
      { sessions: writtenServer(home, '15s') },
      { run: ['host'], prefix: `${testHost.unitPrefix}p` },
    );
  });
  afterEach(() => killProcesses());
  afterAll(() => scene?.end());

  /** A worker process for its host, as it would run there. */
  async function startProcess(): Promise<CliProcess> {
    const started = runCli(scene.testHost, ['--config', config, 'worker']);
    processes.add(started);
    await started.line('serving the host');
    return started;
  }

  async function killProcesses(): Promise<void> {
    for (const started of processes) started.kill('SIGKILL');
    await Promise.all([...processes].map(({ ended }) => ended));
    processes.clear();
  }

  const terminate = (name: string): Promise<unknown> => scene.workflow(name).terminate('its owner is gone');

  /** Posts to the protocol as somebody who has a credential and says who it is. */
  const post = async (call: string, { endpoint }: Serving, credential: string, sent: object): Promise<number> =>
    (await use(scene.testHost, endpoint, 'POST', `/v1/${call}`, credential, sent)).status;

  /** How often the host has said something of a resource. */
  const said = (name: string, message: string): number =>
    worker.lines.filter((line) => line.message === message && line.attributes.resource === scene.resource(name)).length;

  /** Resolves once the host has the hold of an owner that knows that its server answers: the next worker goes on with it. */
  async function heldFor({ endpoint }: Serving): Promise<void> {
    const file = join(scene.testHost.root, dirname(endpoint.credentialFile), 'hold.json');
    await until('it is held', async () => (JSON.parse(await readFile(file, 'utf8')) as HoldRecord).ready);
  }

  const renewedAfter = (name: string, since: number): Promise<LiveStatus> =>
    scene.status(name, 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since);

  it('that its owner leaves without a word is adopted by the next one, with its work and a new credential (G6)', async () => {
    const former = await own(scene, 'terminated', 'sessions');
    expect(former.endpoint).toMatchObject({ host: '127.0.0.1', available: true });
    // Nothing was there: nothing was contacted.
    expect(former.placement.control?.recovery).toEqual({
      adopted: false,
      scope: 'no-server',
      reason: 'record-missing',
    });
    await use(scene.testHost, former.endpoint, 'POST', '/sessions');
    await terminate('terminated');

    const next = await own(scene, 'terminated', 'sessions');
    expect(next.self).toEqual(former.self);
    expect(next.placement).toMatchObject({ unit: former.placement.unit, generation: former.placement.generation });
    const recovery = { adopted: true, scope: 'adopted', reason: 'adopted', lease: 30_000 };
    expect(next.placement.control?.recovery).toMatchObject(recovery);
    expect(await next.handle.status()).toMatchObject({ control: { available: true, recovery, warnings: [] } });
    const { body } = await use(scene.testHost, next.endpoint, 'GET', '/sessions');
    expect(body.sessions).toHaveLength(1);

    expect(await next.handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
    expect(await scene.living('terminated')).toEqual([]);
  });

  it('takes neither the epoch nor the credential of an owner before the present one (G1, G6)', async () => {
    const former = await own(scene, 'former', 'sessions');
    expect(await post('renew', former, former.credential, former.owner)).toBe(200);
    await terminate('former');
    const next = await own(scene, 'former', 'sessions');

    expect(next.credential).not.toBe(former.credential);
    expect(next.owner.ownerId).toBe(next.handle.ownerId);
    expect(next.owner.epoch).toBeGreaterThan(former.owner.epoch);
    for (const call of ['renew', 'adopt']) {
      expect(await post(call, next, next.credential, former.owner)).toBe(409);
      expect(await post(call, next, former.credential, next.owner)).toBe(401);
      expect(await post(call, next, former.credential, former.owner)).toBe(401);
    }
    expect((await use(scene.testHost, next.endpoint, 'GET', '/sessions', former.credential)).status).toBe(401);
    expect(await post('renew', next, next.credential, next.owner)).toBe(200);
    await next.handle.stop();
  });

  it('is adopted once by two who want to own it at once, while the adoption of the one before is still repeated (G1, G6)', async () => {
    const first = await own(scene, 'raced', 'sessions');
    await terminate('raced');
    const former = await own(scene, 'raced', 'sessions');
    // Late attempts of the adoption that is done, with what they had read then, or with what there is now.
    const repeated: Promise<number>[] = [];
    const repeat = (credential: string): void => {
      repeated.push(post('adopt', former, credential, former.owner));
    };
    await terminate('raced');
    repeat(former.credential);
    const racing = [scene.own('raced', 'sessions'), scene.own('raced', 'sessions')];
    repeat(former.credential);
    const [one, other] = await Promise.all(racing);
    const next = await serving(scene, one!.handle);
    repeat(next.credential);
    repeat(first.credential);

    expect([one!.outcome, other!.outcome].sort()).toEqual(['joined', 'started']);
    expect(await other!.handle.ready()).toEqual(next.placement);
    expect(next.self).toEqual(first.self);
    expect(next.owner.ownerId).toBe(next.handle.ownerId);
    expect(said('raced', 'adopted')).toBe(2); // by the one before, and by this one
    expect((await Promise.all(repeated)).slice(-2)).toEqual([409, 401]);
    expect(await post('renew', next, next.credential, next.owner)).toBe(200);
    expect(await scene.living('raced')).toEqual([next.placement.unit]);
    await next.handle.stop();
  });

  it('goes on when its worker is killed, and is adopted when its owner goes as well (G2, G6)', async () => {
    await startProcess();
    const first = await own(scene, 'killed', 'sessions', PROCESSES);
    await heldFor(first);
    await killProcesses();
    expect(await serving(scene, first.handle)).toEqual(first);

    await startProcess();
    await renewedAfter('killed', Date.now());
    expect(await serving(scene, first.handle)).toEqual(first); // the owner is the same: nothing was adopted

    await killProcesses();
    await terminate('killed');
    await startProcess();
    const next = await own(scene, 'killed', 'sessions', PROCESSES);
    expect(next.self).toEqual(first.self);
    expect(next.credential).not.toBe(first.credential);
    expect(await next.handle.stop()).toMatchObject({ end: 'stopped' });
  });

  it('goes on when its worker is upgraded, the next one beside the former (G2)', async () => {
    const former = await startProcess();
    const first = await own(scene, 'upgraded', 'sessions', PROCESSES);
    await heldFor(first);
    await startProcess();
    former.kill('SIGTERM');
    expect(await former.ended).toMatchObject({ code: 0 });

    await renewedAfter('upgraded', Date.now());
    expect(await serving(scene, first.handle)).toEqual(first);
    await terminate('upgraded');
    const next = await own(scene, 'upgraded', 'sessions', PROCESSES);
    expect(next.self).toEqual(first.self);
    expect(next.credential).not.toBe(first.credential);
    expect(await next.handle.stop()).toMatchObject({ end: 'stopped' });
  });

  it('on a unix socket is adopted as one on a port is (G6)', async () => {
    const first = await own(scene, 'socket', 'on-a-socket');
    await terminate('socket');
    const next = await own(scene, 'socket', 'on-a-socket');
    expect(next.endpoint).toMatchObject({ socket: join(scene.testHost.runDirectory, 'sessions.sock') });
    expect(next.self).toEqual(first.self);
    expect(next.credential).not.toBe(first.credential);
    await next.handle.stop();
  });

  it('is asked for again within its own lease where a dying worker has taken the hold with it (G2)', async () => {
    const { handle } = await own(scene, 'hold-lost', 'sessions');
    const { events } = await scene.workflow('hold-lost').fetchHistory();
    const holds = events!.flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
      scheduled?.activityType?.name === ActivityName.holdOwnership ? [Number(scheduled.heartbeatTimeout?.seconds)] : [],
    );
    expect(holds.length).toBeGreaterThan(0);
    expect(new Set(holds)).toEqual(new Set([20])); // of its 30 s; systemd's lease is longer
    await handle.stop();
  });

  it('that is released is adopted by the next owner (G6)', async () => {
    const first = await own(scene, 'released', 'sessions');
    await first.handle.release();
    expect(await first.handle.result()).toMatchObject({ end: 'released' });
    const next = await own(scene, 'released', 'sessions');
    expect(next.self).toEqual(first.self);
    expect(next.credential).not.toBe(first.credential);
    expect(next.placement.control?.recovery?.adopted).toBe(true);
    await next.handle.stop();
  });

  it('is stopped when its owner is cancelled, unless its program leaves it, or one that it has adopted (G3)', async () => {
    const cancelled = async (name: string, program: string): Promise<[Serving, string]> => {
      const server = await own(scene, name, program);
      await scene.workflow(name).cancel();
      return [server, (await server.handle.result()).end];
    };
    expect((await cancelled('cancel', 'sessions'))[1]).toBe('stopped');
    expect((await cancelled('cancel-started', 'if-started'))[1]).toBe('stopped');
    expect(await scene.living('cancel')).toEqual([]);
    expect(await scene.living('cancel-started')).toEqual([]);

    const started = await own(scene, 'cancel-adopted', 'if-started');
    await terminate('cancel-adopted');
    const [adopted, end] = await cancelled('cancel-adopted', 'if-started');
    expect(end).toBe('released');
    const [left, leftEnd] = await cancelled('cancel-left', 'left');
    expect(leftEnd).toBe('released');
    for (const [name, program, server] of [
      ['cancel-adopted', 'if-started', adopted],
      ['cancel-left', 'left', left],
    ] as const) {
      expect(await scene.living(name)).toEqual([server.placement.unit]);
      const next = await own(scene, name, program);
      expect(next.self).toEqual(server.self);
      await next.handle.stop();
    }
    expect(adopted.self).toEqual(started.self);
  });

  it('that is left is renewed by nobody, and ends with its lease (G7)', async () => {
    const server = await own(scene, 'left-alone', 'left-alone');
    await use(scene.testHost, server.endpoint, 'POST', '/sessions');
    await scene.workflow('left-alone').cancel();
    expect(await server.handle.result()).toMatchObject({ end: 'released' });
    expect(await scene.mainPid(server.placement.unit)).toBe(server.self.pid);
    await scene.ended(server.placement.unit);
    expect(await logOf(home, 1)).toMatch(/ends, the server ends: lease\n$/);
  });

  it('that does not survive its owner is shut down by the protocol and proven dead before the next one (G2, G3)', async () => {
    const ownHome = join(home, scene.resource('mortal'));
    await mkdir(ownHome, { recursive: true });
    const first = await own(scene, 'mortal', 'mortal');
    await use(scene.testHost, first.endpoint, 'POST', '/sessions');
    await terminate('mortal');
    const next = await own(scene, 'mortal', 'mortal');

    expect(next.placement.generation).toBeGreaterThan(first.placement.generation);
    expect(next.self.serverId).not.toBe(first.self.serverId);
    expect(next.placement.control?.recovery).toMatchObject({
      adopted: false,
      scope: 'no-server',
      reason: 'reclaimed',
    });
    expect(await logOf(ownHome, 1)).toMatch(/ends, the server ends: shutdown\n$/);
    const told = worker.lines.filter(({ attributes }) => attributes.resource === scene.resource('mortal'));
    const order = told.map(({ message }) => message).filter((message) => /^(started|recovery|proven)$/.test(message));
    expect(order).toEqual(['recovery', 'started', 'recovery', 'proven', 'started']);
    expect(await scene.living('mortal')).toEqual([next.placement.unit]);
    await next.handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(15);
  });
});

const logOf = (home: string, session: number): Promise<string> => readFile(join(home, `${session}.log`), 'utf8');
