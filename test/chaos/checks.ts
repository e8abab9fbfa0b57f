import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import {
  checkLeases,
  outlivedProofs,
  merged,
  overlapsIn,
  type LeaseReport,
  type ProofClaim,
  parseTrace,
  traceFile,
  type Silence,
  type Trace,
  type Violation,
} from '../support/oracle';
import type { Moments } from './moments';
import { runFiles, unitsOf } from './on-host';
import type { Requests } from './requests';
import { LEASE_MS, STOP_TIMEOUT_MS, type ChaosScene } from './scene';

/**
 * A lease, what the program is given to end in, and a margin for a machine that does other things as well: the one place
 * where a campaign says how fast something has to be.
 */
export const ALLOWED_MS = LEASE_MS + STOP_TIMEOUT_MS + 5_000;

/**
 * A lease timer that other hands have stopped is armed again by the worker's next look at all units, which it takes every two
 * seconds; until it could do so without anything in its way, the process has no lease.
 */
const HEAL_US = 10_000_000;

/** The traces of all resources. */
export async function readTraces(scene: ChaosScene, resources: readonly string[]): Promise<ReadonlyMap<string, Trace>> {
  const traces = new Map<string, Trace>();
  for (const resource of resources) {
    const text = await readFile(traceFile(scene.traces, resource), 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return ''; // nothing of it has ever run
      throw error;
    });
    traces.set(resource, parseTrace(text));
  }
  return traces;
}

/** What the processes have written, against G2, G3, G5 and G7; and how often a lease was put to the test. */
export function checkTraces(
  traces: ReadonlyMap<string, Trace>,
  { scene, moments, requests, proofs }: Story,
): LeaseReport {
  const violations: Violation[] = [];
  let tested = 0;
  for (const [resource, trace] of traces) {
    const lines = moments.accountable(trace.lines);
    const silences = merged([...scene.worker.silences, ...moments.silences, ...requests.silencesOf(resource)]);
    const unleased = moments.timersStopped
      .filter((stopped) => stopped.resource === resource)
      .map(({ at }) => ({
        from: at,
        to: healed(at, [...scene.worker.silences, ...moments.silences, ...moments.paused]),
      }));
    const isLeased = ({ from, to }: Silence): boolean => !unleased.some((one) => one.from < to && one.to > from);
    const leases = checkLeases(lines, silences.filter(isLeased), { allowedMs: ALLOWED_MS, paused: moments.paused });
    tested += leases.tested;
    const claims = proofs.filter((proof) => proof.resource === resource);
    violations.push(...overlapsIn(lines), ...outlivedProofs(lines, claims), ...leases.violations);
  }
  return { tested, violations };
}

/** When the worker has surely seen to what was done at a moment. */
function healed(at: number, disturbed: readonly Silence[]): number {
  let from = at;
  for (const one of merged(disturbed)) {
    if (one.to <= from) continue;
    if (one.from - from >= HEAL_US) break;
    from = one.to;
  }
  return from + HEAL_US;
}

/** What happened in a campaign, as far as it matters to what the traces may say. */
export interface Story {
  readonly scene: ChaosScene;
  readonly moments: Moments;
  readonly requests: Requests;
  readonly proofs: readonly ProofClaim[];
}

/**
 * What is left on the host once every owner has come to its end: nothing but the prefix's slice, and of each resource its
 * floor and the end record of one generation. Left for itself it has as long as a lease takes to end, and the worker to
 * see that.
 */
export async function checkHost(scene: ChaosScene, withinMs: number): Promise<readonly Violation[]> {
  for (const until = Date.now() + withinMs; ; await delay(500)) {
    const left = [...(await leftUnits(scene)), ...(await leftCgroups(scene)), ...(await leftFiles(scene))];
    if (left.length === 0 || Date.now() > until) return left;
  }
}

async function leftUnits(scene: ChaosScene): Promise<readonly Violation[]> {
  const units = await unitsOf(scene);
  return units.map((unit) => ({ resource: resourceIn(unit), what: `the unit ${unit} is left`, evidence: [] }));
}

async function leftCgroups({ host }: ChaosScene): Promise<readonly Violation[]> {
  const slice = join(host.cgroupRoot, `${host.unitPrefix}.slice`);
  const entries = await readdir(slice, { withFileTypes: true }).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return [];
    throw error;
  });
  const folders = entries.filter((entry) => entry.isDirectory());
  return Promise.all(
    folders.map(async ({ name }) => {
      const { stdout } = await host.run(['sh', '-c', `systemd-cgls --no-pager /${host.unitPrefix}.slice/${name}`]);
      return { resource: resourceIn(name), what: `the cgroup ${name} is left`, evidence: stdout.split('\n') };
    }),
  );
}

async function leftFiles(scene: ChaosScene): Promise<readonly Violation[]> {
  const violations: Violation[] = [];
  const folder = runFiles(scene);
  for (const name of await readdir(folder)) {
    const kept: string[] = [];
    const left: string[] = [];
    for (const entry of await readdir(join(folder, name))) {
      if (entry === 'floor') continue;
      for (const file of await readdir(join(folder, name, entry))) {
        (file === 'end.json' ? kept : left).push(`${entry}/${file}`);
      }
    }
    if (left.length > 0 || kept.length > 1) {
      const evidence = [...left, ...kept];
      violations.push({ resource: resourceIn(name), what: `files of ${name} are left`, evidence });
    }
  }
  return violations;
}

/** The resource that an escaped name has in it. */
function resourceIn(name: string): string {
  return /chaos_2fr_2d\d+/.exec(name)?.[0].replace('_2f', '/').replace('_2d', '-') ?? '';
}
