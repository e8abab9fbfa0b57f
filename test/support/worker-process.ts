import { spawn, type ChildProcess } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { stringify } from 'yaml';
import { collectOutput } from './command';
import type { PrivateHost } from './private-host';
import type { CommandResult, TestHost } from './test-host';
import type { TemporalServer } from './temporal-server';

const repository = resolve(__dirname, '../..');

/** A line of the structured log. */
export interface WorkerLine {
  readonly level: number;
  readonly msg: string;
  readonly [attribute: string]: unknown;
}

/** `temporal-systemd …`, run for real: a process of its own, inside the host. */
export interface CliProcess {
  /** What it has printed on standard output that is JSON. */
  readonly lines: readonly WorkerLine[];
  /** The first line with this message, now or later. Rejects with what it said when it ends before. */
  line(message: string): Promise<WorkerLine>;
  kill(signal?: NodeJS.Signals): void;
  readonly ended: Promise<CommandResult>;
}

/** Runs the command line inside a test host, as its worker would be run there, with this checkout's code. */
export function runCli(testHost: TestHost, args: readonly string[], env: NodeJS.ProcessEnv = {}): CliProcess {
  const command = [process.execPath, '--require', './test/support/typescript-hook.js', 'src/cli.ts', ...args];
  const options = { env: { ...process.env, ...env }, cwd: repository };
  const child = spawnOn(testHost, command, options);
  child.stdin?.end();
  const lines: WorkerLine[] = [];
  let rest = '';
  child.stdout?.on('data', (chunk: string | Buffer) => {
    const texts = (rest + chunk.toString()).split('\n');
    rest = texts.pop() ?? '';
    for (const text of texts) if (text.startsWith('{"level"')) lines.push(JSON.parse(text) as WorkerLine);
  });
  const ended = collectOutput(child);
  const line = async (message: string): Promise<WorkerLine> => {
    for (;;) {
      const found = lines.find(({ msg }) => msg === message);
      if (found) return found;
      const next = new Promise<undefined>((resolve) => child.stdout?.once('data', () => resolve(undefined)));
      const end = await Promise.race([next, ended]);
      if (end && !lines.some(({ msg }) => msg === message)) {
        throw new Error(`ended with ${end.code} without "${message}": ${end.stdout}${end.stderr}`);
      }
    }
  };
  return { lines, line, kill: (signal) => void child.kill(signal), ended };
}

function spawnOn(
  testHost: TestHost & Partial<Pick<PrivateHost, 'spawn'>>,
  command: string[],
  options: { readonly env: NodeJS.ProcessEnv; readonly cwd: string },
): ChildProcess {
  return testHost.spawn?.(command, options) ?? spawn(command[0]!, command.slice(1), options);
}

/** Writes a `temporal.yaml` for a worker inside the host, beside its state; `change` overrides keys of its `host` section. */
export async function writeConfig(
  {
    server,
    testHost,
    hostId,
  }: { readonly server: TemporalServer; readonly testHost: TestHost; readonly hostId: string },
  programs: Record<string, unknown>,
  change: {
    readonly run?: readonly string[];
    readonly prefix?: string;
    readonly state?: string;
    readonly name?: string;
    readonly bus?: string;
    readonly resync?: string;
  } = {},
): Promise<string> {
  const inside = (path: string): string => (testHost.root === '/' ? path : path.replace(testHost.root, ''));
  const { address, namespace, taskQueue } = server;
  const host = {
    id: hostId,
    stateDirectory: join(testHost.stateDirectory, change.state ?? 'worker'),
    runDirectory: testHost.runDirectory,
    ...(change.resync !== undefined && { resync: change.resync }),
    systemd: {
      bus: change.bus ?? inside(testHost.busAddress),
      manager: testHost.manager,
      unitPrefix: change.prefix ?? testHost.unitPrefix,
    },
  };
  const file = join(testHost.stateDirectory, `${change.name ?? 'temporal'}.yaml`);
  const run = change.run ?? ['workflows', 'host'];
  await writeFile(file, stringify({ connection: { address, namespace }, taskQueue, run, host, programs }));
  return file;
}
