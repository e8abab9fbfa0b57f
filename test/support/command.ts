import { spawn, type ChildProcess, type SpawnOptions } from 'node:child_process';
import type { Socket } from 'node:net';
import { constants } from 'node:os';
import type { CommandResult } from './test-host';

/** Runs a program to its end, with nothing on its standard input. Rejects only where it could not be started. */
export async function runCommand(command: readonly string[], options: SpawnOptions = {}): Promise<CommandResult> {
  const [file = '', ...args] = command;
  return collectOutput(spawn(file, args, { ...options, stdio: ['ignore', 'pipe', 'pipe'] }));
}

/** Collects what a child with piped output prints until it has ended and closed its pipes. */
export function collectOutput(child: ChildProcess): Promise<CommandResult> {
  const output = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text: string) => (output[name] += text));
  }
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      resolve({ ...output, code: code ?? 128 + (signal ? constants.signals[signal] : 0) });
    });
  });
}

/** The standard output of a command that exited with 0; otherwise throws what it said, naming the command. */
export function expectSuccess(command: readonly string[], { stdout, stderr, code }: CommandResult): string {
  if (code === 0) return stdout;
  throw new Error(`\`${command.join(' ')}\` ended with exit code ${code}: ${stderr.trim() || stdout.trim()}`);
}

/** Whether a child and its pipes keep this process running. */
export function holdOpen(child: ChildProcess, hold: boolean): void {
  for (const handle of [child, ...child.stdio] as (Socket | null)[]) handle?.[hold ? 'ref' : 'unref']();
}
