import { planOf } from '../chaos/plan';

const options = { seed: 7, forMs: 120_000, resources: 30 };

describe('the plan of a chaos campaign', () => {
  it('follows from its seed alone', () => {
    expect(planOf(options)).toEqual(planOf(options));
    expect(planOf({ ...options, seed: 8 })).not.toEqual(planOf(options));
  });

  it('has every kind of fault, of other hands and of requests within two minutes, whatever its seed', () => {
    for (let seed = 0; seed < 50; seed++) {
      const kinds = new Set(planOf({ ...options, seed }).steps.map(({ kind }) => kind));
      expect([...kinds].sort()).toEqual([
        'Temporal ended',
        'Temporal killed',
        'bus cut',
        'bus held',
        'bus restarted',
        'child moved out',
        'disk full',
        'disk read-only',
        'hold paused',
        'main moved out',
        'own',
        'prefix slice frozen',
        'reboot',
        'release',
        'reset',
        'restart',
        'slice frozen',
        'slice killed',
        'slice property set',
        'slice stopped',
        'stop',
        'stray in slice',
        'stray in unit',
        'systemd executed anew',
        'systemd paused',
        'systemd reloaded',
        'terminate',
        'timer stopped',
        'unit by hand',
        'unit failure reset',
        'unit frozen',
        'unit killed',
        'unit property set',
        'unit restarted',
        'unit stopped',
        'worker beside',
        'worker killed',
        'worker paused',
        'worker replaced',
      ]);
    }
  });

  it('owns every resource at its beginning, is in order, and breaks one thing of a lane at a time', () => {
    const { resources, steps } = planOf(options);
    const owned = steps
      .filter(({ at, kind }) => at < 3_000 && kind === 'own')
      .map((step) => 'resource' in step && step.resource);
    expect(owned).toEqual(resources.map(({ name }) => name));
    const until = { worker: 0, systemd: 0, Temporal: 0 };
    let last = 0;
    for (const step of steps) {
      expect(step.at).toBeGreaterThanOrEqual(last);
      last = step.at;
      if (step.what !== 'fault') continue;
      expect(step.at).toBeGreaterThan(until[step.lane]);
      until[step.lane] = step.at + ('forMs' in step ? step.forMs : 0);
      expect(until[step.lane]).toBeLessThanOrEqual(options.forMs);
    }
  });
});
