import { script } from '../support/owned-host';
import { Scene } from '../support/scene';

/** What `systemctl` does to a unit behind its owner's back, as people see it. */
describe('an owner whose unit', () => {
  let scene: Scene;

  beforeAll(async () => {
    scene = await Scene.open([script('sleeper', 'exec sleep 1000', { leaseMs: 6000 })]);
  });
  afterAll(() => scene?.end());

  it('is frozen by other hands says so, holds on, and says when it is thawed (G4, G7)', async () => {
    const { handle } = await scene.own('frozen', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    await scene.testHost.systemctl('freeze', unit);
    await scene.status('frozen', 'says so', (s) => s.lastEvent === 'frozen by other hands' && s.state === 'running');
    await scene.testHost.systemctl('thaw', unit);
    await scene.status('frozen', 'says so', (s) => s.lastEvent === 'no longer: frozen by other hands');
    expect(await scene.mainPid(unit)).toBe(pid);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it.each(['stop', 'restart', 'kill'])('sees %s by other hands ends after proof (G3)', async (verb) => {
    const { handle } = await scene.own(`hit-by-${verb}`, 'sleeper');
    const { unit } = await handle.ready();
    await scene.testHost.systemctl(verb, unit).catch(() => 'refused');
    expect(await handle.result()).toMatchObject({ end: 'exited', proof: { by: 'empty' } });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(4);
  });
});
