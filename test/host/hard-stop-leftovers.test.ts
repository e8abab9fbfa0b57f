import promises from 'node:fs/promises';
import { escapeResource } from '../../src/contract/names';
import type { Rung } from '../../src/contract/activities';
import { StillRunningError } from '../../src/host/host';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { livingUnits, processesOf } from '../support/unit-processes';

const stop = { signal: 'SIGTERM', timeoutMs: 500, killMode: 'control-group' } as const;
const rungs: readonly Rung[] = ['stop', 'kill', 'cgroup-kill'];

/** Twelve lines of descent that ignore TERM, each in a session of its own, whose youngest is never 20 ms old. */
const respawning = `export HOP='trap "" TERM; sleep 0.01; setsid sh -c "$HOP" &'
  for i in 1 2 3 4 5 6 7 8 9 10 11 12; do setsid sh -c "$HOP" & done`;

describeOnPrivateHost('stopping what does not want to end', () => {
  const suite = new HostSuite();
  afterEach(() => jest.restoreAllMocks());

  it.each(rungs)('ends processes that respawn faster than they are counted: %s (G3)', async (rung) => {
    const worker = await suite.worker([script('bomb', `${respawning}; exec sleep 9999`, { stop })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'bomb');
    await eventually(async () => (await processesOf(suite.machine, resource)).length >= 12);
    const { proof } = await worker.stopUntilProven(resource, placement, { rung });
    expect(proof.by).toBe('empty');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });

  it.each(rungs)('ends respawning processes whose main process is gone long since: %s (G3)', async (rung) => {
    const worker = await suite.worker([script('orphans', `${respawning}; exit 0`, { stop })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'orphans');
    await eventually(async () => (await worker.unit(placement.unit, 'SubState'))?.SubState === 'exited');
    const watching = worker.stop(resource, placement, { rung: 'watch' });
    await expect(watching).rejects.toThrow(/active \(exited\).*populated 1/);
    expect((await worker.stopUntilProven(resource, placement, { rung })).exit.wording).toBe('exit 0');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });

  it('counts children that left session and process group, also under KillMode=mixed (G3)', async () => {
    const child = 'trap "" TERM; while :; do sleep 9999; done';
    const text = `setsid setsid sh -c '${child}' & trap 'sleep 0.2; exit 0' TERM; sleep 9999 & wait`;
    const worker = await suite.worker([script('mixed', text, { stop: { ...stop, killMode: 'mixed' } })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'mixed');
    await eventually(async () => (await processesOf(suite.machine, resource)).length >= 4);
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });

  it.each(rungs)('ends what an administrator has frozen: %s (G3)', async (rung) => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999', { stop })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await suite.machine.systemctl('freeze', placement.unit);
    expect(await worker.unit(placement.unit, 'FreezerState')).toEqual({ FreezerState: 'frozen' });
    expect((await worker.stopUntilProven(resource, placement, { rung })).proof.by).toBe('empty');
  });

  describe('and is restarted by other hands', () => {
    // Without a semicolon: after daemon-reload, systemd 252 reads a transient unit's `;` back as `\;`, and the shell can't run it.
    const stubborn = script('stubborn', 'trap "" TERM\nwhile :\ndo sleep 9999\ndone', { stop });

    it('while no worker is there: the next one says so, ends the stranger’s invocation, and knows no exit (G3, G6)', async () => {
      const worker = await suite.worker([stubborn]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'stubborn');
      await worker.host.hold(holdInput(resource, placement), 'token', 1);
      await suite.end(worker);
      await suite.machine.systemctl('daemon-reload'); // which forgets that one start was all it had
      await suite.machine.systemctl('restart', placement.unit);
      const next = await suite.worker([]);
      expect((await next.link.event('ended')).reason).toContain('restarted by other hands');
      const { exit } = await next.stopUntilProven(resource, placement);
      expect(exit.wording).toBe('unknown: restarted outside');
      expect(await livingUnits(suite.machine, resource)).toEqual([]);
    });

    it('while it runs: its owner hears of it, and no other process outlives the proof (G2, G3)', async () => {
      const worker = await suite.worker([stubborn]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'stubborn');
      await worker.host.hold(holdInput(resource, placement), 'token', 1);
      await suite.machine.systemctl('daemon-reload');
      // Refused, where the generation is closed before the old process has ended; both are right.
      const restart = suite.machine.systemctl('restart', placement.unit).catch(() => 'refused');
      await worker.link.event('ended');
      await worker.stopUntilProven(resource, placement);
      await restart;
      expect(await livingUnits(suite.machine, resource)).toEqual([]);
    });

    it.each(['start', 'restart'])(
      'by %s while it is being stopped: closed, it does not come up again (G3)',
      async (verb) => {
        // Longer than a rung waits for the proof: systemd's own KILL must not come in between.
        const worker = await suite.worker([{ ...stubborn, stop: { ...stop, timeoutMs: 2_000 } }]);
        const resource = suite.resource();
        const placement = await worker.start(resource, 'stubborn');
        await suite.machine.systemctl('daemon-reload');
        await expect(worker.stop(resource, placement)).rejects.toBeInstanceOf(StillRunningError);
        const job = suite.machine.systemctl(verb, placement.unit).catch(() => 'refused');
        const { proof } = await worker.stopUntilProven(resource, placement);
        await job;
        expect(proof.invocation).toBe(placement.invocation);
        expect(await livingUnits(suite.machine, resource)).toEqual([]);
      },
    );

    it('after it has failed and was stopped: closed, it does not come up again (G3)', async () => {
      const worker = await suite.worker([script('failing', 'exit 3', { stop })]);
      const resource = suite.resource();
      const placement = await worker.start(resource, 'failing');
      await worker.host.hold(holdInput(resource, placement), 'token', 1);
      await expect(
        worker.stop(resource, placement).then(() => suite.machine.systemctl('start', placement.unit)),
      ).rejects.toThrow(placement.unit);
      expect(await livingUnits(suite.machine, resource)).toEqual([]);
    });
  });

  it.each([
    ['EACCES', 'cgroup.events could not be read: EACCES'],
    ['EIO', 'cgroup.events could not be read: EIO'],
    ['replaced', 'cgroup.events could not be read: no "populated" line'],
  ])('proves nothing while cgroup.events can’t be read (%s), and does when it can (G4)', async (how, reason) => {
    const worker = await suite.worker([script('sleeper', 'exec sleep 9999', { stop })], { resyncMs: 100 });
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const real = promises.readFile;
    jest.spyOn(promises, 'readFile').mockImplementation((async (path: string, options: 'utf8') => {
      if (!path.endsWith(`own-${escapeResource(resource)}.slice/cgroup.events`)) return real(path, options);
      if (how === 'replaced') return 'frozen 0\n';
      throw Object.assign(new Error(how), { code: how });
    }) as typeof promises.readFile);
    await expect(worker.stop(resource, placement)).rejects.toThrow(reason);
    expect(worker.link.events).toEqual([]);
    jest.restoreAllMocks();
    // Nobody has to ask again.
    expect((await worker.link.event('proven')).proof.by).toBe('empty');
  });
});
