import type { Rung } from '../../src/contract/activities';
import { openBusProxy, type BusMessage, type BusProxy, type Fate } from '../support/bus-proxy';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { livingUnits } from '../support/unit-processes';

const rungs: readonly Rung[] = ['stop', 'kill', 'cgroup-kill', 'watch'];
const stubborn = script('stubborn', 'trap "" TERM; sleep 9999 & while :; do sleep 9999; done', {
  stop: { signal: 'SIGTERM', timeoutMs: 2000, killMode: 'control-group' },
});

describeOnPrivateHost('a stop whose way to systemd is broken', () => {
  const suite = new HostSuite();
  const proxies: BusProxy[] = [];
  afterEach(() => Promise.all(proxies.splice(0).map((proxy) => proxy.end())));

  const living = (resource: string): Promise<readonly string[]> => livingUnits(suite.machine, resource);

  async function disturbed(): Promise<{ readonly worker: SuiteHost; readonly proxy: BusProxy }> {
    const proxy = await openBusProxy(suite.machine.busAddress);
    proxies.push(proxy);
    const connection = { busAddress: proxy.busAddress, callTimeoutMs: 1000 };
    return { worker: await suite.worker([stubborn], { resyncMs: 200 }, undefined, connection), proxy };
  }

  /** All but what a connection begins with: the worker stays connected to a manager that it can't hear. */
  const answers = ({ from, member }: BusMessage): boolean =>
    from === 'bus' && !['Hello', 'AddMatch', 'NameAcquired', 'Subscribe'].includes(member);

  it.each(
    rungs.flatMap((rung) => (['drop', 'hold'] as const satisfies readonly Fate[]).map((fate) => [rung, fate] as const)),
  )(
    'on the rung %s with answers that it must %s says nothing that is not so, and is told later (G3, G4)',
    async (rung, fate) => {
      const { worker, proxy } = await disturbed();
      const resource = suite.resource();
      const placement = await worker.start(resource, 'stubborn');
      await worker.host.hold(holdInput(resource, placement), 'token', 1);
      proxy.rule((message) => (answers(message) ? fate : 'pass'));
      await expect(worker.stop(resource, placement, { rung })).rejects.toThrow(/not answered|not sent/);
      expect(worker.link.events.filter(({ event }) => event.kind === 'proven')).toEqual([]);
      proxy.rule(() => 'pass');
      proxy.release();
      const { proof } = await worker.stopUntilProven(resource, placement);
      expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
      expect(await living(resource)).toEqual([]);
    },
  );

  it.each(rungs)('that loses its connection on the rung %s completes with proof after it (G3, G4)', async (rung) => {
    const { worker, proxy } = await disturbed();
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    proxy.rule((message) => (answers(message) ? 'drop' : 'pass'));
    const asked = proxy.next({ from: 'client', type: 'call' });
    const stop = worker.stop(resource, placement, { rung }).catch((error: unknown) => error);
    await asked;
    proxy.cut();
    proxy.rule(() => 'pass');
    await stop;
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect(await living(resource)).toEqual([]);
  });

  it.each(rungs)('whose worker process dies on the rung %s is completed by the next one (G3)', async (rung) => {
    const worker = await suite.worker([stubborn]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const stop = worker.stop(resource, placement, { rung }).catch((error: unknown) => error);
    await suite.end(worker);
    await stop;
    const next = await suite.worker([]);
    const { proof, exit } = await next.stopUntilProven(resource, placement);
    expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
    expect(exit.kind).not.toBe('exit');
    expect(await living(resource)).toEqual([]);
  });

  it('over which the bus is killed and comes back is told to its owner without being asked again (G3, G4)', async () => {
    const worker = await suite.worker([stubborn], { resyncMs: 200 }, undefined, { callTimeoutMs: 1000 });
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await expect(worker.stop(resource, placement)).rejects.toThrow(/still running/);
    const bus = (await suite.machine.systemctl('show', '--property=MainPID', '--value', 'dbus.service')).trim();
    await suite.machine.run(['kill', '-KILL', bus]);
    // Dead by now, and not proven while systemd can't be asked.
    await eventually(async () => (await living(resource)).length === 0);
    expect(worker.link.events.filter(({ event }) => event.kind === 'proven')).toEqual([]);
    await suite.machine.systemctl('start', 'dbus.service');
    expect((await worker.link.event('proven')).exit.wording).toBe('signal 9');
  });
});
