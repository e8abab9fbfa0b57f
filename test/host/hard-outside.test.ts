import promises, { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readPopulated } from '../../src/cgroup/cgroup';
import { escapeResource, leaseUnits } from '../../src/contract/names';
import { StillRunningError } from '../../src/host/host';
import { openBusProxy } from '../support/bus-proxy';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { script, startInput } from '../support/owned-host';
import { livingUnits } from '../support/unit-processes';

const stop = { signal: 'SIGTERM', timeoutMs: 300, killMode: 'control-group' } as const;
const sleeper = script('sleeper', 'exec sleep 9999', { stop });
const deaf = script('deaf', 'trap "" TERM\nwhile :\ndo sleep 9999\ndone', { stop });

describeOnPrivateHost('a process that is not where it is looked for', () => {
  const suite = new HostSuite();
  afterEach(() => jest.restoreAllMocks());

  const active = async (unit: string): Promise<boolean> =>
    (await suite.machine.run(['systemctl', 'is-active', '--quiet', unit])).code === 0;

  it('for an administrator’s drop-in puts it into another slice is not proven dead while it lives (G3)', async () => {
    // systemd.unit(5): settings for all units whose names begin alike, transient ones too.
    const folder = join(suite.machine.root, 'run/systemd/system/own-.service.d');
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'slice.conf'), '[Service]\nSlice=customers.slice\nSendSIGKILL=no\n');
    await suite.machine.systemctl('daemon-reload');
    try {
      const worker = await suite.worker([deaf]);
      const resource = suite.resource();
      const answer = await worker.host.start(startInput(resource, 'deaf'));
      if (!('placement' in answer)) return; // refusing it is as good
      const { placement } = answer;
      const events = join(suite.machine.cgroupRoot, 'customers.slice', placement.unit);
      const lives = async (): Promise<boolean> => (await readPopulated(events)).kind === 'populated';
      expect(await lives()).toBe(true);
      await worker.stop(resource, placement).catch(() => undefined);
      await eventually(async () => (await worker.unit(placement.unit, 'ActiveState'))?.ActiveState === 'failed');
      expect(await lives()).toBe(true); // as SendSIGKILL=no has it
      await expect(worker.stop(resource, placement)).rejects.toBeInstanceOf(StillRunningError);
    } finally {
      await rm(folder, { recursive: true });
      await suite.machine.systemctl('daemon-reload');
    }
  });

  it('for its cgroup has no cgroup.events (cgroup v1) is not taken for gone: its directory is there (G4)', async () => {
    const cgroup = await mkdtemp(join(tmpdir(), 'cgroup-v1-'));
    try {
      expect((await readPopulated(cgroup)).kind).toBe('unknown');
    } finally {
      await rm(cgroup, { recursive: true });
    }
  });

  it('for systemd got to its start only after it was looked up is not left without files and lease (G5, G7)', async () => {
    const proxy = await openBusProxy(suite.machine.busAddress);
    try {
      const connection = { busAddress: proxy.busAddress, callTimeoutMs: 1000 };
      const worker = await suite.worker([sleeper], {}, undefined, connection);
      const resource = suite.resource();
      proxy.rule(({ type, member }) => (type === 'call' && member === 'StartTransientUnit' ? 'hold' : 'pass'));
      let lookedUp = false;
      void proxy.next({ from: 'bus', type: 'error', member: 'GetUnit' }).then(() => {
        lookedUp = true;
        proxy.rule(() => 'pass');
        proxy.release();
      });
      // The worker is slower than systemd, which has looked for this file by then.
      const real = promises.rm;
      jest.spyOn(promises, 'rm').mockImplementation(async (path, options) => {
        const ours = String(path).includes(`/${escapeResource(resource)}/`) && String(path).endsWith('/open');
        if (ours && lookedUp) await eventually(async () => (await livingUnits(suite.machine, resource)).length > 0);
        return real(path, options);
      });
      const { kind } = await worker.host.start(startInput(resource, 'sleeper'));
      const [unit] = await livingUnits(suite.machine, resource);
      const leased = unit !== undefined && (await active(leaseUnits(unit, 1).timer));
      expect({ kind, unit, leased }).toEqual(
        unit === undefined ? { kind: 'blocked', unit, leased } : { kind: 'started', unit, leased: true },
      );
    } finally {
      await proxy.end();
    }
  });
});
