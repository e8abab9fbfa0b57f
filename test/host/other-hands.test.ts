import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs: 3000 });

describeOnPrivateHost('a unit on which other hands are', () => {
  const suite = new HostSuite();
  const identity = (unit: string): Promise<string> =>
    suite.machine.systemctl('show', '--property=MainPID,InvocationID,ActiveState', unit);

  /** A held process under other hands, beside another resource of the same worker and a stranger of a similar name. */
  async function scene(worker: SuiteHost): Promise<{
    readonly resource: string;
    readonly placement: Placement;
    readonly neighboursAreUntouched: () => Promise<void>;
  }> {
    const [resource, neighbour] = [suite.resource(), suite.resource()];
    const [placement, beside] = [await worker.start(resource, 'sleeper'), await worker.start(neighbour, 'sleeper')];
    await worker.host.hold(holdInput(neighbour, beside), 'neighbour', 1);
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const stranger = placement.unit.replace('own-', 'owner-');
    await suite.machine.run(['systemd-run', `--unit=${stranger}`, 'sleep', '9999']);
    const before = await Promise.all([beside.unit, stranger].map(identity));
    return {
      resource,
      placement,
      neighboursAreUntouched: async () => {
        await worker.link.heardFrom('neighbour'); // its lease goes on
        expect(await Promise.all([beside.unit, stranger].map(identity))).toEqual(before);
        expect(worker.link.events.filter(({ token }) => token === 'neighbour')).toEqual([]);
        await suite.machine.systemctl('stop', stranger);
      },
    };
  }

  const said = (worker: SuiteHost, what: string): number =>
    worker.lines.filter(({ message, attributes }) => message === 'other hands' && attributes.what === what).length;

  it('frozen keeps its lease, says so once, thaws, and is held on (G4, G7, G11)', async () => {
    const worker = await suite.worker([sleeper]);
    const { resource, placement, neighboursAreUntouched } = await scene(worker);
    const before = await identity(placement.unit);
    await suite.machine.systemctl('freeze', placement.unit);
    expect((await worker.link.event('noticed')).what).toBe('frozen by other hands');
    await worker.host.hold(holdInput(resource, placement), 'again', 2);
    await worker.link.heardFrom('again');
    await worker.link.heardFrom('again');
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const renewed = (await lease.read())!.n;
    await eventually(async () => (await lease.read())!.n > renewed);
    expect(said(worker, 'frozen by other hands')).toBe(1);
    await suite.machine.systemctl('thaw', placement.unit);
    await eventually(async () => said(worker, 'no longer: frozen by other hands') === 1);
    expect(await identity(placement.unit)).toBe(before);
    await neighboursAreUntouched();
    await worker.stopUntilProven(resource, placement);
  });

  it('stopped: its owner hears by whom, and it is proven dead (G3)', async () => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.machine.systemctl('stop', placement.unit);
    expect((await worker.link.event('ended')).reason).toContain('stopped by other hands');
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
  });

  it('whose main process was moved out of its cgroup says so and is not called dead (G4, G11)', async () => {
    const worker = await suite.worker([sleeper]);
    const { resource, placement, neighboursAreUntouched } = await scene(worker);
    const pid = (await suite.machine.systemctl('show', '--value', '--property=MainPID', placement.unit)).trim();
    await suite.machine.run([
      'sh',
      '-c',
      `mkdir -p /sys/fs/cgroup/away && echo ${pid} > /sys/fs/cgroup/away/cgroup.procs`,
    ]);
    expect((await worker.link.event('noticed')).what).toBe('its main process was moved out of its cgroup');
    expect(worker.link.events.filter(({ event }) => event.kind === 'ended' || event.kind === 'proven')).toEqual([]);
    expect(said(worker, 'its main process was moved out of its cgroup')).toBe(1);
    await neighboursAreUntouched();
    await worker.stopUntilProven(resource, placement);
    expect((await suite.machine.run(['cat', `/proc/${pid}/cgroup`])).code).not.toBe(0);
  });

  it('whose lease timer was stopped has another one, and its owner hears of it (G7)', async () => {
    const worker = await suite.worker([{ ...sleeper, leaseMs: 60_000 }], { resyncMs: 200 });
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.machine.systemctl('stop', leaseUnits(placement.unit, 1).timer);
    expect((await worker.link.event('noticed')).what).toBe('its lease timer was gone; armed again');
    expect(await suite.timers(placement)).toEqual([leaseUnits(placement.unit, 2).timer]);
    await worker.stopUntilProven(resource, placement);
  });
});
