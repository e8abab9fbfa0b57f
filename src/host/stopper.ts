import { join } from 'node:path';
import { killCgroup } from '../cgroup/cgroup';
import { describeProcesses } from '../cgroup/processes';
import type { Rung, StillRunningDetails, StopInput } from '../contract/activities';
import { SystemdError, type Job, type UnitProperties } from '../systemd/port';
import { isLiving } from './condition';
import { filesOf, resourceCgroup, type HostContext } from './context';
import type { GenerationFiles } from './generation-files';
import { messageOf } from './log';
import { prove, type Verdict } from './proof';
import { readResourceUnits, takeReadings, type ResourceUnit } from './readings';

const SIGKILL = 9;

/** A resource that somebody wants free. */
export type StopSubject = Omit<StopInput, 'rung'>;

/** There is no proof. Says why, and which processes are left; never a final state (G3). */
export class StillRunningError extends Error {
  override readonly name = 'StillRunningError';

  constructor(
    readonly resource: string,
    readonly details: StillRunningDetails,
  ) {
    super(`${resource} is still running: ${details.reasons.join('; ')}`);
  }
}

/** The prefix that the subject's names were made with; it may have been changed in temporal.yaml since. */
export function prefixOf(host: HostContext, subject: StopSubject): string {
  return subject.placement?.prefix ?? host.prefix;
}

/**
 * Closes all generations that the owner has asked for: none of them starts after this has resolved. Also fills in, from
 * the host's own files, the placement of a start whose answer its owner never got.
 */
export async function closeGenerations(host: HostContext, subject: StopSubject): Promise<StopSubject> {
  const files = filesOf(host, prefixOf(host, subject), subject.resource);
  await files.close(subject.generation);
  if (subject.placement) return subject;
  const highest = (await files.generations()).filter((generation) => generation <= subject.generation).at(-1);
  if (highest === undefined) return subject;
  const launch = await files
    .generation(highest)
    .launch.read()
    .catch(() => undefined); // it only helps to word the end
  return launch ? { ...subject, placement: launch.placement } : subject;
}

/**
 * As {@link closeGenerations}; `open` says why a later start can't be ruled out, so that there is no proof. What runs is
 * stopped all the same.
 */
export async function tryToClose(
  host: HostContext,
  subject: StopSubject,
): Promise<{ readonly subject: StopSubject; readonly open?: string }> {
  try {
    return { subject: await closeGenerations(host, subject) };
  } catch (error) {
    return { subject, open: `a start that is under way can't be ruled out: ${messageOf(error)}` };
  }
}

/** What came of a rung. */
export interface Climbed {
  /** What could not be done, in words: a rung that fails is no reason not to look for the proof. */
  readonly failed: readonly string[];
  /**
   * Resolves once systemd has ended its stop jobs. No evidence, only the moment from which a proof is likely: each reading
   * before it is made for nothing, and waits in line with the stop itself.
   */
  readonly jobs: Promise<unknown>;
}

/** Does one rung of the ladder for every own unit up to the subject's generation. */
export async function climb(host: HostContext, subject: StopSubject, rung: Rung): Promise<Climbed> {
  const prefix = prefixOf(host, subject);
  const cgroup = resourceCgroup(host, prefix, subject.resource);
  const failed: string[] = [];
  const attempt = (run: Promise<unknown>): Promise<unknown> =>
    run.catch((error: unknown) => failed.push(messageOf(error)));

  let units: readonly ResourceUnit[] = [];
  await attempt(readResourceUnits(host, prefix, subject).then((all) => (units = all)));
  const own = units.filter((unit) => unit.own && unit.generation <= subject.generation);
  const files = filesOf(host, prefix, subject.resource);
  for (const generation of await files.generations()) {
    if (generation <= subject.generation) await attempt(markStopping(files.generation(generation), own));
  }
  const jobs: Promise<unknown>[] = [];
  for (const { name, properties } of own) {
    const stop = climbUnit(host, rung, name, properties, join(cgroup, name));
    await attempt(stop.then((job) => job && jobs.push(job.done.catch(() => undefined))));
  }
  // Left-overs of a unit that systemd has forgotten: the directory's name is all that is left of it.
  const placed = subject.placement?.unit;
  if (rung === 'cgroup-kill' && placed !== undefined && !units.some((unit) => unit.name === placed)) {
    await attempt(killCgroup(join(cgroup, placed)));
  }
  return { failed, jobs: Promise.all(jobs) };
}

async function markStopping(files: GenerationFiles, units: readonly ResourceUnit[]): Promise<void> {
  if ((await files.stopping.read()) ?? (await files.end.read())) return;
  const unit = units.find((u) => u.generation === files.generation);
  await files.stopping.write({ lived: unit !== undefined && isLiving(unit.properties) });
}

/**
 * One rung for one unit, always by what was just read of it: the stop goes to the *invocation*, so that a unit which
 * other hands have restarted meanwhile is not hit by a request that meant the former one; it is read and stopped anew.
 */
async function climbUnit(
  host: HostContext,
  rung: Rung,
  unit: string,
  properties: UnitProperties,
  cgroup: string,
): Promise<Job | undefined> {
  switch (rung) {
    case 'stop':
      break;
    case 'kill':
      await host.systemd.killUnit(unit, SIGKILL).catch(ignoreGone);
      break;
    case 'cgroup-kill':
      await killCgroup(cgroup);
      break;
    case 'watch':
      return undefined;
  }
  // On every rung: what is `active (exited)` has nothing to kill and still has to be stopped.
  if (!properties.InvocationID) return undefined;
  return host.systemd.stopInvocation(properties.InvocationID).catch(ignoreGone);
}

function ignoreGone(error: unknown): undefined {
  if (error instanceof SystemdError && (error.kind === 'no-such-unit' || error.kind === 'no-such-invocation'))
    return undefined;
  throw error;
}

/** Applies the proof rule to fresh readings. The caller has closed the resource's generations. */
export async function tryProve(host: HostContext, subject: StopSubject): Promise<Verdict> {
  const { instance, bootIds } = host.identity;
  const { placement } = subject;
  return prove(
    {
      instance: placement?.instance ?? subject.instance ?? instance,
      bootId: placement?.bootId ?? bootIds.at(-1)!,
      generation: placement?.generation ?? subject.generation,
      invocation: placement?.invocation ?? '',
      cgroupId: placement?.cgroupId ?? '',
    },
    await takeReadings(host, prefixOf(host, subject), subject.resource),
  );
}

/** What is in the way of the proof, with the processes that are left, as far as they can be read. */
export async function stillRunning(
  host: HostContext,
  subject: StopSubject,
  why: readonly string[],
): Promise<StillRunningError> {
  const prefix = prefixOf(host, subject);
  const reasons = [...new Set(why)];
  let details: StillRunningDetails = { reasons, processes: [] };
  try {
    details = { ...details, processes: await describeProcesses(resourceCgroup(host, prefix, subject.resource)) };
    const units = await readResourceUnits(host, prefix, subject);
    for (const { name } of units.filter((unit) => !unit.own)) {
      reasons.push(`${name} was made by somebody else and is never touched: only whoever made it can stop it`);
    }
    const highest = Math.max(0, ...units.filter((unit) => unit.own).map((unit) => unit.generation));
    if (highest > subject.generation) details = { ...details, highest };
  } catch (error) {
    reasons.push(`what is left could not be listed: ${messageOf(error)}`);
  }
  return new StillRunningError(subject.resource, details);
}
