import { escapeResource } from '../../src/contract/names';
import { Cut, type Manner } from '../support/cut';
import { describeOnPrivateHost, HostSuite } from '../support/host-suite';
import { owner, startInput } from '../support/owned-host';
import { loner, overlaps, livingUnits, startAsOwner } from '../support/unit-processes';

describeOnPrivateHost('a start or a stop that is cut off', () => {
  const suite = new HostSuite();
  let cut: Cut;
  beforeAll(() => (cut = new Cut()));
  afterEach(() => cut.heal());
  afterAll(() => cut.end());

  const directory = (resource: string): string => `${suite.machine.runDirectory}/own/${escapeResource(resource)}`;

  it.each<Manner>(['dead before', 'dead after', 'fails'])(
    'at any step of a start leaves one process or none, and the next start runs: %s (G2, G5)',
    async (manner) => {
      const programs = [loner(suite.machine)];
      const successor = await suite.worker(programs);
      let cuts = 0;
      for (let finished = false; !finished; cuts++) {
        const resource = suite.resource();
        const generation = Date.now();
        const victim = await suite.worker(programs, {}, cut.systemd);
        const start = (): Promise<unknown> => victim.host.start(startInput(resource, 'loner', { generation }));
        await cut.during(directory(resource), cuts + 1, manner, start).catch(() => undefined);
        finished = cut.steps <= cuts;
        if (manner === 'fails') cut.heal();
        await suite.end(victim);
        cut.heal();
        expect((await livingUnits(suite.machine, resource)).length).toBeLessThanOrEqual(1);

        const placement = await startAsOwner(successor.host, resource, 'loner', generation + 1);
        expect(await livingUnits(suite.machine, resource)).toHaveLength(1);
        // The former number is used up, whatever came of it.
        const again = await successor.host.start(startInput(resource, 'loner', { generation }));
        expect(['adopted', 'outdated']).toContain(again.kind);
        expect(await livingUnits(suite.machine, resource)).toHaveLength(1);
        await successor.stopUntilProven(resource, placement);
        expect(await livingUnits(suite.machine, resource)).toEqual([]);
      }
      expect(cuts).toBeGreaterThan(20);
      expect(await overlaps(suite.machine)).toBe('');
    },
  );

  it.each<Manner>(['dead before', 'dead after', 'fails'])(
    'at any step of a stop says nothing that is not so, and the next stop completes with proof: %s (G3)',
    async (manner) => {
      const programs = [loner(suite.machine)];
      const successor = await suite.worker(programs);
      let cuts = 0;
      for (let finished = false; !finished; cuts++) {
        const resource = suite.resource();
        const victim = await suite.worker(programs, {}, cut.systemd);
        const placement = await victim.start(resource, 'loner');
        const stop = async (): Promise<boolean> => Boolean(await victim.stop(resource, placement));
        const proven = await cut.during(directory(resource), cuts + 1, manner, stop).catch(() => false);
        if (proven) expect(await livingUnits(suite.machine, resource)).toEqual([]);
        finished = cut.steps <= cuts;
        if (manner === 'fails') cut.heal();
        await suite.end(victim);
        cut.heal();
        const { proof } = await successor.stopUntilProven(resource, placement);
        expect(proof).toMatchObject({ by: 'empty', generation: placement.generation });
        expect(await livingUnits(suite.machine, resource)).toEqual([]);
        const late = await successor.host.start(startInput(resource, 'loner', { generation: placement.generation }));
        expect(late.kind).toBe('outdated');
        await successor.host.stop({ resource, owner, rung: 'stop', generation: placement.generation });
      }
      expect(cuts).toBeGreaterThan(10);
    },
  );
});
