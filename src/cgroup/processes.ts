import { readFile } from 'node:fs/promises';
import type { RemainingProcess } from '../contract/facts';
import { pidsIn } from './cgroup';

/** So many processes are described at most; a fork bomb needs no complete list. */
export const MAX_DESCRIBED = 20;

/**
 * The processes in a cgroup with what proc(5) tells of each: enough for a person to see why it does not end (state D
 * and the kernel function it waits in). A process that ends while it is read is left out; what can't be read is `?`.
 */
export async function describeProcesses(directory: string): Promise<readonly RemainingProcess[]> {
  const pids = await pidsIn(directory);
  const described = await Promise.all(pids.slice(0, MAX_DESCRIBED).map(describe));
  return described.filter((p) => p !== undefined);
}

async function describe(pid: number): Promise<RemainingProcess | undefined> {
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return undefined;
    return { pid, command: '?', state: '?', waitChannel: '?' };
  }
  // The command stands in parentheses and may hold any character, parentheses too; the state follows the last one.
  const end = stat.lastIndexOf(')');
  const waitChannel = await readFile(`/proc/${pid}/wchan`, 'utf8').catch(() => '?'); // needs privileges on some hosts
  return { pid, command: printable(stat.slice(stat.indexOf('(') + 1, end)), state: stat[end + 2] ?? '?', waitChannel };
}

/** A process names itself, so its name is bounded and cleaned before anybody's terminal gets it (G8). */
function printable(name: string): string {
  return name.replace(/[^\x20-\x7e]/g, '?').slice(0, 32);
}
