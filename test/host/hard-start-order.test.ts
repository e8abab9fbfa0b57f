import { describeOnPrivateHost, HostSuite } from '../support/host-suite';
import { startInput } from '../support/owned-host';
import { livingUnits, loner, overlaps } from '../support/unit-processes';

describeOnPrivateHost('a start that is overtaken', () => {
  const suite = new HostSuite();

  it('has closed the former attempt before it looks, so that nothing comes up behind its look (G2, G5)', async () => {
    const resource = suite.resource();
    const generation = Date.now();
    const programs = [loner(suite.machine)];
    let go = (): void => undefined;
    const going = new Promise<void>((resolve) => (go = resolve));
    let reached = (): void => undefined;
    const waiting = new Promise<void>((resolve) => (reached = resolve));
    const former = await suite.worker(programs, {}, (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        if (!unit.name.endsWith('.service')) return inner.startTransientUnit(unit, auxiliary);
        reached();
        await going;
        return inner.startTransientUnit(unit, auxiliary);
      },
    }));
    const early = former.host.start(startInput(resource, 'loner', { generation }));
    await waiting;

    let looked = false;
    const later = await suite.worker(programs, {}, (inner) => ({
      unitProperties: async (unit, names) => {
        const answer = await inner.unitProperties(unit, names);
        // The last reading of the look: the former attempt's call gets through right behind it.
        if (unit === 'own.slice' && names.includes('ControlGroupId') && looked) {
          looked = false;
          go();
          await early;
        }
        return answer;
      },
    }));
    looked = true;
    const answer = await later.host.start(startInput(resource, 'loner', { generation: generation + 1 }));
    expect(answer.kind).toBe('started');
    expect(await early).toMatchObject({ kind: 'blocked' });
    expect(await livingUnits(suite.machine, resource)).toHaveLength(1);
    expect(await overlaps(suite.machine)).toBe('');
  });
});
