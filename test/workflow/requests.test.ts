import { WorkflowUpdateFailedError } from '@temporalio/client';
import type { ApplicationFailure } from '@temporalio/common';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FailureType } from '../../src/contract/failures';
import { ownerWorkflowId } from '../../src/contract/names';
import { OWNER_WORKFLOW, type OwnerStatus } from '../../src/contract/owner';
import { script } from '../support/owned-host';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';

/** Must not be seen anywhere outside of the host. */
const SECRET = 'hunter2-planted-secret';

describe('what people see and say in the Temporal UI', () => {
  let scene: Scene;

  beforeAll(async () => {
    const testHost = await openTestHost();
    const file = join(testHost.stateDirectory, 'secret');
    await writeFile(file, `TOKEN=${SECRET}\n`);
    scene = await Scene.open(
      [
        script('sleeper', 'exec sleep 1000'),
        script('secretive', 'echo "$TOKEN $OTHER $(cat "$CREDENTIALS_DIRECTORY/key")"; exec sleep 1000', {
          environmentFiles: [file],
          environment: { OTHER: SECRET },
          credentials: { key: file },
        }),
        script('deaf', `trap '' TERM; while :; do sleep 0.1; done`, {
          stop: { signal: 'SIGTERM', timeoutMs: 30_000, killMode: 'control-group' },
        }),
      ],
      { testHost },
    );
  });
  afterAll(() => scene?.end());

  async function refusal(name: string, update: string, request: unknown): Promise<ApplicationFailure> {
    const error = await scene
      .workflow(name)
      .executeUpdate(update, { args: [request] })
      .catch((e: unknown) => e);
    expect(error).toBeInstanceOf(WorkflowUpdateFailedError);
    return (error as WorkflowUpdateFailedError).cause as ApplicationFailure;
  }

  it.each([
    ['stop', ['now'], 'give a JSON object such as {"reason": "maintenance"}, not ["now"]'],
    ['stop', 'please', 'give a JSON object such as {"reason": "maintenance"}, not "please"'],
    ['stop', { now: 'yes' }, '"now" is true or false, not "yes"'],
    ['restart', { reason: 5 }, '"reason" is a text, not 5'],
    ['release', { by: {} }, '"by" is a text, not {}'],
  ])('a malformed %s is refused with what to write instead', async (update, request, message) => {
    const { handle } = await scene.own('malformed', 'sleeper');
    await handle.ready();
    expect(await refusal('malformed', update, request)).toMatchObject({ type: FailureType.InvalidRequest, message });
    expect((await handle.status()).state).toBe('running');
  });

  it('a request for another owner is refused, by update and by signal', async () => {
    const { handle } = await scene.own('theirs', 'sleeper');
    await handle.ready();
    for (const update of ['stop', 'restart', 'release', 'ready']) {
      expect(await refusal('theirs', update, { ownerId: 'another' })).toMatchObject({ type: FailureType.NotThisOwner });
    }
    await scene.workflow('theirs').signal('requestStop', { ownerId: 'another' });
    await scene.workflow('theirs').signal('requestStop', 'nonsense');
    const { asked, state } = await handle.status();
    expect({ asked, state }).toEqual({ asked: undefined, state: 'running' });
    await scene.workflow('theirs').signal('requestStop', { by: 'a person' });
    expect(await handle.result()).toMatchObject({ end: 'stopped' });
  });

  it('requests without any input are as good', async () => {
    const { handle } = await scene.own('bare', 'sleeper');
    expect(await scene.workflow('bare').executeUpdate('own')).toMatchObject({ outcome: 'joined', program: 'sleeper' });
    expect(await scene.workflow('bare').executeUpdate('ready')).toMatchObject({ ready: true });
    const answer = { ownerId: handle.ownerId, state: 'running' };
    expect(await scene.workflow('bare').executeUpdate('stop')).toMatchObject({
      ...answer,
      message: expect.stringContaining('proven dead'),
    });
    expect(await handle.result()).toMatchObject({ end: 'stopped' });
  });

  it.each([
    [undefined, 'start an owner with'],
    [{ resource: 'a//b' }, 'has an empty segment'],
    [{ resource: 'not/this' }, 'has workflow id own:not/this'],
    [{ host: 5 }, '"host" is a name'],
    [{ parameters: { a: 1 } }, '"parameters" is an object of texts'],
  ])('an owner that is started by hand with %j fails and says why', async (input, message) => {
    const name = `by-hand-${message.length}`;
    const whole = { resource: scene.resource(name), program: 'sleeper', host: 'h', parameters: {}, requestId: '-' };
    const handle = await scene.server.client.workflow.start(OWNER_WORKFLOW, {
      workflowId: ownerWorkflowId(scene.resource(name)),
      taskQueue: scene.server.taskQueue,
      args: input ? [{ ...whole, ...input }] : [],
    });
    await expect(handle.result()).rejects.toMatchObject({ cause: { message: expect.stringContaining(message) } });
  });

  it('the UI shows a summary, a table of what it waits for, and what each request does', async () => {
    const { handle } = await scene.own('shown', 'deaf');
    await handle.ready();
    await handle.requestStop({ by: 'ops|1', reason: 'two\nlines' });
    const { unit } = (await scene.status('shown', 'stops', ({ remaining }) => remaining.length > 0)).placement!;
    const workflow = scene.workflow('shown');
    expect(await (await workflow.describe()).staticSummary()).toBe(
      `${scene.resource('shown')}: deaf on ${scene.hostId()}`,
    );

    const metadata = await workflow.query<{
      readonly currentDetails: string;
      readonly definition: Record<string, { readonly name: string; readonly description: string }[]>;
    }>('__temporal_workflow_metadata');
    const table = metadata.currentDetails.split('\n');
    expect(table).toContain('| state | stopping |');
    expect(table).toContain(`| unit | ${unit} |`);
    expect(table.find((line) => line.startsWith('| asked |'))).toMatch(/stop by ops 1 at .*: two lines \|$/);
    expect(table.find((line) => line.startsWith('| still there |'))).toContain('sh (S');
    expect(table.every((line) => line.split('|').length === 4)).toBe(true);
    const updates = metadata.definition.updateDefinitions!;
    expect(updates.map(({ name }) => name).sort()).toEqual(['own', 'ready', 'release', 'restart', 'stop']);
    for (const { description } of updates) expect(description).toMatch(/\w{4}/);

    const { events } = await workflow.fetchHistory();
    const summaries = events!.flatMap((event) => {
      const { data } = event.userMetadata?.summary ?? {};
      return data ? [JSON.parse(Buffer.from(data).toString()) as string] : [];
    });
    expect(summaries.join('\n')).toMatch(
      /start deaf, generation \d+[^]*hold own[^]*stop: until proven dead[^]*after stop: wait for the proof/,
    );
    await handle.stop({ now: true });
  });

  it('no environment value and no credential is in any of it (G9)', async () => {
    const { handle } = await scene.own('secretive', 'secretive');
    const { unit } = await handle.ready();
    // The process has them.
    const environment = await scene.testHost.run(['cat', `/proc/${await scene.mainPid(unit)}/environ`]);
    expect(environment.stdout).toContain(SECRET);
    await scene.status('secretive', 'is up', ({ state }) => state === 'running');
    const status: OwnerStatus = await handle.status();
    const description = await scene.workflow('secretive').describe();
    await handle.restart();
    await scene.status('secretive', 'runs again', ({ restarts, state }) => restarts === 1 && state === 'running');
    const report = await handle.stop();
    const { events } = await scene.workflow('secretive').fetchHistory();

    const said = [JSON.stringify([status, report]), ...payloadsOf([events, description.raw])].join('\n');
    expect(said).toContain('secretive');
    expect(said).not.toContain(SECRET);
    expect(said).not.toContain(Buffer.from(SECRET).toString('base64').slice(0, -4));
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(8);
  });
});

/** Every text and every payload's content in an object of the API. */
function payloadsOf(value: unknown): string[] {
  if (value instanceof Uint8Array) return [Buffer.from(value).toString()];
  if (typeof value === 'object' && value !== null) return Object.values(value).flatMap(payloadsOf);
  return typeof value === 'string' ? [value] : [];
}
