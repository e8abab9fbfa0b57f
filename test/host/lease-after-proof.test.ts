import { readdir } from 'node:fs/promises';
import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs: 3000 });

/** A gate that somebody comes to, and that is opened later. */
function gate(): { readonly pass: () => Promise<void>; readonly reached: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  let reach = (): void => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  const reached = new Promise<void>((resolve) => (reach = resolve));
  return { pass: () => (reach(), opened), reached, open };
}

describeOnPrivateHost('a renewal that is late for the proof', () => {
  const suite = new HostSuite();

  /** What is kept of a generation is its end record; of its units, nothing. */
  async function nothingLeft(resource: string, { generation }: Placement): Promise<void> {
    const { outside } = suite.filesOf(resource).generation(generation);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    await eventually(async () => (await readdir(outside)).join() === 'end.json');
  }

  /** Has another lease renewed from beginning to end: what was under way before it is over then. */
  async function renewAnother(worker: SuiteHost): Promise<void> {
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'another', 1);
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    await eventually(async () => (await lease.read())?.oldest === 2);
    await worker.stopUntilProven(resource, placement);
  }

  it('by the owner’s answer arms and writes nothing any more', async () => {
    const worker = await suite.worker([sleeper]);
    const { pass, reached, open } = gate();
    worker.link.onTheWay = pass;
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await reached; // the process was seen alive, and its owner is asked
    await worker.stopUntilProven(resource, placement);
    await nothingLeft(resource, placement);

    open();
    await renewAnother(worker);
    await nothingLeft(resource, placement);
  });

  it('by systemd’s answer is waited for before anything is let go of', async () => {
    const { pass, reached, open } = gate();
    let second = '';
    const worker = await suite.worker([sleeper], {}, (inner) => ({
      startTransientUnit: async (unit, auxiliary) => {
        if (unit.name === second) await pass();
        return inner.startTransientUnit(unit, auxiliary);
      },
    }));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    second = leaseUnits(placement.unit, 2).timer;
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await reached;
    await worker.stopUntilProven(resource, placement);
    await renewAnother(worker); // time enough for letting go too soon

    open();
    await renewAnother(worker);
    await nothingLeft(resource, placement);
  });
});
