import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ownerWorkflowId } from '../../src/contract/names';
import { hostIdOf, startWorker, type RunningWorkerOptions } from '../support/running-worker';
import { resolveTemporalCli } from '../support/temporal-cli';
import { openTemporalServer } from '../support/temporal-server';
import { openTestHost } from '../support/test-host';
import { paths, programs, recordedResource } from './paths';

/** Records every path that has no file yet: `npm run record-histories`. The rules are in README.md. */
async function record(): Promise<void> {
  const folder = join(__dirname, 'histories');
  mkdirSync(folder, { recursive: true });
  const cli = await resolveTemporalCli();
  const server = await openTemporalServer();
  const testHost = await openTestHost();
  const options: RunningWorkerOptions = { server, testHost, programs };
  const owners = await startWorker({ ...options, run: ['workflows'] });
  let host = await startWorker({ ...options, run: ['host'] });
  try {
    for (const [name, path] of Object.entries(paths)) {
      const file = join(folder, `${name}.json`);
      if (existsSync(file)) continue;
      const resource = recordedResource(name);
      await path({
        client: owners.client,
        server,
        testHost,
        host: hostIdOf({ server }),
        resource,
        withoutHost: async (meanwhile) => {
          await host.stop();
          try {
            await meanwhile();
          } finally {
            host = await startWorker({ ...options, run: ['host'] });
          }
        },
      });
      // The command line prints the form that is documented to replay; the SDK has no public function for it.
      const show = ['workflow', 'show', '--workflow-id', ownerWorkflowId(resource), '--output', 'json'];
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
