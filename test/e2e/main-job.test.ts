import { openTemporalServer, type TemporalServer } from '../support/temporal-server';
import { openTestHost, type TestHost } from '../support/test-host';
import { script } from '../support/owned-host';
import { hostIdOf, startWorker, type RunningWorker } from '../support/running-worker';

describe('owning a resource, end to end', () => {
  let server: TemporalServer;
  let testHost: TestHost;
  let worker: RunningWorker;

  beforeAll(async () => {
    [server, testHost] = await Promise.all([openTemporalServer(), openTestHost()]);
    worker = await startWorker({ server, testHost, programs: [script('sleeper', 'exec sleep 1000')] });
  });
  afterAll(async () => {
    await worker?.stop();
    await testHost?.end();
    await server?.stop();
  });

  it('owns a process, says that it is ready, and stops it until it is proven dead (G1, G3)', async () => {
    const { handle, outcome } = await worker.client.own({
      resource: 'db/one',
      program: 'sleeper',
      host: hostIdOf({ server }),
    });
    expect(outcome).toBe('started');
    const placement = await handle.ready();
    expect((await testHost.systemctl('is-active', placement.unit)).trim()).toBe('active');

    const result = await handle.stop({ reason: 'the test is over' });
    expect(result).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' }, proof: { by: 'empty' } });
    await expect(testHost.systemctl('is-active', placement.unit)).rejects.toThrow();
  });
});
