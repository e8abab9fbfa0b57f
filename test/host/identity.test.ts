import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { WrongInstanceError } from '../../src/host/host';
import { ClaimedError, readBootId } from '../../src/host/instance';
import { describeOnPrivateHost, HostSuite } from '../support/host-suite';
import { holdInput, openOwnedHost, placementOf, script, startInput, stopInput } from '../support/owned-host';
import { bootPrivateHost } from '../support/test-host';

const sleeper = script('sleeper', 'exec sleep 9999');

describeOnPrivateHost('which host it is', () => {
  const suite = new HostSuite();

  it('refuses the placements of another machine that goes by the same host id (G4)', async () => {
    const other = await bootPrivateHost();
    try {
      const here = await suite.worker([sleeper]);
      const there = await openOwnedHost(other, [sleeper]);
      expect(there.host.instance).not.toBe(here.host.instance);
      const resource = suite.resource();
      const placement = await here.start(resource, 'sleeper');
      // The other machine has neither unit nor cgroup, and that proves nothing.
      await expect(there.host.stop(stopInput(resource, placement))).rejects.toBeInstanceOf(WrongInstanceError);
      await expect(there.host.hold(holdInput(resource, placement), 'token', 1)).rejects.toBeInstanceOf(
        WrongInstanceError,
      );
      const again = startInput(resource, 'sleeper', { instance: placement.instance });
      await expect(there.host.start(again)).rejects.toBeInstanceOf(WrongInstanceError);
      expect(placementOf(await here.host.start(again))).toEqual(placement);
      await here.stop(resource, placement);
      await there.host.close();
    } finally {
      await other.end();
    }
  });

  it('takes a reboot for the proof, and invents no way in which the process ended (G3, G8)', async () => {
    const machine = await bootPrivateHost();
    try {
      const before = await openOwnedHost(machine, [sleeper]);
      const resource = suite.resource();
      const placement = placementOf(await before.host.start(startInput(resource, 'sleeper')));
      await before.host.hold(holdInput(resource, placement), 'token', 1);
      await before.host.close();

      await machine.reboot();
      const bootId = await readBootId(machine.root);
      const after = await openOwnedHost(machine, [sleeper]);
      expect(after.host.instance).toBe(before.host.instance);
      expect(after.host.context.identity.bootIds).toEqual([placement.bootId, bootId]);
      await after.host.hold(holdInput(resource, placement), 'token', 2);
      const told = await after.link.event('proven');

      const answer = await after.host.stop(stopInput(resource, placement));
      expect(told.exit).toEqual(answer.exit);
      expect(told.proof).toMatchObject({ by: 'reboot', bootId, generation: placement.generation });
      expect(answer.exit).toEqual({ wording: 'unknown: host restarted', kind: 'unknown', source: 'boot' });
      expect(answer.proof).toMatchObject({ by: 'reboot', bootId, invocation: placement.invocation });
      // A boot that this instance has never seen proves nothing.
      const unseen = { ...placement, bootId: 'a boot of another life' };
      await expect(after.host.stop(stopInput(resource, unseen))).rejects.toThrow(/not known to be an earlier one/);
      await after.host.close();
    } finally {
      await machine.end();
    }
  });

  it('becomes a new instance with a state directory that was copied from another machine (G4)', async () => {
    const other = await bootPrivateHost();
    try {
      const here = await suite.worker([sleeper]);
      await cp(suite.machine.stateDirectory, other.stateDirectory, { recursive: true });
      const there = await openOwnedHost(other, [sleeper]);
      expect(there.host.instance).not.toBe(here.host.instance);
      expect(there.host.context.identity.bootIds).toHaveLength(1);
      const kept = await readFile(join(other.stateDirectory, 'instance.json.of-another-host'), 'utf8');
      expect(JSON.parse(kept)).toMatchObject({ instance: here.host.instance });
      await there.host.close();
    } finally {
      await other.end();
    }
  });

  it('gets another unit prefix only once no unit of the former is left: nobody would see them (G2, G3)', async () => {
    const machine = await bootPrivateHost();
    try {
      const former = { unitPrefix: 'former' };
      const worker = await openOwnedHost(machine, [sleeper], former);
      const resource = suite.resource();
      const placement = placementOf(await worker.host.start(startInput(resource, 'sleeper')));
      await worker.host.close();
      await expect(openOwnedHost(machine, [sleeper])).rejects.toThrow(`${placement.unit}. Set it back to "former"`);
      const again = await openOwnedHost(machine, [sleeper], former);
      const { exit } = await again.host.stop(stopInput(resource, placement));
      await again.host.close(); // which lets go of the unit
      const next = await openOwnedHost(machine, [sleeper]);
      // Whoever has not heard of the end yet is told the same.
      expect((await next.host.stop(stopInput(resource, placement))).exit).toEqual(exit);
      await next.host.close();
    } finally {
      await machine.end();
    }
  });

  it.each([
    ['namespace', { namespace: 'another' }],
    ['task queue', { taskQueue: 'another' }],
    ['host id', { id: 'another' }],
  ])(
    'lets nobody of another %s have its prefix or its state directory, and says what to do (G11)',
    async (_what, change) => {
      await suite.worker([sleeper]);
      await expect(suite.worker([sleeper], change)).rejects.toThrow(
        new RegExp(`state directory .* belongs to .*give this worker a host.stateDirectory of its own`),
      );
      const stateDirectory = await mkdtemp('/var/tmp/another-state-');
      try {
        const sharing = suite.worker([sleeper], { ...change, stateDirectory });
        await expect(sharing).rejects.toBeInstanceOf(ClaimedError);
        await expect(sharing).rejects.toThrow(
          /prefix "own" is taken .*another systemd.unitPrefix.*systemctl stop own.slice/,
        );
        // With a prefix of its own there is room for both.
        await suite.end(await suite.worker([sleeper], { ...change, stateDirectory, unitPrefix: 'another' }));
        await suite.machine.systemctl('stop', 'another.slice');
      } finally {
        await rm(stateDirectory, { recursive: true });
      }
    },
  );

  it('is not the same host any more with a new state directory: its prefix is still claimed (G4)', async () => {
    await suite.worker([sleeper]);
    const stateDirectory = await mkdtemp('/var/tmp/another-state-');
    try {
      await expect(suite.worker([sleeper], { stateDirectory })).rejects.toBeInstanceOf(ClaimedError);
    } finally {
      await rm(stateDirectory, { recursive: true });
    }
  });

  it('makes one instance when two workers open a new host at once (G4)', async () => {
    const machine = await bootPrivateHost();
    try {
      const opened = await Promise.all([1, 2, 3].map(() => openOwnedHost(machine, [sleeper])));
      expect(new Set(opened.map(({ host }) => host.instance)).size).toBe(1);
      for (const { host } of opened) await host.close();
    } finally {
      await machine.end();
    }
  });
});
