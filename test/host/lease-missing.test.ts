import { join } from 'node:path';
import { readPopulated } from '../../src/cgroup/cgroup';
import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { script } from '../support/owned-host';

const leaseMs = 3000;
const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs });
/** Its main process ends well at once, and leaves a child in a session of its own. */
const parent = script('parent', 'setsid sleep 9999 & exit 0', { leaseMs });

describeOnPrivateHost('a lease timer that other hands have stopped, with no owner to see to it', () => {
  const suite = new HostSuite();

  const stopTimer = ({ unit }: Placement): Promise<string> =>
    suite.machine.systemctl('stop', leaseUnits(unit, 1).timer);

  /** The processes of a unit, as the kernel has them. */
  const populated = async ({ slice, unit }: Placement): Promise<boolean> => {
    const cgroup = join(suite.machine.cgroupRoot, 'own.slice', slice, unit);
    return (await readPopulated(cgroup)).kind === 'populated';
  };

  it('still ends the child of a main process that has ended (G7)', async () => {
    const worker = await suite.worker([parent], { resyncMs: 200 });
    const placement = await worker.runToEnd(suite.resource(), 'parent');
    expect(await worker.unit(placement.unit, 'ActiveState', 'SubState')).toEqual({
      ActiveState: 'active',
      SubState: 'exited',
    });
    await stopTimer(placement);
    expect(await populated(placement)).toBe(true);
    await eventually(async () => !(await populated(placement)));
  });

  it('still ends what other hands have restarted (G7)', async () => {
    const worker = await suite.worker([sleeper], { resyncMs: 200 });
    const placement = await worker.start(suite.resource(), 'sleeper');
    await suite.machine.systemctl('daemon-reload'); // which forgets that it was started once already
    await suite.machine.systemctl('restart', placement.unit);
    await stopTimer(placement);
    expect(await populated(placement)).toBe(true);
    await eventually(async () => !(await populated(placement)));
  });
});
