import type { Program } from '../../src/config';
import { ProgramRefusedError } from '../../src/host/host';
import { describeOnPrivateHost, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script, startInput } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 1000');
const other = script('sleeper', 'exec sleep 2000', { environment: { MORE: '1' } });

describeOnPrivateHost('programs that are read again', () => {
  const suite = new HostSuite();

  const reload = ({ host }: SuiteHost, ...programs: readonly Program[]): boolean =>
    host.reload(Object.fromEntries(programs.map((program) => [program.name, program])));

  it('change nothing that runs, and its owner is told once; a start takes the new ones (G10)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement, { programState: 'current' }), 'one', Date.now());

    reload(worker, other);
    expect(await worker.link.event('program')).toEqual({ kind: 'program', state: 'changed' });
    expect(await worker.unit(placement.unit, 'ActiveState', 'InvocationID')).toEqual({
      ActiveState: 'active',
      InvocationID: placement.invocation,
    });

    // The owner holds again, and knows it by now: what comes next is news.
    await worker.host.hold(holdInput(resource, placement, { programState: 'changed' }), 'two', Date.now());
    reload(worker, sleeper);
    await worker.link.told(2);
    expect(worker.link.events.map(({ event }) => event)).toEqual([
      { kind: 'program', state: 'changed' },
      { kind: 'program', state: 'current' },
    ]);

    reload(worker, other);
    await worker.stopUntilProven(resource, placement);
    const next = await worker.start(resource, 'sleeper');
    expect((await suite.filesOf(resource).generation(next.generation).launch.read())?.command.at(-1)).toBe(
      'exec sleep 2000',
    );
    await worker.stopUntilProven(resource, next);
  });

  it('that were changed while no worker was there are told by the next one', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement, { programState: 'current' }), 'one', Date.now());
    await suite.end(worker);

    const next = await suite.worker([other]);
    expect(await next.link.event('program')).toEqual({ kind: 'program', state: 'changed' });
    await next.stopUntilProven(resource, placement);
  });

  it('that are gone are told as that, start nothing more, and blind no stop (G3, G10)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement, { programState: 'current' }), 'one', Date.now());
    reload(worker);
    expect(await worker.link.event('program')).toEqual({ kind: 'program', state: 'removed' });
    await expect(worker.host.start(startInput(suite.resource(), 'sleeper'))).rejects.toBeInstanceOf(
      ProgramRefusedError,
    );
    expect(await worker.stopUntilProven(resource, placement)).toMatchObject({ proof: { by: 'empty' } });
  });

  it('that say the same in another order have not changed, and an owner of before is told nothing', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    reload(worker, Object.fromEntries(Object.entries(sleeper).reverse()) as unknown as Program);
    expect(worker.lines.filter(({ message }) => message === 'programs changed')).toEqual([]);

    await worker.host.hold(holdInput(resource, placement), 'one', Date.now());
    reload(worker, other);
    // Of the same wake-up, and after the word on the program would have gone out.
    await suite.machine.systemctl('kill', '--signal=SIGKILL', placement.unit);
    expect((await worker.link.event('ended')).kind).toBe('ended');
    expect(worker.link.events).toHaveLength(1);
    await worker.stopUntilProven(resource, placement);
  });
});
