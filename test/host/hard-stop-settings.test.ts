import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generationUnit } from '../../src/contract/names';
import type { Rung } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script, startInput } from '../support/owned-host';
import { processesOf } from '../support/unit-processes';

const stop = { signal: 'SIGTERM', timeoutMs: 300, killMode: 'control-group' } as const;
/** Those that send a signal which nobody can ignore, whatever the unit's settings say. */
const strong: readonly Rung[] = ['kill', 'cgroup-kill'];

// Without semicolons: after daemon-reload, systemd 252 reads a transient unit's `;` back as `\;`.
const deaf = script('deaf', 'trap "" TERM\nsleep 9999 &\nwhile :\ndo sleep 9999\ndone', { stop });
const parent = script('parent', `setsid sh -c 'trap "" TERM\nwhile :\ndo sleep 9999\ndone' &\nexec sleep 9999`, {
  stop,
});
describeOnPrivateHost('stopping a unit whose settings an administrator has changed', () => {
  const suite = new HostSuite();

  /** What `systemctl edit --runtime` does. */
  async function edit(unit: string, settings: string): Promise<void> {
    const folder = join(suite.machine.root, 'run/systemd/system', `${unit}.d`);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'override.conf'), `[Service]\n${settings}\n`);
    await suite.machine.systemctl('daemon-reload');
  }

  async function reads(worker: SuiteHost, { unit }: Placement, state: string): Promise<void> {
    await eventually(async () => (await worker.unit(unit, 'ActiveState'))?.ActiveState === state);
  }

  /** Nothing that systemd's own stop can do reaches what is left, and nobody takes that for an end. */
  async function staysStuck(worker: SuiteHost, resource: string, placement: Placement): Promise<void> {
    const left = await processesOf(suite.machine, resource);
    expect(left).not.toEqual([]);
    // Stopping what has failed is done at once, and does nothing.
    await suite.machine.systemctl('stop', placement.unit);
    for (const rung of ['stop', 'watch'] as const) {
      await expect(worker.stop(resource, placement, { rung })).rejects.toMatchObject({
        details: { reasons: ['cgroup: populated 1'], processes: expect.arrayContaining([expect.anything()]) },
      });
    }
    const next = startInput(resource, 'deaf', { generation: placement.generation + 1 });
    expect(await worker.host.start(next)).toMatchObject({ kind: 'stop-first' });
    expect(await processesOf(suite.machine, resource)).toEqual(left);
    expect(worker.link.events.filter(({ event }) => event.kind === 'proven')).toEqual([]);
  }

  it.each(strong)(
    'goes on when SendSIGKILL=no makes systemd give up, and has the proof after %s (G3, G4)',
    async (rung) => {
      const worker = await suite.worker([deaf]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'deaf');
      await worker.host.hold(holdInput(resource, placement), 'token', 1);
      await edit(placement.unit, 'SendSIGKILL=no');
      await expect(worker.stop(resource, placement)).rejects.toThrow(/still running/);
      await reads(worker, placement, 'failed');
      await staysStuck(worker, resource, placement);

      const { proof, exit } = await worker.stopUntilProven(resource, placement, { rung });
      expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
      // systemd had let go of it: how it ended was seen by nobody, and unknown is never success.
      expect(exit.kind).toBe('unknown');
      expect(await processesOf(suite.machine, resource)).toEqual([]);
    },
  );

  it.each(strong)('counts what KillMode=process leaves behind until %s has ended it (G3, G4)', async (rung) => {
    const worker = await suite.worker([parent, deaf]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'parent');
    await edit(placement.unit, 'KillMode=process');
    await expect(worker.stop(resource, placement)).rejects.toThrow(/populated 1/);
    await reads(worker, placement, 'inactive');
    await staysStuck(worker, resource, placement);

    expect((await worker.stopUntilProven(resource, placement, { rung })).exit.wording).toBe('signal 15');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });

  it('ends what was started by other hands over what a failed process had left, and that as well (G3)', async () => {
    const end = join(suite.machine.stateDirectory, 'end');
    const text = `setsid sh -c 'trap "" TERM\nwhile :\ndo sleep 9999\ndone' &\nuntil test -e ${end}\ndo sleep 0.02\ndone\nexit 3`;
    const worker = await suite.worker([script('loser', text, { stop })]);
    const resource = suite.resource();
    const generation = Date.now();
    await edit(generationUnit('own', resource, generation), 'KillMode=process');
    const placement = await worker.start(resource, 'loser', { generation });
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.end(worker); // so that nobody closes the generation
    await writeFile(end, '');
    await eventually(async () => (await suite.machine.run(['systemctl', 'is-failed', placement.unit])).code === 0);
    const left = await processesOf(suite.machine, resource);
    expect(left).not.toEqual([]);
    await rm(end); // the next one stays
    await suite.machine.systemctl('daemon-reload'); // which forgets that one start was all it had
    await suite.machine.systemctl('start', placement.unit);
    expect(await processesOf(suite.machine, resource)).toEqual(expect.arrayContaining([...left]));

    const next = await suite.worker([]);
    expect((await next.link.event('ended')).reason).toContain('restarted by other hands');
    const { proof, exit } = await next.stopUntilProven(resource, placement, { rung: 'kill' });
    expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
    expect(exit.wording).toBe('unknown: restarted outside');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });
});
