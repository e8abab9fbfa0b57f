#!/usr/bin/env node
import { Client, Connection } from '@temporalio/client';
import type { Duration } from '@temporalio/common';
import { Command, InvalidArgumentError } from 'commander';
import {
  InvalidResourceError,
  OwnershipClient,
  OwnershipError,
  StillRunningError,
  NoHostError,
  type ExitReport,
  type ListedHost,
  type LiveStatus,
  type Proof,
} from './client';
import { toMs } from './client/duration';
import { ConfigError, DEFAULT_CONFIG_FILE, EXIT_CONFIG, loadConfig, resolveConnection, type Config } from './config';
import { ClaimedError } from './host/instance';
import { recoveryText, serverText } from './contract/control';
import { endpointText } from './contract/endpoint';
import { programText } from './contract/facts';
import { NoTemporalError } from './no-temporal-error';

/** Exit code of `stop` when the process is not proven dead in time: the owner goes on stopping it (EX_TEMPFAIL). */
const EXIT_STILL_RUNNING = 75;

const program = new Command('temporal-systemd')
  .description('Exactly one living process per resource: a systemd unit owned by a Temporal workflow.')
  .option('-c, --config <file>', 'configuration', DEFAULT_CONFIG_FILE);

program
  .command('worker')
  .description('serve this host, and the owners where the configuration says so, until SIGTERM')
  .action(async () => {
    const config = load();
    const { runWorker } = await import('./worker'); // the native worker is loaded only where it is needed
    await runWorker(config);
  });

program
  .command('validate')
  .argument('[file]', 'configuration to check')
  .description('check a configuration; exit 78 and all errors at once when it can’t be used')
  .action((file?: string) => {
    const config = loadConfig(file ?? configFile());
    resolveConnection(config.connection, process.env, config.file); // reads the files that it names
    console.log(`${config.file}: ok; programs: ${Object.keys(config.programs).join(', ') || 'none'}`);
  });

program
  .command('list')
  .description('list the open owners')
  .action(() =>
    withClient(async (client) => {
      for await (const owner of client.list()) {
        console.log(
          [owner.resource, owner.program ?? '?', owner.host ?? '?', owner.startedAt.toISOString()].join('\t'),
        );
      }
    }),
  );

program
  .command('status')
  .argument('<resource>')
  .option('--json', 'all of it, as JSON')
  .description('show what the owner of a resource knows and does')
  .action((resource: string, options: { readonly json?: boolean }) =>
    withClient(async (client) => {
      const status = await client.handle(resource).status();
      console.log(options.json ? JSON.stringify(status, null, 2) : statusText(status));
    }),
  );

program
  .command('stop')
  .argument('<resource>')
  .option('--reason <text>', 'why, for everybody who looks')
  .option('--timeout <duration>', 'how long to wait for the proof, e.g. "30 s" (default 1 min)', duration)
  .option('--now', 'SIGKILL at once')
  .description('stop a resource until it is proven dead; exit 75 when it is still running after the timeout')
  .action(
    (resource: string, options: { readonly reason?: string; readonly timeout?: number; readonly now?: boolean }) =>
      withClient(async (client) => {
        const { exit, proof } = await client.handle(resource).stop(options);
        console.log(endText(resource, exit, proof));
      }),
  );

program
  .command('hosts')
  .option('--json', 'all of it, as JSON lines')
  .description('list the hosts of the task queue, and what they hold')
  .action((options: { readonly json?: boolean }) =>
    withClient(async (client) => {
      for await (const host of client.hosts()) console.log(options.json ? JSON.stringify(host) : hostText(host));
    }),
  );

program
  .command('drain')
  .argument('<host>')
  .option('--reason <text>', 'why, for everybody who looks')
  .description('have a host take on no new resources; what it has goes on')
  .action((host: string, options: { readonly reason?: string }) =>
    withClient(async (client) => {
      const { draining } = await client.drain(host, options);
      console.log(`${host}: draining, ${draining?.by ?? '?'}: ${draining?.reason ?? '?'}`);
    }),
  );

program
  .command('undrain')
  .argument('<host>')
  .description('have a host take on new resources again')
  .action((host: string) =>
    withClient(async (client) => {
      await client.undrain(host);
      console.log(`${host}: takes on new resources`);
    }),
  );

program
  .parseAsync()
  .catch((error: unknown) => {
    console.error(isForPeople(error) ? error.message : error);
    process.exitCode = exitCodeOf(error);
  })
  // The long poll of a `stop` that was not proven in time would keep this process for another 20 s.
  .finally(() => process.exit());

/** What the message alone explains. Everything else is shown whole, with its stack. */
function isForPeople(error: unknown): error is Error {
  const kinds = [ClaimedError, ConfigError, InvalidResourceError, NoHostError, NoTemporalError, OwnershipError];
  return kinds.some((kind) => error instanceof kind);
}

function exitCodeOf(error: unknown): number {
  if (error instanceof ConfigError || error instanceof ClaimedError) return EXIT_CONFIG;
  return error instanceof StillRunningError ? EXIT_STILL_RUNNING : 1;
}

function duration(text: string): number {
  try {
    return toMs(text as Duration);
  } catch (error) {
    throw new InvalidArgumentError(error instanceof Error ? error.message : String(error));
  }
}

function configFile(): string {
  return program.opts<{ readonly config: string }>().config;
}

function load(): Config {
  return loadConfig(configFile());
}

async function withClient(run: (client: OwnershipClient) => Promise<void>): Promise<void> {
  const config = load();
  const { connectionOptions, namespace } = resolveConnection(config.connection, process.env, config.file);
  const connection = await Connection.connect(connectionOptions).catch((error: unknown) => {
    throw new NoTemporalError(connectionOptions.address, error);
  });
  try {
    await run(new OwnershipClient(new Client({ connection, namespace }), { taskQueue: config.taskQueue }));
  } finally {
    await connection.close();
  }
}

function statusText(status: LiveStatus): string {
  const { placement, live, asked, control } = status;
  const rows: [string, string | undefined][] = [
    ['state', status.state + (status.hostUnreachableSince === undefined ? '' : ', host unreachable')],
    ['since', new Date(status.since).toISOString()],
    ['program', programText(status.program, status.programState)],
    ['host', status.host],
    ['unit', placement?.unit],
    ['endpoint', placement?.endpoint && endpointText(placement.endpoint)],
    ['server', control && placement?.control && serverText(control, placement.control.endpoint)],
    ['found', control?.recovery && recoveryText(control.recovery)],
    ...(control?.warnings ?? []).map((warning): [string, string] => ['warning', warning]),
    ['asked', asked && `${asked.what} by ${asked.by}${asked.reason && `: ${asked.reason}`}`],
    ['last event', status.lastEvent],
    ['next', status.next],
    ['lease until', live && new Date(live.leaseUntil).toISOString()],
    ['unit says', live?.state],
    ...(live?.processes ?? status.remaining).map((p): [string, string] => [
      'process',
      `${p.pid} ${p.command}, state ${p.state}, waits in ${p.waitChannel}`,
    ]),
  ];
  return rows.flatMap(([name, value]) => (value === undefined ? [] : [`${name.padEnd(12)} ${value}`])).join('\n');
}

function hostText({ host, report, draining, live }: ListedHost): string {
  const { capacity, programs = [], version } = report ?? {};
  return [
    host,
    live ? `${live.units} of ${capacity?.units ?? 'any'} units` : 'not heard of',
    draining ? `draining: ${draining.reason}` : 'takes on resources',
    programs.join(', ') || 'no programs',
    version ?? '?',
  ].join('\t');
}

function endText(resource: string, exit: ExitReport, proof?: Proof): string {
  const by = proof
    ? `proven by ${proof.by === 'reboot' ? 'a reboot' : `systemd (${proof.units}) and its cgroup (${proof.cgroup})`}`
    : 'there was no process';
  return `${resource}: ${exit.wording}; ${by}`;
}
