import { hostWorkflowId } from '../../src/contract/names';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { bootPrivateHost, canBootPrivateHosts, type PrivateHost } from '../support/test-host';

/** Two machines are needed: an ordinary user has only one manager. */
const describeWithMachines = canBootPrivateHosts ? describe : describe.skip;

describeWithMachines('two machines', () => {
  let scene: Scene;
  let second: PrivateHost;

  beforeAll(async () => {
    second = await bootPrivateHost();
    scene = await Scene.open([script('sleeper', 'exec sleep 1000', { leaseMs: 30_000 })], {
      workers: [{ run: ['workflows'] }],
    });
  });
  afterAll(async () => {
    await scene?.end();
    await second?.end();
  });

  const run = ['host'] as const;

  it('can’t have one host id: the second is refused, and is told who has it (G2)', async () => {
    const first = await scene.startWorker({ run });
    await expect(scene.startWorker({ run, testHost: second })).rejects.toMatchObject({
      name: 'ClaimedError',
      message: expect.stringMatching(
        /host id ".*" is taken: workflow host:.* says instance .*\. Give this host another host\.id/,
      ),
    });
    await first.stop();
  });

  it('that share a host id against the claim don’t speak for each other: absence elsewhere proves nothing (G3, G4)', async () => {
    const first = await scene.startWorker({ run });
    const { handle } = await scene.own('shared', 'sleeper');
    const { unit } = await handle.ready();
    const pid = await scene.mainPid(unit);
    await first.stop();
    await scene.server.client.workflow.getHandle(hostWorkflowId(scene.hostId())).terminate('for the test');

    const impostor = await scene.startWorker({ run, testHost: second });
    await handle.requestStop();
    // The second machine has taken the request and has nothing of this resource; that proves nothing.
    await scene.status('shared', 'is told so', ({ lastEvent }) => lastEvent.includes('two hosts go by one id'));
    expect((await handle.status()).state).toBe('stopping');
    expect(await scene.mainPid(unit)).toBe(pid);
    await impostor.stop();

    await scene.server.client.workflow.getHandle(hostWorkflowId(scene.hostId())).terminate('for the test');
    const back = await scene.startWorker({ run });
    expect(await handle.result()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
    expect(await scene.mainPid(unit)).toBe(0);
    await back.stop();
  });

  it('can’t serve one prefix for two task queues: the second is refused with what to do (G11)', async () => {
    const first = await scene.startWorker({ run });
    const stateDirectory = `${scene.testHost.stateDirectory}/other`;
    await expect(
      scene.startWorker({ run, hostId: 'other', taskQueue: `${scene.server.taskQueue}-other`, stateDirectory }),
    ).rejects.toMatchObject({
      name: 'ClaimedError',
      message: expect.stringMatching(
        /unit prefix "own" is taken on this host: .* Give this worker another systemd\.unitPrefix/s,
      ),
    });
    await expect(scene.startWorker({ run, taskQueue: `${scene.server.taskQueue}-other` })).rejects.toMatchObject({
      name: 'ClaimedError',
      message: expect.stringContaining('host.stateDirectory'),
    });
    await first.stop();
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBe(1);
  });
});
