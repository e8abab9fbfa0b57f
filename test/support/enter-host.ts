import { spawn, type ChildProcess, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export interface SpawnInHostOptions {
  /** Environment of the command; this process's own where absent. */
  readonly env?: NodeJS.ProcessEnv;
  /** Working directory inside the host; this process's own where absent. */
  readonly cwd?: string;
}

/**
 * Starts a command in the namespaces of a host's PID 1 and in a cgroup beside the host's own units, so that it ends with
 * the host at the latest. `kill` of the child reaches the command itself.
 */
export function spawnInHost(
  pid: number,
  hostCgroup: string,
  command: readonly string[],
  options: SpawnInHostOptions,
): ChildProcessWithoutNullStreams {
  const cgroup = join(hostCgroup, 'test-commands');
  mkdirSync(cgroup, { recursive: true });
  const enterCgroup = ['-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', cgroup];
  const enterNamespaces = ['nsenter', '--target', `${pid}`, '--mount', '--uts', '--ipc', '--pid', '--cgroup'];
  const changeDirectory = ['setpriv', '--pdeathsig', 'KILL', 'sh', '-c', 'cd "$0" && exec "$@"'];
  const args = [...enterCgroup, ...enterNamespaces, ...changeDirectory, options.cwd ?? process.cwd(), ...command];
  return killingTheCommand(spawn('sh', args, { env: options.env }), cgroup);
}

/**
 * nsenter stays outside as the parent of the command and passes no signal on; only when the command is stopped it stops as
 * well, and has to be told to go on. The command is its only child; it is looked up among the cgroup's processes, because not
 * every kernel lists children.
 */
function killingTheCommand<Child extends ChildProcess>(child: Child, cgroup: string): Child {
  const killNsenter = child.kill.bind(child);
  child.kill = (signal = 'SIGTERM') => {
    if (child.exitCode !== null || child.signalCode !== null) return false;
    const processes = readFileSync(join(cgroup, 'cgroup.procs'), 'utf8').split('\n');
    const command = processes.find((pid) => pid !== '' && parentOf(pid) === child.pid);
    if (command !== undefined) process.kill(Number(command), signal);
    return command === undefined || signal === 'SIGCONT' ? killNsenter(signal) : true;
  };
  return child;
}

function parentOf(pid: string): number | undefined {
  try {
    // Field 2, the command's name, may hold anything; the parent is the second field after its closing parenthesis.
    return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[1]);
  } catch {
    return undefined; // it ended between the two reads
  }
}
