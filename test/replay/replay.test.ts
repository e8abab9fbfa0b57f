import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DefaultLogger, Runtime, Worker } from '@temporalio/worker';
import { ownerWorkflowId } from '../../src/contract/names';
import { workflowBundle } from '../support/running-worker';
import { paths, recordedResource, SECRET } from './paths';

const folder = join(__dirname, 'histories');

Runtime.install({ logger: new DefaultLogger('ERROR') });

describe('recorded owners', () => {
  const files = readdirSync(folder).filter((file) => file.endsWith('.json'));

  it.each(files)('%s replays with the owner’s code as it is now', async (file) => {
    const history: unknown = JSON.parse(readFileSync(join(folder, file), 'utf8'));
    const workflowId = ownerWorkflowId(recordedResource(file.replace('.json', '')));
    await Worker.runReplayHistory({ workflowBundle: await workflowBundle() }, history, workflowId);
  });

  it.each(files)('%s holds no value of the environment (G9)', (file) => {
    const text = readFileSync(join(folder, file), 'utf8');
    expect(text).not.toContain(SECRET);
    expect(text).not.toContain(Buffer.from(SECRET).toString('base64').slice(0, 20));
  });

  it('there is a recording of every path', () => {
    expect(files.map((file) => file.replace('.json', '')).sort()).toEqual(Object.keys(paths).sort());
  });
});
