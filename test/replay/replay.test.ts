import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { workflowBundle } from '../support/running-worker';
import { hostPaths, paths, SECRET } from './paths';

/** What is looked at of a history as `temporal workflow show` prints it; an owner checks that its id is its resource's. */
interface RecordedHistory {
  readonly events: readonly [{ readonly workflowExecutionStartedEventAttributes: { readonly workflowId: string } }];
}

const folder = join(__dirname, 'histories');

Runtime.install({ logger: new DefaultLogger('ERROR') });

describe('recorded owners and hosts', () => {
  const files = readdirSync(folder).filter((file) => file.endsWith('.json'));

  it.each(files)('%s replays with the code as it is now', async (file) => {
    const history = JSON.parse(readFileSync(join(folder, file), 'utf8')) as RecordedHistory;
    const { workflowId } = history.events[0].workflowExecutionStartedEventAttributes;
    await Worker.runReplayHistory({ workflowBundle: await workflowBundle() }, history, workflowId);
  });

  it.each(files)('%s holds no value of the environment (G9)', (file) => {
    const text = readFileSync(join(folder, file), 'utf8');
    const payloads = [...text.matchAll(/"data": "([^"]*)"/g)].map(([, data]) =>
      Buffer.from(data!, 'base64').toString(),
    );
    expect(payloads).not.toEqual([]);
    expect([text, ...payloads].join('\n')).not.toContain(SECRET);
  });

  it('there is a recording of every path', () => {
    expect(files.map((file) => file.replace('.json', '')).sort()).toEqual(
      Object.keys({ ...paths, ...hostPaths }).sort(),
    );
  });
});
