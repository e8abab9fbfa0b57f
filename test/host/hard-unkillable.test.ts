import { leaseUnits } from '../../src/contract/names';
import type { Rung } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { StillRunningError } from '../../src/host/host';
import { mountFreezable, whyNoFreezing, type FreezableMount } from '../support/freezable-mount';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, owner, script, startInput } from '../support/owned-host';
import { processesOf } from '../support/unit-processes';

const ladder: readonly Rung[] = ['stop', 'kill', 'cgroup-kill', 'watch'];

// Where there are no loop mounts (see whyNoFreezing) nothing else makes a process that KILL does not end.
(whyNoFreezing ? describe.skip : describeOnPrivateHost)('a process that nothing can kill', () => {
  let disk: FreezableMount;
  afterAll(() => disk?.end()); // before the host's own end
  const suite = new HostSuite();
  beforeAll(async () => (disk = await mountFreezable(suite.machine)));
  afterEach(() => disk.thaw());

  const writer = (change = {}): ReturnType<typeof script> =>
    script('writer', `while :; do echo x > ${disk.path}/$OWNED_GENERATION; sleep 0.02; done`, {
      stop: { signal: 'SIGTERM', timeoutMs: 300, killMode: 'control-group' },
      ...change,
    });

  /** Starts and holds a writer whose disk stands still under it. */
  async function startStuck(worker: SuiteHost, resource: string): Promise<Placement> {
    const placement = await worker.start(resource, 'writer');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await disk.freeze();
    await eventually(async () => {
      const { details } = await stillRunning(worker, resource, placement, 'watch');
      return details.processes.some(({ state }) => state === 'D');
    });
    return placement;
  }

  async function stillRunning(
    worker: SuiteHost,
    resource: string,
    placement: Placement,
    rung: Rung,
  ): Promise<StillRunningError> {
    const error: unknown = await worker.stop(resource, placement, { rung }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(StillRunningError);
    return error as StillRunningError;
  }

  const failed = (worker: SuiteHost, { unit }: Placement): Promise<void> =>
    eventually(async () => (await worker.unit(unit, 'ActiveState'))?.ActiveState === 'failed');

  it('is still running through all rungs, with its state and wait channel, until it ends, which is proven within a second (G3, G4)', async () => {
    const worker = await suite.worker([writer()]);
    const resource = suite.resource();
    const placement = await startStuck(worker, resource);
    for (const rung of [...ladder, ...ladder]) {
      const { details } = await stillRunning(worker, resource, placement, rung);
      expect(details.reasons).toContain('cgroup: populated 1');
      expect(details.processes).toContainEqual({
        pid: expect.any(Number),
        command: 'sh',
        state: 'D',
        waitChannel: expect.stringMatching(/^[a-z]\w+$/),
      });
    }
    // systemd gives up on it; whatever it says of its unit, the process lives.
    await failed(worker, placement);
    const { details } = await stillRunning(worker, resource, placement, 'watch');
    expect(details.reasons).toEqual(['cgroup: populated 1']);
    expect(worker.link.events).toEqual([]);

    await disk.thaw();
    const thawed = performance.now();
    const { proof, exit } = await worker.link.event('proven');
    expect(performance.now() - thawed).toBeLessThan(1000);
    expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
    // systemd had let go of it by then: how it ended was seen by nobody, and unknown is never success.
    expect(exit.kind).toBe('unknown');
  });

  it('keeps its resource from every other start, and from a start by other hands, while it lives (G2, G3)', async () => {
    const worker = await suite.worker([writer()]);
    const resource = suite.resource();
    const placement = await startStuck(worker, resource);
    await stillRunning(worker, resource, placement, 'kill');
    await failed(worker, placement);
    const stuck = await processesOf(suite.machine, resource);
    expect(stuck).toHaveLength(1);

    // Stopping what has failed does nothing, and its name can be started over what it left: here it is refused.
    await suite.machine.systemctl('stop', placement.unit);
    await expect(suite.machine.systemctl('start', placement.unit)).rejects.toThrow(placement.unit);
    expect(await processesOf(suite.machine, resource)).toEqual(stuck);
    const next = { generation: placement.generation + 1 };
    expect(await worker.host.start(startInput(resource, 'writer', next))).toMatchObject({ kind: 'stop-first' });
    // Even reset and forgotten, its cgroup is still there to be read.
    await suite.machine.systemctl('reset-failed', placement.unit);
    expect(await worker.host.start(startInput(resource, 'writer', next))).toMatchObject({
      kind: 'stop-first',
      reason: expect.stringContaining('populated 1'),
    });
    for (const rung of ladder) await stillRunning(worker, resource, placement, rung);
    await disk.thaw();
    await worker.link.event('proven');
    const after = await worker.start(resource, 'writer', next);
    await worker.stopUntilProven(resource, after, { rung: 'kill' });
  });

  it('is proven by the next worker process too, whose former one died at the top of the ladder (G3)', async () => {
    const worker = await suite.worker([writer()]);
    const resource = suite.resource();
    const placement = await startStuck(worker, resource);
    await stillRunning(worker, resource, placement, 'cgroup-kill');
    await suite.end(worker);
    const next = await suite.worker([]);
    await stillRunning(next, resource, placement, 'watch');
    expect(next.link.events).toEqual([]);
    await disk.thaw();
    expect((await next.link.event('proven')).exit.wording).toBe('signal 9');
    expect(worker.link.events).toEqual([]);
  });

  it('whose lease is over is told as ended and not as proven, and its siblings go on (G4, G7, G11)', async () => {
    const sibling = script('sibling', 'exec sleep 9999');
    const worker = await suite.worker([writer({ leaseMs: 3000 }), sibling]);
    const [resource, other] = [suite.resource(), suite.resource()];
    const beside = await worker.start(other, 'sibling');
    worker.link.answer = 'unknown';
    const placement = await worker.start(resource, 'writer');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await disk.freeze();
    await worker.link.event('ended');
    expect(worker.link.events.map(({ event }) => event.kind)).toEqual(['ended']);
    expect(await processesOf(suite.machine, resource)).not.toEqual([]);
    const stop = { resource, owner, rung: 'watch', generation: placement.generation } as const;
    await expect(worker.host.stop(stop)).rejects.toBeInstanceOf(StillRunningError);
    await disk.thaw();
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('unowned');
    expect(await worker.unit(beside.unit, 'InvocationID')).toEqual({ InvocationID: beside.invocation });
    expect(await worker.unit(leaseUnits(beside.unit, 1).timer, 'SubState')).toEqual({ SubState: 'waiting' });
    await worker.stop(other, beside);
  });
});
