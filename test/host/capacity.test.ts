import { Capacity } from '../../src/host/capacity';
import { SystemdError } from '../../src/systemd/port';
import { describeOnPrivateHost, HostSuite, type SuiteHost } from '../support/host-suite';
import { placementOf, script, startInput } from '../support/owned-host';

describe('the room of a host', () => {
  it('is had by each resource once, and given back', () => {
    const capacity = new Capacity({ units: 2 });
    expect([capacity.take('a'), capacity.take('b'), capacity.take('a')]).toEqual([undefined, undefined, undefined]);
    expect(capacity.take('c')).toBe('the host is full: 2 of 2 units');
    expect(capacity.load).toEqual({ units: 2, memoryBytes: 0 });
    capacity.free('a');
    expect(capacity.take('c')).toBeUndefined();
    expect([...capacity.resources].sort()).toEqual(['b', 'c']);
  });

  it('is shared out by memory as well', () => {
    const capacity = new Capacity({ memoryBytes: 100 });
    expect(capacity.take('a', 60)).toBeUndefined();
    expect(capacity.take('b', 41)).toMatch(/60 of 100 bytes of memory are given away, and 41 are asked for/);
    expect(capacity.take('a', 100)).toBeUndefined(); // its own former share is no obstacle
    expect(capacity.load).toEqual({ units: 1, memoryBytes: 100 });
  });

  it('is never too little for what runs already', () => {
    const capacity = new Capacity({ units: 1 });
    capacity.keep('a', 5);
    capacity.keep('b', 6);
    expect(capacity.load).toEqual({ units: 2, memoryBytes: 11 });
    expect(capacity.take('c')).toBe('the host is full: 2 of 1 units');
  });

  it('is for those alone who have been there before while the host is drained', () => {
    const capacity = new Capacity();
    capacity.draining = 'a new kernel';
    expect(capacity.take('a')).toBe('the host is being drained: a new kernel');
    expect(capacity.take('a', 0, true)).toBeUndefined();
  });
});

describeOnPrivateHost('a host with room for two', () => {
  const suite = new HostSuite();
  const MEMORY = 32 * 1024 * 1024;
  const programs = [script('sleeper', 'exec sleep 1000', { limits: { memoryBytes: MEMORY } }), script('none', ':')];
  const open = (): Promise<SuiteHost> => suite.worker(programs, { capacity: { units: 2, memoryBytes: 2 * MEMORY } });

  it('starts two, refuses a third without a trace, and takes it on once one of them is proven dead (G3)', async () => {
    const worker = await open();
    const resources = [suite.resource(), suite.resource(), suite.resource()];
    const start = (n: number): ReturnType<typeof worker.host.start> =>
      worker.host.start(startInput(resources[n]!, 'sleeper'));
    const [one, two] = [placementOf(await start(0)), placementOf(await start(1))];
    expect(await start(2)).toMatchObject({ kind: 'full', reason: 'the host is full: 2 of 2 units' });
    expect(await suite.loaded(resources[2]!)).toEqual([]);
    expect(await suite.filesOf(resources[2]!).generations()).toEqual([]);
    expect(worker.host.context.capacity.load).toEqual({ units: 2, memoryBytes: 2 * MEMORY });

    await worker.stopUntilProven(resources[0]!, one);
    const three = placementOf(await start(2));
    await worker.stopUntilProven(resources[1]!, two);
    await worker.stopUntilProven(resources[2]!, three);
    expect(worker.host.context.capacity.load).toEqual({ units: 0, memoryBytes: 0 });
  });

  it('knows after a restart of its worker what it has taken on', async () => {
    const worker = await open();
    const [one, two] = [suite.resource(), suite.resource()];
    const placements = [await worker.start(one, 'sleeper'), await worker.start(two, 'sleeper')];
    await suite.end(worker);
    const next = await open();
    expect(next.host.context.capacity.load).toEqual({ units: 2, memoryBytes: 2 * MEMORY });
    expect(await next.host.start(startInput(suite.resource(), 'sleeper'))).toMatchObject({ kind: 'full' });
    await next.stopUntilProven(one, placements[0]!);
    await next.stopUntilProven(two, placements[1]!);
  });

  it('has its room back from a start that systemd refused', async () => {
    const worker = await suite.worker([script('sleeper', ':')], {}, (inner) => ({
      startTransientUnit: (unit, auxiliary) =>
        unit.name.endsWith('.slice')
          ? inner.startTransientUnit(unit, auxiliary)
          : Promise.reject(new SystemdError('busy', 'another job is queued')),
    }));
    expect(await worker.host.start(startInput(suite.resource(), 'sleeper'))).toMatchObject({ kind: 'blocked' });
    expect(worker.host.context.capacity.load.units).toBe(0);
  });
});
