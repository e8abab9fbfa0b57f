import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { pidsIn, readPopulated } from '../../src/cgroup/cgroup';
import type { Program } from '../../src/config';
import { resourceSlice } from '../../src/contract/names';
import { type Host, StillRunningError } from '../../src/host/host';
import type { Placement } from '../../src/contract/facts';
import { SystemdError } from '../../src/systemd/port';
import { owner, script, startInput } from './owned-host';
import type { PrivateHost } from './test-host';

/** The processes of a resource that live, as this process sees them: all generations, children and left-overs. */
export async function processesOf(machine: PrivateHost, resource: string): Promise<readonly number[]> {
  return pidsIn(join(machine.cgroupRoot, 'own.slice', resourceSlice('own', resource)));
}

/** The units of a resource that have a process, by their cgroups: one is a writer, two are two. */
export async function livingUnits(machine: PrivateHost, resource: string): Promise<readonly string[]> {
  const slice = join(machine.cgroupRoot, 'own.slice', resourceSlice('own', resource));
  const entries = await readdir(slice, { withFileTypes: true }).catch(() => []);
  const units = entries.filter((entry) => entry.isDirectory()).map(({ name }) => name);
  const populated = await Promise.all(units.map((unit) => readPopulated(join(slice, unit))));
  return units.filter((_unit, i) => populated[i]!.kind === 'populated');
}

/** Written by a {@link loner} that was not alone; below the host's run directory. */
const witness = (machine: PrivateHost): string => `${machine.runDirectory}-overlap`;

/** Runs until it is stopped, and bears witness when another generation of its resource lives as it begins (G2). */
export function loner(machine: PrivateHost, change: Partial<Program> = {}): Program {
  const text = `slice=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
    for unit in "$(dirname "$slice")"/*.service; do
      case $unit in *-g"$OWNED_GENERATION".service) continue ;; esac
      ! grep -qs 'populated 1' "$unit/cgroup.events" || echo "$OWNED_GENERATION began beside $unit" >> ${witness(machine)}
    done
    exec sleep 9999`;
  return script('loner', text, change);
}

/** What the loners of a host have seen; empty where every one was alone. */
export async function overlaps(machine: PrivateHost): Promise<string> {
  return (await machine.run(['sh', '-c', `cat ${witness(machine)} 2>/dev/null; true`])).stdout;
}

/** What an owner does until it has a process: a higher generation each time, and stops where it is told to. */
export async function startAsOwner(host: Host, resource: string, program: string, from = 1): Promise<Placement> {
  for (let generation = Math.max(Date.now(), from); ; generation++) {
    try {
      const answer = await host.start(startInput(resource, program, { generation }));
      if ('placement' in answer) return answer.placement;
      if (answer.kind === 'outdated') generation = Math.max(generation, answer.highest);
      if (answer.kind === 'stop-first') await host.stop({ resource, owner, rung: 'stop', generation });
    } catch (error) {
      if (!(error instanceof StillRunningError) && !(error instanceof SystemdError)) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 20)); // an owner backs off too
  }
}
