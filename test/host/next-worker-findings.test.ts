import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Placement } from '../../src/contract/facts';
import type { Finding } from '../../src/host/findings';
import { escapeResource, generationUnit } from '../../src/contract/names';
import { messageOf } from '../../src/host/log';
import type { OwnerStanding } from '../../src/host/owner-link';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { RecordingLink } from '../support/recording-link';

const sleeper = script('sleeper', 'exec sleep 9999');
const short = script('short', 'exec sleep 9999', { leaseMs: 3000 });

/** What is done to a file of a generation. */
type Harm = (file: string) => Promise<void>;

const cutOff: Harm = async (file) => {
  const text = await readFile(file, 'utf8');
  await writeFile(file, text.slice(0, text.length / 2));
};
const aDirectory: Harm = async (file) => {
  await rm(file, { force: true });
  await mkdir(file);
};
const changed =
  (change: (record: Record<string, unknown>) => object): Harm =>
  async (file) =>
    writeFile(file, JSON.stringify(change(JSON.parse(await readFile(file, 'utf8')) as Record<string, unknown>)));

describeOnPrivateHost('what the next worker process finds', () => {
  const suite = new HostSuite();

  /** Starts one, and lets a next worker find it after `harm`; beside it runs another one, which is held. */
  async function find(
    harm: (resource: string, placement: Placement) => Promise<void>,
    owner: OwnerStanding = 'open',
  ): Promise<{
    resource: string;
    other: string;
    placement: Placement;
    next: SuiteHost;
    link: RecordingLink;
    found: Finding[];
  }> {
    const worker = await suite.worker([sleeper]);
    const [resource, other] = [suite.resource(), suite.resource()];
    const [placement, beside] = [await worker.start(resource, 'sleeper'), await worker.start(other, 'sleeper')];
    await worker.host.hold(holdInput(other, beside), 'beside', 1);
    await suite.end(worker);
    await harm(resource, placement);

    const link = new RecordingLink();
    link.owners = () => owner;
    const next = await suite.worker([sleeper], { link });
    await next.host.reconciled();
    await link.heard(1); // whatever was found: the others are served
    await next.stop(other, beside);
    const found = about(next, resource);
    // Each is said once, with all that is known of it.
    const said = next.lines.filter(({ attributes }) => attributes.resource === resource && 'next' in attributes);
    expect(said.map(({ message, level }) => [message, level])).toEqual(found.map(({ kind }) => [kind, 'warn']));
    return { resource, other, placement, next, link, found };
  }

  /** What a worker has found of these resources; other tests leave things behind on purpose. */
  function about({ host }: SuiteHost, ...resources: readonly string[]): Finding[] {
    return host.findings.filter(({ resource }) => resources.includes(resource));
  }

  const file = (resource: string, { generation }: Placement, name: string): string =>
    join(suite.filesOf(resource).generation(generation).outside, name);

  async function lives({ unit, invocation }: Placement, worker: SuiteHost): Promise<void> {
    const state = { ActiveState: 'active', InvocationID: invocation };
    expect(await worker.unit(unit, 'ActiveState', 'InvocationID')).toEqual(state);
  }

  it.each<[string, string, Harm, Finding['kind']]>([
    ['a launch record that is cut off', 'launch.json', cutOff, 'files-unreadable'],
    ['a launch record that is a directory', 'launch.json', aDirectory, 'files-unreadable'],
    ['a launch record that is JSON of another kind', 'launch.json', (f) => writeFile(f, 'null'), 'files-unreadable'],
    ['a lease that is cut off', 'lease.json', cutOff, 'files-unreadable'],
    ['a lease without a number', 'lease.json', changed(({ deadline }) => ({ deadline })), 'files-unreadable'],
    ['no lease', 'lease.json', (f) => rm(f), 'files-incomplete'],
    ['another version', 'launch.json', changed((all) => ({ ...all, version: 2 })), 'files-other-version'],
    ['another resource', 'launch.json', changed((all) => ({ ...all, resource: 'x/y' })), 'files-other-subject'],
    [
      'another generation',
      'launch.json',
      changed((all) => ({ ...all, placement: { ...(all.placement as Placement), generation: 7 } })),
      'files-other-subject',
    ],
    [
      'another boot',
      'launch.json',
      changed((all) => ({ ...all, placement: { ...(all.placement as Placement), bootId: 'an earlier one' } })),
      'files-other-boot',
    ],
  ])('%s: named, and what runs is left to its lease and can be stopped (G3, G4)', async (_what, name, harm, kind) => {
    const { resource, placement, next, link, found } = await find((...of) => harm(file(...of, name)), 'completed');
    const { generation, unit } = placement;
    expect(found).toEqual([{ kind, resource, generation, unit, owner: 'completed', found: expect.any(String) }]);
    expect(link.asked).toContain(resource);
    await lives(placement, next);
    // Its owner is not told that it is over for this: it runs.
    await expect(next.host.hold(holdInput(resource, placement), 'token', 1)).rejects.toThrow(/left to its lease/);
    expect(link.events).toEqual([]);
    expect((await next.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect(about(next, resource)).toEqual([]);
  });

  it.each(['hold.json', 'stopping.json', 'end.json'])(
    '%s that is cut off is not needed: the process is held by its owner’s next hold (G4, G7)',
    async (name) => {
      const { resource, placement, next, link, found } = await find((...of) => writeFile(file(...of, name), '{"to'));
      expect(found).toEqual([]);
      await next.host.hold(holdInput(resource, placement, { greet: true }), 'token', 1);
      await link.event('holding');
      await lives(placement, next);
      await next.stopUntilProven(resource, placement);
    },
  );

  it('a unit without files: named, given an owner where that is gone, and stopped by whoever owns it (G1, G3, G4)', async () => {
    const { resource, placement, next, link, found } = await find((of) => {
      return rm(dirname(suite.filesOf(of).generation(1).outside), { recursive: true });
    }, 'gone');
    const { generation, unit } = placement;
    expect(found).toMatchObject([{ kind: 'unit-without-files', resource, generation, unit, owner: 'gone' }]);
    expect(link.broughtToEnd).toMatchObject([{ resource, program: 'unknown' }]);
    expect(link.broughtToEnd[0]).not.toHaveProperty('placement');
    await lives(placement, next);
    await expect(next.host.hold(holdInput(resource, placement), 'token', 1)).rejects.toThrow(/no files of generation/);
    expect((await next.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    expect(about(next, resource)).toEqual([]);
  });

  it('ends with its lease where its files are lost, and its owner is told once that is over (G7)', async () => {
    const worker = await suite.worker([short]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'short');
    await suite.end(worker);
    await rm(file(resource, placement, 'launch.json'));
    const next = await suite.worker([short]);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    await next.host.hold(holdInput(resource, placement), 'token', 1);
    expect((await next.link.event('ended')).reason).toContain('no files of generation');
  });

  it('a stranger’s unit with such a name: named, and never touched (G6, G11)', async () => {
    const resource = suite.resource();
    const unit = generationUnit('own', resource, 5);
    await suite.machine.run(['systemd-run', `--unit=${unit}`, 'sleep', '9999']);
    const worker = await suite.worker([]);
    await worker.host.reconciled();
    const found = about(worker, resource);
    expect(found).toEqual([{ kind: 'unit-stranger', resource, generation: 5, unit, found: expect.any(String) }]);
    expect(await worker.unit(unit, 'ActiveState')).toEqual({ ActiveState: 'active' });
    await suite.machine.systemctl('stop', unit);
  });

  it('a stranger’s unit that is made while it runs: said once, never touched, and over with that unit (G6, G11)', async () => {
    const worker = await suite.worker([sleeper], { resyncMs: 100 });
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    const unit = generationUnit('own', resource, placement.generation + 1);
    await suite.machine.run(['systemd-run', `--unit=${unit}`, 'sleep', '9999']);
    await eventually(() => Promise.resolve(about(worker, resource).length === 1));
    expect(about(worker, resource)).toMatchObject([{ kind: 'unit-stranger', unit }]);
    // Nobody's process is killed, so the resource is not free: a person has to decide.
    const answer = (): Promise<string> => worker.stop(resource, placement).then(() => 'proven', messageOf);
    await eventually(async () => !(await answer()).includes(placement.unit)); // our own has ended
    expect(await answer()).toContain(`${unit} was made by somebody else and is never touched`);
    expect(await worker.unit(unit, 'ActiveState')).toEqual({ ActiveState: 'active' });
    const said = (message: string): number => worker.lines.filter((line) => line.message === message).length;
    expect(said('unit-stranger')).toBe(1);
    await suite.machine.systemctl('stop', unit);
    expect((await worker.stopUntilProven(resource, placement)).proof.by).toBe('empty');
    await eventually(() => Promise.resolve(said('no longer: unit-stranger') === 1));
    expect(about(worker, resource)).toEqual([]);
  });

  it('files without their unit: named while their owner has not heard, and proven after (G3)', async () => {
    const worker = await suite.worker([short]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'short');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.end(worker);
    await suite.machine.systemctl('stop', placement.unit);
    await eventually(async () => !(await suite.loaded(resource)).includes(placement.unit));
    const link = new RecordingLink();
    link.completion = 'unknown';
    const next = await suite.worker([short], { link });
    const { generation } = placement;
    expect(about(next, resource)).toMatchObject([{ kind: 'files-without-unit', resource, generation }]);
    link.completion = 'ok';
    expect((await link.event('ended')).reason).toContain('the unit is gone');
    const { end } = suite.filesOf(resource).generation(generation);
    await eventually(async () => (await end.read()) !== undefined);
    expect(about(next, resource)).toEqual([]);
  });

  it('a file in the place of a resource’s directory keeps it from nothing else (G4, G11)', async () => {
    const resource = suite.resource();
    const path = join(suite.machine.root, suite.machine.runDirectory, 'own', escapeResource(resource));
    await suite.worker([]);
    await writeFile(path, '');
    const worker = await suite.worker([sleeper]);
    expect(about(worker, resource)).toMatchObject([{ kind: 'files-unreadable', resource }]);
    const other = suite.resource();
    await worker.stop(other, await worker.start(other, 'sleeper'));
    await rm(path);
  });

  it.each<[OwnerStanding, readonly string[]]>([
    ['completed', ['owner-closed']],
    ['gone', ['owner-closed']],
    ['open', []],
    ['unknown', []],
  ])('what nobody holds, whose owner is %s: %j, and nothing is done for it (G4)', async (owner, kinds) => {
    const { resource, other, placement, next, link, found } = await find(() => Promise.resolve(), owner);
    expect(found.map(({ kind }) => kind)).toEqual(kinds);
    expect(link.asked.filter((one) => one === resource)).toHaveLength(1);
    expect(link.asked).not.toContain(other); // only for what nobody holds
    await lives(placement, next);
    await next.host.hold(holdInput(resource, placement), 'token', 1); // somebody has it after all
    expect(about(next, resource)).toEqual([]);
    await next.stopUntilProven(resource, placement);
  });

  it('whose hold its owner no longer knows, and who has none any more: a finding from then on (G4)', async () => {
    const worker = await suite.worker([sleeper]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.end(worker);
    const link = new RecordingLink();
    link.answer = 'not-found';
    link.owners = () => 'gone';
    const next = await suite.worker([sleeper], { link });
    await eventually(async () => about(next, resource).some(({ kind }) => kind === 'owner-closed'));
    await lives(placement, next);
    await next.stopUntilProven(resource, placement);
    expect(about(next, resource)).toEqual([]);
  });

  it('asks systemd for one list, and waits for no answer of Temporal’s (G4)', async () => {
    const worker = await suite.worker([sleeper]);
    const [held, loose] = [suite.resource(), suite.resource()];
    const placements = [await worker.start(held, 'sleeper'), await worker.start(loose, 'sleeper')] as const;
    await worker.host.hold(holdInput(held, placements[0]), 'token', 1);
    await suite.end(worker);
    const lists: string[] = [];
    const link = new RecordingLink();
    link.owners = () => new Promise(() => undefined);
    const next = await suite.worker([sleeper], { link }, (inner) => ({
      listUnits: (pattern) => {
        lists.push(pattern);
        return inner.listUnits(pattern);
      },
    }));
    expect(lists.filter((pattern) => pattern === 'own-*')).toHaveLength(1);
    await link.heardFrom('token');
    expect(about(next, held, loose)).toEqual([]);
    await next.stop(held, placements[0]);
    await next.stop(loose, placements[1]);
  });
});
