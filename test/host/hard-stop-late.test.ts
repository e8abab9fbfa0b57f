import promises from 'node:fs/promises';
import { escapeResource } from '../../src/contract/names';
import { openBusProxy, type BusMessage, type BusProxy } from '../support/bus-proxy';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost, type SystemdFault } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { livingUnits, processesOf } from '../support/unit-processes';

const stop = { signal: 'SIGTERM', timeoutMs: 500, killMode: 'control-group' } as const;
const sleeper = script('sleeper', 'exec sleep 9999', { stop });
const stubborn = script('stubborn', 'trap "" TERM; sleep 9999 & while :; do sleep 9999; done', {
  stop: { ...stop, timeoutMs: 1500 },
});

const proofs = ({ link }: SuiteHost): unknown[] => link.events.filter(({ event }) => event.kind === 'proven');

describeOnPrivateHost('a stop whose answers come late', () => {
  const suite = new HostSuite();
  const proxies: BusProxy[] = [];
  afterEach(async () => {
    jest.restoreAllMocks();
    await Promise.all(proxies.splice(0).map((proxy) => proxy.end()));
  });

  /** Makes each read of a resource's cgroup.events take until it is let go. */
  function slowReads(resource: string): { readonly waiting: (() => void)[]; readonly begun: Promise<void> } {
    const real = promises.readFile;
    const waiting: (() => void)[] = [];
    let begin = (): void => undefined;
    const begun = new Promise<void>((resolve) => (begin = resolve));
    jest.spyOn(promises, 'readFile').mockImplementation((async (path: string, options: 'utf8') => {
      if (!path.endsWith(`own-${escapeResource(resource)}.slice/cgroup.events`)) return real(path, options);
      // What it says is of now; it is only told later.
      const text = await real(path, options).catch((error: unknown) => error);
      await new Promise<void>((resolve) => {
        waiting.push(resolve);
        begin();
      });
      if (text instanceof Error) throw text;
      return text;
    }) as typeof promises.readFile);
    return { waiting, begun };
  }

  /** Counts what is asked of systemd. */
  function counting(calls: string[]): SystemdFault {
    return (inner) => ({
      stopInvocation: async (invocation) => {
        calls.push(invocation);
        return inner.stopInvocation(invocation);
      },
    });
  }

  it('by cgroup.events proves nothing before that, stops nothing twice meanwhile, and holds up no sibling (G3, G4, G11)', async () => {
    const calls: string[] = [];
    const worker = await suite.worker([sleeper], { resyncMs: 100 }, counting(calls));
    const [resource, other] = [suite.resource(), suite.resource()];
    const [placement, beside] = [await worker.start(resource, 'sleeper'), await worker.start(other, 'sleeper')];
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const { waiting, begun } = slowReads(resource);
    const settled: unknown[] = [];
    const asked = [1, 2, 3].map(() => worker.stop(resource, placement)); // the server repeats what takes it too long
    for (const stop of asked)
      void stop.then(
        (answer) => settled.push(answer),
        (error) => settled.push(error),
      );
    await begun;
    // Dead by now, as everybody but this reading knows.
    await eventually(async () => (await livingUnits(suite.machine, resource)).length === 0);
    expect((await worker.stopUntilProven(other, beside)).proof.by).toBe('empty');
    await suite.machine.systemctl('daemon-reload'); // wakes the worker, as its resync does
    expect({ settled, told: worker.link.events }).toEqual({ settled: [], told: [] });
    expect(waiting).toHaveLength(1);
    expect(calls.filter((invocation) => invocation === placement.invocation)).toHaveLength(1);

    jest.restoreAllMocks();
    for (const letGo of waiting) letGo();
    // The first may have begun to read while it still lived; the last one did not.
    expect((await asked[2]!).proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
  });

  it('by cgroup.events says of a process that has ended meanwhile that it was still running (G3, G4)', async () => {
    const worker = await suite.worker([stubborn]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    const { waiting, begun } = slowReads(resource);
    const stop = worker.stop(resource, placement, { rung: 'watch' });
    await begun;
    await suite.machine.systemctl('stop', placement.unit);
    expect(await processesOf(suite.machine, resource)).toEqual([]);
    jest.restoreAllMocks();
    for (const letGo of waiting) letGo();
    await expect(stop).rejects.toThrow('populated 1');
    expect((await worker.stopUntilProven(resource, placement, { rung: 'watch' })).exit.wording).toBe('signal 9');
  });

  it('by the bus, each after it was given up, is never proven by one of them, and is once they are in time (G3, G4)', async () => {
    const proxy = await openBusProxy(suite.machine.busAddress);
    proxies.push(proxy);
    const connection = { busAddress: proxy.busAddress, callTimeoutMs: 600 };
    const worker = await suite.worker([stubborn], { resyncMs: 200 }, undefined, connection);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'stubborn');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    // All but what a connection begins with: the worker stays connected.
    const answers = ({ from, member }: BusMessage): boolean =>
      from === 'bus' && !['Hello', 'AddMatch', 'NameAcquired', 'Subscribe'].includes(member);
    await expect(worker.stop(resource, placement)).rejects.toThrow(/still running/);
    proxy.rule((message) => (answers(message) ? 'hold' : 'pass'));
    await expect(worker.stop(resource, placement, { rung: 'kill' })).rejects.toThrow(/not answered|not sent/);
    proxy.release(); // the answers to this one reach the next one
    // Dead by now, and not proven while each answer is to a question of before.
    await eventually(async () => (await livingUnits(suite.machine, resource)).length === 0);
    await expect(worker.stop(resource, placement, { rung: 'watch' })).rejects.toThrow(/not answered|not sent/);
    expect(proofs(worker)).toEqual([]);

    proxy.rule(() => 'pass');
    proxy.release();
    expect((await worker.link.event('proven')).proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
  });
});
