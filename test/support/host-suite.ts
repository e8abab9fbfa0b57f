import type { Program } from '../../src/config';
import type { StopAnswer, StopInput } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { ResourceFiles } from '../../src/host/generation-files';
import { isLiving } from '../../src/host/condition';
import type { HostOptions } from '../../src/host/host';
import { StillRunningError } from '../../src/host/host';
import { connectSystemd, type SystemdOptions } from '../../src/systemd/dbus-systemd';
import type { SystemdPort, UnitProperties, UnitPropertyName } from '../../src/systemd/port';
import { openOwnedHost, placementOf, startInput, stopInput, type OwnedHost } from './owned-host';
import { bootPrivateHost, canBootPrivateHosts, type PrivateHost } from './test-host';

/** Host tests break what they run on, so they need a private host; elsewhere they are skipped. */
export const describeOnPrivateHost = canBootPrivateHosts ? describe : describe.skip;

/** Changes some calls of a systemd port; every other call goes through. */
export type SystemdFault = (inner: SystemdPort) => Partial<SystemdPort>;

/** A worker of the suite, with the two calls that nearly every test makes. */
export interface SuiteHost extends OwnedHost {
  /** Starts a program that must start or be adopted. */
  start(resource: string, program: string, ...change: Parameters<typeof startInput>[2][]): Promise<Placement>;
  /** As {@link start}, for a program that ends by itself: resolves once it has. A stop right after a start may be faster. */
  runToEnd(resource: string, program: string): Promise<Placement>;
  stop(resource: string, placement: Placement, change?: Partial<StopInput>): Promise<StopAnswer>;
  /** Climbs the ladder's first rung until the proof is there. */
  stopUntilProven(resource: string, placement: Placement, change?: Partial<StopInput>): Promise<StopAnswer>;
  unit(name: string, ...names: UnitPropertyName[]): Promise<UnitProperties | undefined>;
}

/** One private host for a test file, and workers on it that are closed after each test. */
export class HostSuite {
  machine!: PrivateHost;
  private readonly open: OwnedHost[] = [];
  private number = 0;

  constructor() {
    beforeAll(async () => void (this.machine = await bootPrivateHost()));
    afterEach(() => Promise.all(this.open.splice(0).map(({ host }) => host.close())));
    afterAll(() => this.machine?.end());
  }

  /** A resource that no other test of the file has. */
  resource(): string {
    return `test/r-${++this.number}`;
  }

  /** Opens a worker on the host, or one more beside it. */
  async worker(
    programs: readonly Program[],
    change: Partial<HostOptions> = {},
    fault?: SystemdFault,
    connection: Partial<SystemdOptions> = {},
  ): Promise<SuiteHost> {
    const machine = this.machine;
    const inner = await connectSystemd({ busAddress: machine.busAddress, ...connection });
    const owned = await openOwnedHost(machine, programs, {
      systemd: fault ? withFault(inner, fault) : inner,
      ...change,
    });
    this.open.push(owned);
    const { host, systemd } = owned;
    const start: SuiteHost['start'] = async (resource, program, more) =>
      placementOf(await host.start(startInput(resource, program, more)));
    const stop: SuiteHost['stop'] = (resource, placement, more) => host.stop(stopInput(resource, placement, more));
    return {
      ...owned,
      start,
      stop,
      runToEnd: async (resource, program) => {
        const placement = await start(resource, program);
        const state = (): ReturnType<SystemdPort['unitProperties']> =>
          systemd.unitProperties(placement.unit, ['ActiveState', 'SubState']);
        await eventually(async () => !isLiving((await state()) ?? {}));
        return placement;
      },
      unit: (name, ...names) => systemd.unitProperties(name, names),
      stopUntilProven: async (resource, placement, more) => {
        for (;;) {
          try {
            return await stop(resource, placement, more);
          } catch (error) {
            if (!(error instanceof StillRunningError)) throw error;
            await new Promise((resolve) => setTimeout(resolve, 50));
          }
        }
      },
    };
  }

  /** Ends a worker before the test does: its process is gone, what it started is not. */
  async end(worker: OwnedHost): Promise<void> {
    this.open.splice(
      this.open.findIndex(({ host }) => host === worker.host),
      1,
    );
    await worker.host.close();
  }

  /** A resource's files on the host, as a worker sees them. */
  filesOf(resource: string): ResourceFiles {
    const { root, runDirectory, unitPrefix } = this.machine;
    return new ResourceFiles(root, runDirectory, unitPrefix, resource);
  }

  /** The lease timers of a unit that may still elapse, as the manager lists them. */
  async timers({ unit }: Placement): Promise<string[]> {
    const pattern = unit.replace('.service', '-lease*.timer');
    return namesIn(await this.machine.systemctl('list-units', '--plain', '--no-legend', '--state=active', pattern));
  }

  /** Everything that is loaded for a resource: services, lease timers, oneshots and its slice. */
  async loaded(resource: string): Promise<string[]> {
    const escaped = resource.replace(/[^A-Za-z0-9]/g, (c) => `_${c.charCodeAt(0).toString(16)}`);
    return namesIn(await this.machine.systemctl('list-units', '--all', '--plain', '--no-legend', `own-${escaped}*`));
  }
}

/** The first word of each line of `systemctl list-units`. */
function namesIn(text: string): string[] {
  return text.split('\n').flatMap((line) => line.trim().split(/\s+/)[0] || []);
}

/** A systemd port with some of its calls changed. */
export function withFault(inner: SystemdPort, fault: SystemdFault): SystemdPort {
  const changed = fault(inner);
  return new Proxy(inner, {
    get(target, name: keyof SystemdPort): unknown {
      const call = Reflect.get(changed, name) as unknown;
      if (call !== undefined) return call;
      const own: unknown = Reflect.get(target, name);
      return typeof own === 'function' ? (own.bind(target) as unknown) : own;
    },
  });
}

/** Resolves once a condition holds of what only asking tells; asks every 20 ms. */
export async function eventually(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 20));
}
