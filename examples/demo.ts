/**
 * The main job, on a real process: own it, watch it, stop it until it is proven dead. `npm run demo` runs this file.
 *
 * Your own code imports from `temporal-systemd`, `temporal-systemd/client` and `temporal-systemd/workflows`; what comes
 * from `test/support` here is a Temporal server and a systemd host for machines that have none.
 */
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { Worker } from '@temporalio/worker';
import { loadConfig, SystemdPlugin, type Config, type HostLog } from '../src';
import { OwnershipClient } from '../src/client';
import { openTemporalServer, type TemporalServer } from '../test/support/temporal-server';
import { openTestHost, type TestHost } from '../test/support/test-host';
import { CleanUp, endWorkflows, lookCommand, print, printChanges, printEnd, time, workflowLink } from './demo-support';

const RESOURCE = 'demo/greeter';
const keep = process.argv.includes('--keep');

async function main(cleanUp: CleanUp): Promise<void> {
  // 1. A Temporal server and a systemd host: existing ones, else embedded ones.
  const server = await cleanUp.after(openTemporalServer({ ui: true, report: print }), (opened) => opened.stop());
  const host = await cleanUp.after(openTestHost(), (opened) => opened.end());
  print(`Temporal server  ${server.address}, namespace ${server.namespace}`);
  print(`systemd host     ${'pid' in host ? 'a private systemd, booted for this demo' : 'your own user manager'}`);

  // 2. A worker for both: owners (workflows) and the host (activities), from the temporal.yaml that is shipped.
  const config = configFor(server, host);
  const worker = await Worker.create({
    connection: server.nativeConnection,
    namespace: server.namespace,
    taskQueue: config.taskQueue,
    workflowsPath: require.resolve('../src/workflows'),
    plugins: [new SystemdPlugin(config, { root: host.root, log: printingLog })],
  });
  const running = worker.run();
  running.catch((error: unknown) => print(`the worker ended: ${String(error)}`));
  cleanUp.add(async () => {
    if (worker.getState() === 'RUNNING') worker.shutdown();
    await running;
    await endWorkflows(server, config.host.id, RESOURCE);
  });

  // 3. Own a resource. Whoever asks second joins the owner that there is.
  const client = new OwnershipClient(server.client, { taskQueue: config.taskQueue });
  const own = { resource: RESOURCE, program: 'ticker', host: config.host.id, parameters: { seconds: '1' } };
  print(`\nown ${RESOURCE}: program ${own.program}, every ${own.parameters.seconds} s`);
  const { handle } = await client.own(own);
  const watching = printChanges(handle);
  const { unit } = await handle.ready();
  print(`\nTemporal UI      ${workflowLink(server, RESOURCE)}`);
  print(`look at it       ${lookCommand(host, unit)}\n`);
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  print((await host.systemctl('status', '--lines=3', unit)).replace(/^(?=.)/gm, '    '));

  // 4. Stop it. This resolves after the proof and not before; it rejects while anything is left.
  print(`stop ${RESOURCE}`);
  const result = await handle.stop({ reason: 'the demo is over', by: 'demo' });
  await watching;
  printEnd(result);
  if (!keep) return print('\nnpm run demo -- control-server shows a process that outlives its owner and its worker.');

  // 5. --keep: owned once more, for a look around.
  const again = await client.own(own);
  const placement = await again.handle.ready();
  print(`\nOwned once more, generation ${placement.generation}. Everything stays up until Ctrl-C:`);
  print(`Temporal UI      ${workflowLink(server, RESOURCE)}`);
  print(`look at it       ${lookCommand(host, placement.unit)}`);
  await printChanges(again.handle);
  printEnd(await again.handle.result()); // somebody stopped it in the UI
  print('It has ended; server, host and worker stay up until Ctrl-C.');
  await new Promise(() => undefined);
}

/** The shipped temporal.yaml, pointed at the server and the host that were opened. */
function configFor(server: TemporalServer, host: TestHost): Config {
  const shipped = loadConfig(join(__dirname, '../temporal.yaml'));
  const id = `demo-${randomBytes(3).toString('hex')}`;
  return {
    ...shipped,
    connection: { address: server.address, namespace: server.namespace },
    taskQueue: `${shipped.taskQueue}-${id}`,
    host: {
      ...shipped.host,
      id,
      stateDirectory: host.stateDirectory,
      runDirectory: host.runDirectory,
      systemd: {
        ...shipped.host.systemd,
        busAddress: host.busAddress,
        manager: host.manager,
        unitPrefix: host.unitPrefix,
      },
    },
  };
}

/** What the host's worker logs, as it comes. */
const printingLog: HostLog = {
  debug: () => undefined,
  info: printHost,
  warn: printHost,
  error: printHost,
};

function printHost(message: string, { unit, generation, by, exit, error }: Record<string, unknown> = {}): void {
  const words = [message, unit ?? generation, by, exit, error].filter((word) => word !== undefined);
  print(`${time()}  host   ${words.map(String).join(' ')}`);
}

void CleanUp.around(main);
