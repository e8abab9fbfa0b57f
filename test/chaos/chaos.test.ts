import { runCampaign } from './campaign';
import { describeOnPrivateHost } from '../support/host-suite';

const MINUTES = 2;

describeOnPrivateHost('thirty resources, through two minutes of every fault there is', () => {
  // Beside the campaign itself: the start of everything, and the end of thirty owners on a machine that is busy.
  const timeoutMs = MINUTES * 60_000 + 8 * 60_000;

  it(
    'have one writer at a time, are let go of after proof alone, live no longer than their leases, and leave nothing (G2, G3, G5, G7)',
    async () => {
      const { report, generations, proofs } = await runCampaign({ seed: 6, forMs: MINUTES * 60_000, resources: 30 });
      expect(report).toBe('');
      // Else it was no test. A machine that is busy with other things comes to a few dozen.
      expect(generations).toBeGreaterThan(10);
      expect(proofs).toBeGreaterThan(10);
    },
    timeoutMs,
  );
});
