import { describeOnPrivateHost, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import type { Placement } from '../../src/contract/facts';

const sleeper = script('sleeper', 'exec sleep 1000');

describeOnPrivateHost('a process whose owner is gone', () => {
  const suite = new HostSuite();
  const open = (): Promise<SuiteHost> => suite.worker([sleeper], { resyncMs: 50 });

  /** Started and held, until its owner knows the hold no more. */
  async function left(worker: SuiteHost): Promise<{ resource: string; placement: Placement }> {
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    return { resource, placement };
  }

  /** Several more looks at everything. */
  async function looks(worker: SuiteHost): Promise<void> {
    const resyncs = (): number => worker.lines.filter(({ message }) => message === 'resync').length;
    const from = resyncs();
    while (resyncs() < from + 8) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  it('is given an owner that brings it to an end, with what it was started with (G1, G3)', async () => {
    const worker = await open();
    worker.link.owners = () => 'gone';
    const { resource, placement } = await left(worker);
    await worker.link.abandoned(1);
    expect(worker.link.broughtToEnd[0]).toEqual({
      resource,
      host: 'test-host',
      taskQueue: 'owners',
      program: 'sleeper',
      parameters: {},
      placement,
    });
    expect(await worker.unit(placement.unit, 'ActiveState')).toEqual({ ActiveState: 'active' }); // nothing but an owner stops it
    await worker.stopUntilProven(resource, placement);
  });

  it.each(['unknown', 'open', 'completed'] as const)(
    'is left to its lease where Temporal says %s of its owner (G4, G7)',
    async (owners) => {
      const worker = await open();
      worker.link.owners = () => owners;
      const { resource, placement } = await left(worker);
      await looks(worker);
      expect(worker.link.broughtToEnd).toEqual([]);
      await worker.stopUntilProven(resource, placement);
    },
  );

  it('is not asked about while its owner holds it', async () => {
    const worker = await open();
    const { resource, placement } = await left(worker);
    await worker.host.hold(holdInput(resource, placement), 'held', Date.now());
    worker.link.owners = () => 'gone';
    await looks(worker);
    expect(worker.link.broughtToEnd).toEqual([]);
    await worker.stopUntilProven(resource, placement);
  });

  it('is found by the next worker process as well (G5)', async () => {
    const worker = await open();
    const { resource, placement } = await left(worker);
    await suite.end(worker);
    const next = await open();
    next.link.owners = () => 'gone';
    await next.link.abandoned(1);
    expect(next.link.broughtToEnd[0]).toMatchObject({ resource, placement: { unit: placement.unit } });
    await next.stopUntilProven(resource, placement);
  });
});
