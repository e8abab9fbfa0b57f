import { dirname } from 'node:path';
import type { Placement } from '../../src/contract/facts';
import { leaseUnits } from '../../src/contract/names';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { openNeighbours, type Neighbours } from '../support/neighbours';
import { holdInput, script } from '../support/owned-host';

/** With a child, so that more than the main process has to end. */
const program = script('family', 'sleep 9999 & exec sleep 9999', { leaseMs: 3000 });

const STOPPED = /result success: stopped by other hands, or by the host’s shutdown$/;
/** Where it is looked at between the stop and the start, it is merely stopped. */
const RESTARTED = /(restarted by other hands, which was refused|stopped by other hands.*)$/;

/** What `systemctl` is called with; the last word names what it is done to. */
type Hand = `${string} ${'unit' | 'timer' | 'oneshot' | 'slice' | 'prefix'}`;

describeOnPrivateHost('a unit on which other hands are', () => {
  const suite = new HostSuite();

  /** A held process with everybody who lives beside it. */
  interface Scene {
    readonly worker: SuiteHost;
    readonly resource: string;
    readonly placement: Placement;
    readonly neighbours: Neighbours;
    /** Does to it, or to what belongs to it, what a hand says. Returns what systemctl complains of. */
    readonly meddle: (hand: Hand) => Promise<string>;
    /** Lines of the log that say this of other hands. */
    readonly said: (what: string) => number;
    /** A unit's main process and invocation. */
    readonly identity: () => Promise<string>;
    /** The owner hears that it ended, and why; it is proven dead, and the next generation starts. */
    readonly endsWith: (reason: RegExp) => Promise<void>;
  }

  async function scene(hand?: Hand): Promise<Scene> {
    const worker = await suite.worker([program], { resyncMs: 500 });
    const resource = suite.resource();
    const placement = await worker.start(resource, program.name);
    const neighbours = await openNeighbours(suite, worker, resource, {
      program,
      samePrefix: !hand?.endsWith('prefix'),
    });
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const { unit, slice } = placement;
    const targets = { ...leaseUnits(unit, 1), unit, slice, prefix: 'own.slice' };
    return {
      worker,
      resource,
      placement,
      neighbours,
      meddle: async (what) => {
        const words = what.split(' ');
        const target = targets[words.pop() as keyof typeof targets];
        const [verb, ...more] = words;
        const flags = more.filter((word) => word.startsWith('--'));
        const rest = more.filter((word) => !word.startsWith('--'));
        const { stderr } = await suite.machine.run(['systemctl', verb!, ...flags, target, ...rest]);
        return stderr;
      },
      said: (what) =>
        worker.lines.filter(
          ({ message, attributes: of }) => message === 'other hands' && of.what === what && of.resource === resource,
        ).length,
      identity: () => suite.machine.systemctl('show', '--property=MainPID,InvocationID,ActiveState', unit),
      endsWith: async (reason) => {
        const ended = await worker.link.event('ended');
        expect(ended.reason).toMatch(reason);
        const told = worker.lines.filter(
          ({ message, attributes }) => message === 'told the owner' && attributes.reason === ended.reason,
        );
        expect(told).toHaveLength(1);
        expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
        const next = await worker.start(resource, program.name, { generation: placement.generation + 1 });
        await worker.stopUntilProven(resource, next);
      },
    };
  }

  it.each<[Hand, RegExp]>([
    ['stop unit', STOPPED],
    ['restart unit', RESTARTED],
    ['kill unit', /^active \(exited\), result success$/],
    ['kill --signal=KILL unit', /result signal$/],
    ['start oneshot', STOPPED],
    ['stop slice', STOPPED],
    ['restart slice', RESTARTED],
    ['kill --signal=KILL slice', /result signal$/],
    ['stop prefix', STOPPED],
    ['restart prefix', RESTARTED],
    ['kill --signal=KILL prefix', /result signal$/],
  ])('ends by "%s": said once, proven dead, and free for the next generation (G3, G11)', async (hand, reason) => {
    const { meddle, endsWith, neighbours } = await scene(hand);
    await meddle(hand);
    await endsWith(reason);
    await neighbours.areUntouched();
  });

  it.each<[Hand, Hand, string]>([
    ['freeze unit', 'thaw unit', 'frozen by other hands'],
    ['freeze slice', 'thaw slice', 'frozen by other hands'],
    ['freeze prefix', 'thaw prefix', 'frozen by other hands'],
    ['set-property CPUWeight=50 unit', 'revert unit', 'its CPUWeight set by other hands'],
    ['set-property --runtime CPUWeight=50 slice', 'revert slice', 'its slice’s CPUWeight set by other hands'],
  ])('goes on by "%s": said once, its lease goes on, until "%s" (G4, G7, G11)', async (hand, undo, what) => {
    const { worker, resource, placement, meddle, said, identity, neighbours } = await scene(hand);
    const before = await identity();
    await meddle(hand);
    expect((await worker.link.event('noticed')).what).toBe(what);
    await worker.host.hold(holdInput(resource, placement), 'again', 2);
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const { n } = (await lease.read())!;
    await eventually(async () => (await lease.read())!.oldest > n + 1);
    expect(said(what)).toBe(1);
    await meddle(undo);
    await eventually(() => Promise.resolve(said(`no longer: ${what}`) === 1));
    expect(await identity()).toBe(before);
    await neighbours.areUntouched();
    await worker.stopUntilProven(resource, placement);
  });

  it.each<[Hand]>([['freeze unit'], ['freeze slice'], ['freeze prefix'], ['set-property TasksMax=1 unit']])(
    'is stopped and proven dead although "%s" was done to it, and the next one starts (G3)',
    async (hand) => {
      const { worker, resource, placement, meddle, neighbours } = await scene(hand);
      await meddle(hand);
      await worker.link.event('noticed');
      expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
      await meddle('thaw prefix');
      const next = await worker.start(resource, program.name);
      await worker.stopUntilProven(resource, next);
      await neighbours.areUntouched();
    },
  );

  it.each<[Hand]>([['freeze unit'], ['freeze slice'], ['freeze prefix']])(
    'ends with its lease although "%s" was done to it and no worker is there (G7)',
    async (hand) => {
      const { worker, resource, placement, meddle } = await scene(hand);
      await meddle(hand);
      await suite.end(worker);
      await eventually(
        async () => (await suite.machine.run(['systemctl', 'is-active', '-q', placement.unit])).code !== 0,
      );
      await meddle('thaw prefix');
      const next = await suite.worker([program]);
      expect((await next.stopUntilProven(resource, placement)).exit.wording).toBe('unowned');
    },
  );

  it('does not notice what changes nothing, or is refused, and its lease goes on (G7, G11)', async () => {
    const { worker, resource, placement, meddle, identity, neighbours } = await scene();
    const before = await identity();
    const { lease } = suite.filesOf(resource).generation(placement.generation);
    const hands: [Hand, RegExp][] = [
      ['reset-failed unit', /^$/],
      ['thaw unit', /^$/],
      ['start unit', /^$/],
      ['restart timer', /^$/],
      ['start timer', /^$/],
      ['reset-failed timer', /^$/],
      ['kill timer', /not supported/],
      ['freeze timer', /does not support freezing/],
      ['set-property CPUWeight=50 timer', /Unknown assignment/],
      ['reset-failed slice', /^$/],
      ['start slice', /^$/],
    ];
    for (const [hand, answer] of hands)
      expect([hand, await meddle(hand)]).toEqual([hand, expect.stringMatching(answer)]);
    const { n } = (await lease.read())!;
    await eventually(async () => (await lease.read())!.oldest > n + 1);
    expect(await identity()).toBe(before);
    expect(worker.link.events).toEqual([]);
    expect(await suite.timers(placement)).toHaveLength(1);
    await neighbours.areUntouched();
    await worker.stopUntilProven(resource, placement);
  });

  it('without its lease timer has another one, and its owner hears of it (G7, G11)', async () => {
    const { worker, resource, placement, meddle, neighbours } = await scene();
    await meddle('stop timer');
    expect((await worker.link.event('noticed')).what).toBe('its lease timer was gone; armed again');
    expect(await suite.timers(placement)).toHaveLength(1);
    expect(worker.lines.filter(({ message }) => message === 'the lease timer was gone; armed again')).toHaveLength(1);
    await neighbours.areUntouched();
    await worker.stopUntilProven(resource, placement);
  });

  it('that has failed and was forgotten by "reset-failed" is told with how it ended (G3, G8)', async () => {
    const { worker, resource, placement, meddle, neighbours } = await scene();
    await meddle('kill --signal=KILL unit');
    await meddle('reset-failed unit');
    await worker.link.event('ended');
    const { proof, exit } = await worker.stopUntilProven(resource, placement);
    expect([proof.by, exit.wording]).toEqual(['empty', 'signal 9']);
    await neighbours.areUntouched();
  });

  /** The unit's cgroup, as the host sees it. */
  const cgroup = ({ slice, unit }: Placement): string => `/sys/fs/cgroup/own.slice/${slice}/${unit}`;

  /** Begins somebody else's process in a cgroup; returns its pid. */
  async function stray(into: string): Promise<string> {
    const unit = `stray-${Date.now()}.service`;
    await suite.machine.run(['systemd-run', `--unit=${unit}`, 'sleep', '9999']);
    const pid = (await suite.machine.systemctl('show', '--value', '--property=MainPID', unit)).trim();
    await suite.machine.run(['sh', '-c', `echo ${pid} > ${into}/cgroup.procs`]);
    return pid;
  }

  const lives = async (pid: string): Promise<boolean> => (await suite.machine.run(['kill', '-0', pid])).code === 0;

  it('into which a stray was moved ends together with it: what is in our cgroup is ours (G3, G11)', async () => {
    const { worker, resource, placement, neighbours } = await scene();
    const pid = await stray(cgroup(placement));
    expect(await lives(pid)).toBe(true);
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect(await lives(pid)).toBe(false);
    await neighbours.areUntouched();
  });

  it('beside which a stray is in the slice is not proven dead until somebody ends that one (G3, G11)', async () => {
    const { worker, resource, placement, neighbours } = await scene();
    const pid = await stray(dirname(cgroup(placement)));
    for (const rung of ['stop', 'kill', 'cgroup-kill', 'watch'] as const) {
      const answer = worker.stop(resource, placement, { rung });
      const details = { reasons: ['cgroup: populated 1'], processes: [{ command: 'sleep' }] };
      if (rung === 'stop') await expect(answer).rejects.toThrow('cgroup: populated 1');
      else await expect(answer).rejects.toMatchObject({ details });
    }
    expect(await lives(pid)).toBe(true); // it is somebody else's, and not in the cgroup of a unit of ours
    await suite.machine.run(['kill', '-KILL', pid]);
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    await neighbours.areUntouched();
  });

  it.each([
    ['its main process alone', (_procs: string, pid: string) => pid],
    ['every process', (procs: string) => `$(cat ${procs})`],
  ])('of which %s was moved out of its cgroup says so and is not called dead (G4, G11)', async (_which, moved) => {
    const { worker, resource, placement, said, neighbours } = await scene();
    await worker.link.heardFrom('token'); // it was seen where it should be before
    const pid = (await suite.machine.systemctl('show', '--value', '--property=MainPID', placement.unit)).trim();
    const away = '/sys/fs/cgroup/away';
    const pids = moved(`${cgroup(placement)}/cgroup.procs`, pid);
    await suite.machine.run([
      'sh',
      '-c',
      `mkdir -p ${away} && for pid in ${pids}; do echo $pid > ${away}/cgroup.procs; done`,
    ]);
    const what = 'its main process was moved out of its cgroup';
    expect((await worker.link.event('noticed')).what).toBe(what);
    expect(worker.link.events.filter(({ event }) => event.kind === 'ended' || event.kind === 'proven')).toEqual([]);
    expect(said(what)).toBe(1);
    await neighbours.areUntouched();
    await worker.stopUntilProven(resource, placement);
    expect((await suite.machine.run(['cat', `/proc/${pid}/cgroup`])).code).not.toBe(0);
    await suite.machine.run(['sh', '-c', 'kill -9 $(cat /sys/fs/cgroup/away/cgroup.procs); rmdir /sys/fs/cgroup/away']);
  });
});
