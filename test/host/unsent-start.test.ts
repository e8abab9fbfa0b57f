import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { placementOf, script, startInput } from '../support/owned-host';

const sleeper = script('sleeper', 'exec sleep 9999');

describeOnPrivateHost('the next worker process', () => {
  const suite = new HostSuite();

  it('lets go of what is left of a start that the one before it had no time to send (G5)', async () => {
    const first = await suite.worker([sleeper]);
    const resource = suite.resource();
    const generation = Date.now();
    await suite.end(first);
    // What a SIGKILL leaves in the middle of the writing.
    const { outside } = suite.filesOf(resource).generation(generation);
    await mkdir(join(outside, 'exit'), { recursive: true });
    await writeFile(join(outside, 'launch.json.145.9323.6.tmp'), '{"version"');

    const next = await suite.worker([sleeper]);
    await eventually(async () => (await suite.filesOf(resource).generations()).length === 0);
    // That start is closed: should anybody still be about to send it, nothing comes of it.
    expect(await next.host.start(startInput(resource, 'sleeper', { generation }))).toMatchObject({ kind: 'outdated' });
    const placement = placementOf(
      await next.host.start(startInput(resource, 'sleeper', { generation: generation + 1 })),
    );
    await next.stopUntilProven(resource, placement);
  });

  it('leaves a process alone whose lease file was lost (G2, G4)', async () => {
    const first = await suite.worker([sleeper]);
    const [resource, other] = [suite.resource(), suite.resource()];
    const placement = await first.start(resource, 'sleeper');
    await suite.end(first);
    const files = suite.filesOf(resource).generation(placement.generation);
    await files.lease.remove();
    const left = await readdir(files.outside);
    await mkdir(suite.filesOf(other).generation(1).outside, { recursive: true });

    const next = await suite.worker([sleeper]);
    // The other one, which comes later, has been seen to.
    await eventually(async () => (await suite.filesOf(other).generations()).length === 0);
    await suite.end(next);
    expect(await suite.machine.systemctl('is-active', placement.unit)).toBe('active\n');
    expect(await readdir(files.outside)).toEqual(left.filter((name) => name !== 'open'));
    const third = await suite.worker([sleeper]);
    await third.stopUntilProven(resource, placement);
  });
});
