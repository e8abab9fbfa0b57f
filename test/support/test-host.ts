import { openOwnManager } from './own-manager';
import { bootPrivateHost } from './private-host';
import { canBootPrivateHosts, whyNoPrivateHosts } from './private-host-requirements';

export type { SpawnInHostOptions } from './enter-host';
export { bootPrivateHost } from './private-host';
export type { PrivateHost, PrivateHostOptions } from './private-host';
export { canBootPrivateHosts, whyNoPrivateHosts } from './private-host-requirements';
export type { UserManagerHost } from './user-manager';

/** A real systemd manager that a test owns for as long as it wants: units on it are the test's to start and to break. */
export interface TestHost {
  /** Whose manager it is. */
  readonly manager: 'system' | 'user';
  /** `unix:path=…` of the bus, which this process can connect to. */
  readonly busAddress: string;
  /** Where this process sees the host's files: `/`, or `/proc/PID/root` of a private host. */
  readonly root: string;
  /** Where this process sees the cgroup2 tree that the manager's `ControlGroup` paths begin at. */
  readonly cgroupRoot: string;
  /** A path inside the host for the worker's run directory, unique per host, not made yet. A reboot empties it. */
  readonly runDirectory: string;
  /** A folder on the real disk, unique per host, with the same path inside and outside. Kept over reboots. */
  readonly stateDirectory: string;
  /** `own`, or a unique prefix where the manager is shared with other things. Matches `[a-z][a-z0-9]{0,15}`. */
  readonly unitPrefix: string;
  /** Runs systemctl on this manager: its standard output. Rejects with its standard error. */
  systemctl(...args: string[]): Promise<string>;
  /** Runs a command inside the host to its end, whatever its exit code. */
  run(command: readonly string[]): Promise<CommandResult>;
  /** Ends it and removes all of it: processes, cgroups, mounts, folders. A second call waits for the first. */
  end(): Promise<void>;
}

/** What a command printed, and its exit code: 128 + N for signal N, as a shell tells it. */
export interface CommandResult {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number;
}

/**
 * The best real host there is here: a private one as root, else the calling user's own manager on its session bus.
 * Rejects with what to do where there is neither.
 */
export async function openTestHost(): Promise<TestHost> {
  if (canBootPrivateHosts) return bootPrivateHost();
  return openOwnManager().catch((cause: unknown) => {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`No systemd host to test on. No private host: ${whyNoPrivateHosts}. No own manager: ${reason}.`, {
      cause,
    });
  });
}
