import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { hostWorkflowId, ownerWorkflowId } from '../../src/contract/names';
import { hostIdOf, startWorker, type RunningWorker, type RunningWorkerOptions } from '../support/running-worker';
import { resolveTemporalCli } from '../support/temporal-cli';
import { openTemporalServer } from '../support/temporal-server';
import { openTestHost } from '../support/test-host';
import { hostPaths, paths, programs, recordedResource } from './paths';

/** Records every path that has no file yet: `npm run record-histories`. The rules are in README.md. */
async function record(): Promise<void> {
  const folder = join(__dirname, 'histories');
  mkdirSync(folder, { recursive: true });
  const cli = await resolveTemporalCli();
  const server = await openTemporalServer();
  const testHost = await openTestHost();
  const options: RunningWorkerOptions = { server, testHost, programs };
  const owners = await startWorker({ ...options, run: ['workflows'] });
  const hostId = hostIdOf({ server });
  const startHost = (change: Partial<RunningWorkerOptions> = {}): Promise<RunningWorker> =>
    startWorker({ ...options, run: ['host'], ...change });
  let host = await startHost();
  try {
    for (const [name, path] of Object.entries({ ...paths, ...hostPaths })) {
      const file = join(folder, `${name}.json`);
      if (existsSync(file)) continue;
      const resource = recordedResource(name);
      await path({
        client: owners.client,
        server,
        testHost,
        host: hostId,
        resource,
        withoutHost: async (meanwhile) => {
          await host.stop();
          try {
            await meanwhile();
          } finally {
            host = await startHost();
          }
        },
        withHost: async (change, meanwhile) => {
          await host.stop();
          host = await startHost(change);
          try {
            await meanwhile();
          } finally {
            await host.stop();
            host = await startHost();
          }
        },
      });
      // The command line prints the form that is documented to replay; the SDK has no public function for it.
      const workflowId = name in hostPaths ? hostWorkflowId(hostId) : ownerWorkflowId(resource);
      const show = ['workflow', 'show', '--workflow-id', workflowId, '--output', 'json'];
      const where = ['--address', server.address, '--namespace', server.namespace];
      const { stdout } = await promisify(execFile)(cli, [...show, ...where], { maxBuffer: 1 << 26 });
      writeFileSync(file, withoutMachine(stdout));
      console.log(`recorded ${name}`);
    }
  } finally {
    await host.stop();
    await owners.stop();
    await testHost.end();
    await server.stop();
  }
}

/** The history without what is the recording machine's own and no replay looks at: names of its processes, its paths. */
function withoutMachine(history: string): string {
  const own = new Set(['identity', 'stackTrace']);
  const kept = (key: string, value: unknown): unknown => (own.has(key) ? undefined : value);
  return JSON.stringify(JSON.parse(history, kept), null, 1) + '\n';
}

record().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});
