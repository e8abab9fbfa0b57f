import { join } from 'node:path';
import { unitPattern } from '../../src/contract/names';
import type { ChaosScene } from './scene';

/** The loaded units of the prefix. */
export async function unitsOf({ host }: ChaosScene): Promise<readonly string[]> {
  const list = ['list-units', '--all', '--plain', '--no-legend', '--no-pager'];
  const command = ['timeout', '20', 'systemctl', ...list, unitPattern(host.unitPrefix)];
  const { stdout } = await host.run(command);
  return stdout.split('\n').flatMap((line) => line.trim().split(/\s+/)[0] || []);
}

/** As a person would: what the manager says to it is not looked at, for it may be paused or gone a moment later. */
export async function systemctl({ host }: ChaosScene, ...args: string[]): Promise<string> {
  const { stdout } = await host.run(['timeout', '20', 'systemctl', '--no-pager', '--no-ask-password', ...args]);
  return stdout.trim();
}

/** Runs a script in the host, with `$1` and so on; resolves with what it has printed, or undefined where it has failed. */
export async function inHost(
  { host }: ChaosScene,
  script: string,
  ...args: readonly string[]
): Promise<string | undefined> {
  const { code, stdout } = await host.run(['sh', '-c', script, 'sh', ...args]);
  return code === 0 ? stdout.trim() : undefined;
}

/** Where the worker keeps the files of its resources, as seen from here. */
export function runFiles({ host }: ChaosScene): string {
  return join(host.root, host.runDirectory, host.unitPrefix);
}
