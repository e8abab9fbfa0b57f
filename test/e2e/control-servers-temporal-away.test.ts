import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { own, sessionServer, serving, use } from '../support/control-servers';
import { Scene } from '../support/scene';
import { openOwnTemporalServer, type OwnTemporalServer } from '../support/temporal-server';
import { openTestHost } from '../support/test-host';

describe('a control server, while Temporal is away', () => {
  let server: OwnTemporalServer;
  let scene: Scene;

  beforeAll(async () => {
    const testHost = await openTestHost();
    const home = join(testHost.stateDirectory, 'sessions');
    await mkdir(home, { recursive: true });
    server = await openOwnTemporalServer();
    scene = await Scene.open([sessionServer('sessions', home, {}, { lease: { leaseMs: 15_000 } })], {
      server,
      testHost,
    });
  });
  afterAll(() => scene?.end());

  it('goes on with its work; its owner holds it on afterwards, and the next one adopts it (G2, G4, G6)', async () => {
    const first = await own(scene, 'away', 'sessions');
    await use(scene.testHost, first.endpoint, 'POST', '/sessions');
    await scene.status('away', 'is held', ({ live }) => live !== undefined);
    await server.shutDown('SIGKILL');
    const { body } = await use(scene.testHost, first.endpoint, 'GET', '/sessions');
    expect(body).toMatchObject(first.self);
    await server.startAgain();

    const since = Date.now();
    await scene.status('away', 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    expect(await serving(scene, first.handle)).toEqual(first);

    await scene.workflow('away').terminate('its owner is gone');
    const next = await own(scene, 'away', 'sessions');
    expect(next.self).toEqual(first.self);
    expect(next.credential).not.toBe(first.credential);
    expect(next.placement.control?.recovery).toMatchObject({ adopted: true });
    expect((await use(scene.testHost, next.endpoint, 'GET', '/sessions')).body.sessions).toHaveLength(1);
    expect(await next.handle.stop()).toMatchObject({ end: 'stopped' });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(2);
  });
});
