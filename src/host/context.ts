import { join } from 'node:path';
import { prefixSlice, resourceSlice } from '../contract/names';
import type { SystemdPort } from '../systemd/port';
import type { Capacity } from './capacity';
import type { Ports } from './endpoint';
import { ResourceFiles } from './generation-files';
import type { Instance } from './instance';
import type { HostLog } from './log';
import type { Programs } from './programs';

/** What every part of a host's worker needs to know about the host. */
export interface HostContext {
  readonly systemd: SystemdPort;
  readonly identity: Instance;
  readonly prefix: string;
  /** Where the host's file system is seen from here; `/` for a worker that runs on its host. */
  readonly root: string;
  readonly runDirectory: string;
  /** Mount point of cgroup2, as seen from here. */
  readonly cgroupRoot: string;
  /** Cgroup of the manager itself below the cgroup root: `/`, or a user manager's path. */
  readonly managerCgroup: string;
  /** µs that `OnBootSec=` counts from, on CLOCK_MONOTONIC (lease.ts). */
  readonly bootBase: number;
  /** Where the manager keeps the files of transient units; undefined where it does not say. */
  readonly transientDirectory: string | undefined;
  readonly capacity: Capacity;
  /** What may run here. */
  readonly programs: Programs;
  /** Those that are allocated to generations. */
  readonly ports: Ports;
  readonly log: HostLog;
}

/** The files of a resource on this host. */
export function filesOf(host: HostContext, prefix: string, resource: string): ResourceFiles {
  return new ResourceFiles(host.root, host.runDirectory, prefix, resource);
}

/** Directory of the cgroup of everything with this prefix. */
export function prefixCgroup(host: HostContext, prefix: string): string {
  return join(host.cgroupRoot, host.managerCgroup, prefixSlice(prefix));
}

/**
 * Directory of the resource's own cgroup. Computed, never read from a unit: the `ControlGroup` of an ended unit is
 * empty, and an empty path names the root cgroup.
 */
export function resourceCgroup(host: HostContext, prefix: string, resource: string): string {
  return join(host.cgroupRoot, resourceControlGroup(host, prefix, resource));
}

/** The same cgroup as the manager's `ControlGroup` names it: its path below the cgroup root. */
export function resourceControlGroup(host: HostContext, prefix: string, resource: string): string {
  return join(host.managerCgroup, prefixSlice(prefix), resourceSlice(prefix, resource));
}

/** µs of CLOCK_MONOTONIC, the clock of systemd's timers (clock_gettime(2)); hrtime reads the same one. */
export function monotonicNow(): number {
  return Number(process.hrtime.bigint() / 1000n);
}
