import { once } from 'node:events';
import { mkdir, readFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { NoEndpointError, type LiveStatus, type OwnerHandle } from '../../src/client';
import type { ControlConfig } from '../../src/config';
import type { Program } from '../../src/config/config';
import type { ControlStatus, Recovery } from '../../src/contract/control';
import { control, own, sessionServer, serving, use, type Serving } from '../support/control-servers';
import { script } from '../support/owned-host';
import { PlayedServer } from '../support/played-server';
import { answer, openRawServer } from '../support/raw-server';
import type { RunningWorker, RunningWorkerOptions } from '../support/running-worker';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';

const always = { policy: 'always', backoffMs: 50, maxBackoffMs: 100, limit: 3, resetAfterMs: 600_000 } as const;

/** The host whose worker comes back with other programs. */
const CHANGED = 'h2';

describe('a control server in trouble', () => {
  let scene: Scene;
  let worker: RunningWorker;
  let home: string;
  let changedHost: Partial<RunningWorkerOptions>;

  beforeAll(async () => {
    const testHost = await openTestHost();
    home = join(testHost.stateDirectory, 'sessions');
    await mkdir(home, { recursive: true });
    const late = (ms: number): Partial<Program> => ({ environment: { SESSION_SERVER_START_DELAY_MS: String(ms) } });
    const { health, recovery } = control(home);
    scene = await Scene.open(
      [
        sessionServer('sessions', home),
        sessionServer('six', home, {}, { lease: { leaseMs: 6000 } }),
        sessionServer(
          'hangs',
          home,
          { leaseMs: 4000, restart: always, environment: { SESSION_SERVER_HANG: '1' } },
          { lease: { leaseMs: 3000 } },
        ),
        sessionServer(
          'stuck',
          home,
          { environment: { SESSION_SERVER_HANG: '1' } },
          { recovery: { ...recovery, timeoutMs: 1000 } },
        ),
        sessionServer('again', home, { restart: { ...always, backoffMs: 2000, maxBackoffMs: 2000 } }),
        sessionServer('late', home, late(1500), { health: { ...health, withinMs: 300 } }),
        sessionServer('required', home, late(60_000), { health: { ...health, withinMs: 300, require: true } }),
        sessionServer('unrecorded', home, late(1000)),
        script('played', 'exec sleep 9999', { control: control(home) }),
        script('played-short', 'exec sleep 9999', { control: control(home, { lease: { leaseMs: 3000 } }) }),
      ],
      { testHost, workers: [] },
    );
    worker = await scene.startWorker();
    changedHost = {
      run: ['host'],
      hostId: CHANGED,
      stateDirectory: `${testHost.stateDirectory}/other`,
      unitPrefix: `${testHost.unitPrefix}b`,
    };
  });
  afterAll(() => scene?.end());

  const terminate = (name: string): Promise<unknown> => scene.workflow(name).terminate('its owner is gone');

  /** Waits for what the status says of the server. */
  const server = (name: string, what: string, fits: (server: ControlStatus) => boolean): Promise<LiveStatus> =>
    scene.status(name, what, (status) => status.control !== undefined && fits(status.control));

  const recovered = async (name: string): Promise<Recovery> =>
    (await server(name, 'was looked for', ({ recovery }) => recovery !== undefined)).control!.recovery!;

  const kill = (unit: string): Promise<string> => scene.testHost.systemctl('kill', '--signal=KILL', unit);

  /** That of two servers of a resource the second one is another, and the only one. */
  async function onlyLives(name: string, next: Serving, former: Serving): Promise<void> {
    expect(next.self.serverId).not.toBe(former.self.serverId);
    expect(next.placement.generation).toBeGreaterThan(former.placement.generation);
    expect(await scene.living(name)).toEqual([next.placement.unit]);
    expect(await scene.mainPid(former.placement.unit)).toBe(0);
  }

  /** What the host has said of a resource of the things that make and end processes, in their order. */
  const order = (name: string, { lines } = worker): string[] =>
    lines.flatMap(({ message, attributes }) =>
      attributes.resource === scene.resource(name) && /^(started|adopted|proven)$/.test(message) ? [message] : [],
    );

  it('whose place a stranger has taken is found out, and the stranger is left alone and sent no credential (G6, G11)', async () => {
    const former = await own(scene, 'stranger', 'sessions');
    const { endpoint, placement } = former;
    if (!('port' in endpoint)) throw new Error('on a port');
    await terminate('stranger');
    // Dead, and not proven so: something is left in its slice.
    const left = `left-${placement.generation}.service`;
    const start = ['systemd-run', `--slice=${placement.slice}`, `--unit=${left}`, 'sleep', '1000'];
    expect(await scene.testHost.run(start)).toMatchObject({ code: 0 });
    await kill(placement.unit);
    await scene.ended(placement.unit);
    const stranger = await openRawServer((socket) => socket.end(answer(200, '{"alive":true}')), endpoint.port);
    try {
      const { handle } = await scene.own('stranger', 'sessions');
      const { contactedAt, ...recovery } = await recovered('stranger');
      const { host, port } = endpoint;
      expect(recovery).toEqual({
        adopted: false,
        scope: 'foreign-server',
        reason: 'not-the-protocol',
        endpoint: { host, port },
      });
      expect(contactedAt).toBeGreaterThan(placement.generation);
      await scene.testHost.systemctl('stop', left);

      const next = await serving(scene, handle);
      expect(next.placement.control?.recovery).toMatchObject(recovery);
      await onlyLives('stranger', next, former);
      const listen = control(home).listen as Extract<ControlConfig['listen'], { ports: unknown }>;
      const { port: nextPort } = next.endpoint as { readonly port: number };
      expect(nextPort).not.toBe(port);
      expect(nextPort).toBeGreaterThanOrEqual(listen.ports[0]);
      expect(nextPort).toBeLessThanOrEqual(listen.ports[1]);

      await next.handle.stop();
      const socket = connect(port, host);
      await once(socket, 'connect'); // it listens on
      socket.destroy();
      expect(stranger.requests.length).toBeGreaterThan(0);
      const heard = stranger.requests.join('\n');
      expect(heard).not.toMatch(/authorization/i);
      expect(heard).not.toContain(former.credential);
      expect(heard).not.toMatch(/^POST/m);
    } finally {
      await stranger.close();
    }
  });

  it('that has another home or too few capabilities now is stopped until proven before a fresh one, or waited for (G2, G6)', async () => {
    const homes = [join(home, 'a'), join(home, 'b')] as const;
    await Promise.all(homes.map((one) => mkdir(one)));
    const lease = { leaseMs: 6000 };
    const before = [
      sessionServer('moved', homes[0]),
      sessionServer('more', homes[0]),
      sessionServer('waits', homes[0], {}, { lease }),
    ];
    const after = [
      sessionServer('moved', homes[1]),
      sessionServer('more', homes[0], {}, { capabilities: ['sessions', 'video'] }),
      sessionServer('waits', homes[1], {}, { lease, onRefused: 'wait' }),
    ];
    const first = await scene.startWorker({ ...changedHost, programs: before });
    const names = ['moved', 'more', 'waits'] as const;
    const [moved, more, waits] = await Promise.all(names.map((name) => own(scene, name, name, CHANGED)));
    const { body } = await use(scene.testHost, waits!.endpoint, 'POST', '/sessions');
    await Promise.all(names.map(terminate));
    await first.stop();
    const second = await scene.startWorker({ ...changedHost, programs: after });

    const [nextMoved, nextWaits] = await Promise.all([
      own(scene, 'moved', 'moved', CHANGED),
      own(scene, 'waits', 'waits', CHANGED),
      scene.own('more', 'more', {}, CHANGED),
    ]);
    expect(nextMoved.placement.control?.recovery).toMatchObject({ scope: 'own-server', reason: 'record-other-home' });
    expect(await recovered('more')).toMatchObject({ scope: 'own-server', reason: 'capability-missing' });
    await onlyLives('moved', nextMoved, moved!);
    expect(order('moved', second)).toEqual(['proven', 'started']);
    const status = await scene.status('more', 'runs again', ({ placement }) => placement !== undefined);
    expect(status.placement!.unit).not.toBe(more!.placement.unit);
    expect(await scene.living('more')).toEqual([status.placement!.unit]);
    expect(order('more', second)).toEqual(['proven', 'started']);

    expect(nextWaits.placement.control?.recovery).toMatchObject({ scope: 'own-server', reason: 'record-other-home' });
    await onlyLives('waits', nextWaits, waits!);
    // By its own timer, and by nobody's signal.
    expect(await readFile(join(homes[0], `${String(body.session)}.log`), 'utf8')).toMatch(
      /ends, the server ends: lease\n$/,
    );
    await Promise.all(names.map((name) => scene.client.handle(scene.resource(name)).stop()));
  });

  /** Owns a server that the test plays itself. */
  async function play(program: string): Promise<{ readonly handle: OwnerHandle; readonly played: PlayedServer }> {
    const { handle } = await scene.own(program, program);
    const { placement } = await scene.status(program, 'is placed', (status) => status.placement !== undefined);
    return { handle, played: await PlayedServer.open(scene.testHost, placement!) };
  }

  /** In ms, from the next renewal to the n-th after it. */
  async function renewals(played: PlayedServer, n: number): Promise<number> {
    const next = played.renewals.length + 1;
    return -(await played.renewal(next)) + (await played.renewal(next + n));
  }

  it('is renewed for the lease that it reports, also as that changes, and for the shortest where it reports none (G7)', async () => {
    const { handle, played } = await play('played');
    try {
      played.leaseMs = 3000; // configured: 30 s, renewed every ten
      await handle.ready();
      expect(await renewals(played, 3)).toBeLessThan(10_000);
      played.leaseMs = 0;
      expect(await renewals(played, 3)).toBeLessThan(10_000);
      expect(await handle.status()).toMatchObject({ state: 'running', control: { available: true } });
    } finally {
      played.close();
    }
    expect(await handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it('is renewed no more often than its lease asks where that is longer than configured (G7)', async () => {
    const { handle, played } = await play('played-short');
    try {
      played.leaseMs = 9000; // configured: 3 s, renewed every second
      await handle.ready();
      await renewals(played, 1); // the first ones are to tell that it answers
      expect(await renewals(played, 1)).toBeGreaterThan(2900);
    } finally {
      played.close();
    }
    await handle.stop();
  });

  it('that hangs after its adoption turns unavailable and ends with its lease, before another one starts (G2, G7, G8)', async () => {
    const former = await own(scene, 'hangs', 'hangs');
    await terminate('hangs');
    const hanging = await own(scene, 'hangs', 'hangs');
    expect(hanging.self).toEqual(former.self);
    use(scene.testHost, hanging.endpoint, 'POST', '/hang').catch(() => undefined); // no answer, ever
    const seen = await server('hangs', 'is not available', ({ available }) => !available);
    expect(seen).toMatchObject({ state: 'running', placement: { unit: hanging.placement.unit } });

    const next = await server('hangs', 'serves again', ({ available }) => available);
    expect(next).toMatchObject({ state: 'running', restarts: 1, lastExit: { wording: 'unowned', kind: 'unowned' } });
    await onlyLives('hangs', await serving(scene, hanging.handle), hanging);
    await hanging.handle.stop();
  });

  it('that hangs when its next owner comes is stopped until proven before another one starts (G2, G3)', async () => {
    const former = await own(scene, 'stuck', 'stuck');
    use(scene.testHost, former.endpoint, 'POST', '/hang').catch(() => undefined);
    await terminate('stuck');
    const next = await own(scene, 'stuck', 'stuck');
    expect(next.placement.control?.recovery).toMatchObject({
      adopted: false,
      scope: 'own-server',
      reason: 'timeout',
      contactedAt: expect.any(Number) as number,
    });
    await onlyLives('stuck', next, former);
    // The host may prove by itself what its stop then proves as well.
    expect(order('stuck').slice(-2)).toEqual(['proven', 'started']);
    await next.handle.stop();
  });

  it('that ends unasked is unavailable at once, until its restart policy brings the next (G7)', async () => {
    const { handle, placement } = await own(scene, 'again', 'again');
    await kill(placement.unit);
    await server('again', 'is not available', ({ available }) => !available); // how soon: npm run bench
    const between = await scene.status('again', 'backs off', ({ state }) => state === 'backing-off');
    expect(between.control).toMatchObject({ available: false });
    await expect(handle.endpoint()).rejects.toBeInstanceOf(NoEndpointError);
    const again = await server('again', 'serves again', ({ available }) => available);
    expect(again).toMatchObject({ restarts: 1, lastExit: { wording: 'signal 9' } });
    await handle.stop();
  });

  it('that takes somebody else for its owner is shown as lost and renewed no more, until somebody asks for another (G1, G7)', async () => {
    const lost = await own(scene, 'lost', 'six');
    const other = { ownerId: 'somebody-else', epoch: lost.owner.epoch + 1 };
    expect((await use(scene.testHost, lost.endpoint, 'POST', '/v1/adopt', undefined, other)).status).toBe(200);
    const status = await scene.status('lost', 'is lost', ({ state }) => state === 'ownership-lost');
    expect(status).toMatchObject({ placement: { unit: lost.placement.unit }, control: { available: false } });
    expect(status.lastEvent).toMatch(/stale-epoch/);
    expect(await lost.handle.endpoint()).toMatchObject({ available: false });
    expect(await scene.mainPid(lost.placement.unit)).toBe(lost.self.pid); // and not stopped

    await lost.handle.restart();
    await server('lost', 'serves again', ({ available }) => available);
    await onlyLives('lost', await serving(scene, lost.handle), lost);
    await lost.handle.stop();
  });

  it('that is healthy late gets a warning, is available once it answers, and survives its owner then (G4, G6)', async () => {
    const { handle } = await scene.own('late', 'late');
    const warned = await server('late', 'has a warning', ({ warnings }) => warnings.length > 0);
    expect(warned).toMatchObject({ state: 'starting', ready: false, control: { available: false } });
    expect(warned.control!.warnings).toEqual([expect.stringMatching(/^the server is not healthy: .* for 300 ms$/)]);
    const first = await serving(scene, handle);
    expect((await handle.status()).control).toMatchObject({ available: true, warnings: warned.control!.warnings });

    await terminate('late');
    const next = await own(scene, 'late', 'late');
    expect(next.placement.control?.recovery).toMatchObject({ adopted: true });
    expect(next.self).toEqual(first.self);
    await next.handle.stop();
  });

  it('that has to be healthy in time is stopped when it is not (G3)', async () => {
    const { handle } = await scene.own('required', 'required');
    await expect(handle.ready()).rejects.toThrow(/is not ready: /);
    expect(await handle.result()).toMatchObject({ end: 'exited', proof: { by: 'empty' } });
    expect(await scene.living('required')).toEqual([]);
  });

  it('whose record can’t be written runs on with a warning, and is found by its unit before another starts (G2)', async () => {
    const { handle } = await scene.own('unrecorded', 'unrecorded');
    const placed = await scene.status('unrecorded', 'is placed', ({ placement }) => placement !== undefined);
    const { credentialFile } = placed.placement!.control!;
    await mkdir(join(scene.testHost.root, dirname(credentialFile), 'control.json'));
    const first = await serving(scene, handle);
    const { control: told } = await handle.status();
    expect(told).toMatchObject({ available: true });
    expect(told!.warnings).toEqual([expect.stringMatching(/^its endpoint could not be recorded: .*EISDIR/)]);

    await terminate('unrecorded');
    const next = await own(scene, 'unrecorded', 'unrecorded');
    expect(next.placement.control?.recovery).toMatchObject({ scope: 'own-server', reason: 'record-unreadable' });
    await onlyLives('unrecorded', next, first);
    expect(order('unrecorded').slice(-2)).toEqual(['proven', 'started']);
    await next.handle.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(10);
  });
});
