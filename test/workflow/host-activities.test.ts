import { MockActivityEnvironment } from '@temporalio/testing';
import { DefaultLogger } from '@temporalio/worker';
import { createHostActivities } from '../../src/activities/host-activities';
import { ActivityName } from '../../src/contract/activities';
import { FailureType } from '../../src/contract/failures';
import type { Host } from '../../src/host/host';

/** All but the one that is the host's own workflow's. */
const OF_OWNERS = Object.values(ActivityName).filter((name) => name !== ActivityName.serveHost);

/** A host that must not be asked for anything. */
const host = new Proxy(
  {},
  { get: (_, call) => () => Promise.reject(new Error(`the host was asked to ${String(call)}`)) },
) as Host;

const owner = { namespace: 'default', taskQueue: 'owners', workflowId: 'own:db/one', ownerId: 'run-1' };
const placement = {
  host: 'h1',
  instance: 'i',
  bootId: 'b',
  prefix: 'own',
  generation: 7,
  unit: 'own-db_2fone-g7.service',
  slice: 'own-db_2fone.slice',
  invocation: '',
  cgroupId: '',
};
const sound = {
  resource: 'db/one',
  owner,
  generation: 7,
  epoch: 7,
  program: 'p',
  parameters: {},
  rung: 'cgroup-kill',
  placement,
};

describe('whoever can start a workflow', () => {
  const activities = createHostActivities(host) as unknown as Record<string, (input: unknown) => Promise<unknown>>;
  const environment = new MockActivityEnvironment(
    { namespace: 'default', workflowExecution: { workflowId: 'own:db/one', runId: 'r' } },
    { logger: new DefaultLogger('ERROR') }, // every refusal would be a warning
  );
  const run = (name: string, input: unknown): Promise<unknown> => environment.run(activities[name]!, input);

  it.each([
    ['nothing', undefined, 'expected an object'],
    ['another resource', { resource: 'db/two', placement: undefined }, 'own:db/one is not the owner of db/two'],
    ['a name that is none', { resource: '../etc' }, 'has a segment ".."'],
    ['another workflow', { owner: { ...owner, workflowId: 'own:db/two' } }, 'is not the workflow that asks'],
    ['another namespace', { owner: { ...owner, namespace: 'theirs' } }, 'is not the workflow that asks'],
    ['no owner', { owner: undefined }, 'the owner has no id'],
    ['a prefix that is a path', { placement: { ...placement, prefix: '../own' } }, 'is not a unit prefix'],
    ['a unit that is a path', { placement: { ...placement, unit: '../../init.scope' } }, 'is not of db/one'],
    [
      'a unit of another resource',
      { placement: { ...placement, unit: 'own-db_2ftwo-g7.service' } },
      'is not of db/one',
    ],
    ['a slice of another resource', { placement: { ...placement, slice: 'own.slice' } }, 'is not of db/one'],
    [
      'a placement without a generation',
      { placement: { ...placement, generation: undefined } },
      'is not a positive integer',
    ],
  ])('can’t have a host act on %s (G10, G11)', async (_title, change, message) => {
    const input = change && { ...sound, ...change };
    for (const name of OF_OWNERS) {
      const refusal = {
        type: FailureType.InvalidRequest,
        nonRetryable: true,
        message: expect.stringContaining(message),
      };
      await expect(run(name, input)).rejects.toMatchObject(refusal);
    }
  });

  it.each([
    ['as nothing', undefined, 'expected an object'],
    ['as another host', { host: 'h1', instance: 'i' }, 'own:db/one is not the workflow of host "h1"'],
    ['as a host without a name', { instance: 'i' }, 'is not the workflow of host undefined'],
  ])('can’t speak to a host %s (G10)', async (_title, input, message) => {
    const refusal = { type: FailureType.InvalidRequest, message: expect.stringContaining(message) as string };
    await expect(run(ActivityName.serveHost, input)).rejects.toMatchObject(refusal);
  });

  it.each(['7', 0, -1, 1.5, undefined])('can’t have it start or stop generation %p', async (generation) => {
    for (const name of [ActivityName.startGeneration, ActivityName.stopResource]) {
      await expect(run(name, { ...sound, generation })).rejects.toMatchObject({ type: FailureType.InvalidRequest });
    }
    const adoption = run(ActivityName.adoptServer, { ...sound, epoch: generation });
    await expect(adoption).rejects.toMatchObject({ type: FailureType.InvalidRequest });
  });

  it('is heard where all of it fits, and an error of the host is no answer (G4)', async () => {
    for (const name of OF_OWNERS) {
      const failure = { type: FailureType.Unknown, message: expect.stringContaining('the host was asked to') };
      await expect(run(name, sound)).rejects.toMatchObject(failure);
    }
  });
});
