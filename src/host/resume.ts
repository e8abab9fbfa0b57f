import type { Placement } from '../contract/facts';
import { generationUnit, unitPattern } from '../contract/names';
import type { UnitListing } from '../systemd/port';
import { filesOf, type HostContext } from './context';
import type { FindingKind } from './findings';
import { ResourceFiles, type GenerationFiles } from './generation-files';
import type { Held } from './held';
import { leaseNumbers } from './lease';
import { messageOf } from './log';
import type { OwnerLink } from './owner-link';
import { RecordError } from './records';
import type { Tracker } from './tracker';
import { forEachOf } from './turns';

/** So many generations are read at a time. */
const READING = 32;

/** So many owners are asked for at a time, and for so long altogether. What was not asked for by then is unknown. */
const ASKING = { atATime: 8, forMs: 60_000 };

/** A problem of a generation's files, before anything else is known of it. */
interface Problem {
  readonly kind: FindingKind;
  readonly resource: string;
  readonly generation?: number;
  readonly found: string;
}

/**
 * Goes on from where the former worker process was, and compares what this host has: its files, the units of systemd (one
 * list), and, for what nobody holds, the owner in Temporal. Holds go on first, for their heartbeat timeouts run. Whatever does
 * not fit together is a finding, and is left alone.
 *
 * Resolves once files and units are compared. `asked` resolves when Temporal has been asked as well: nothing waits for it.
 */
export async function resume(
  host: HostContext,
  tracker: Tracker,
  link: OwnerLink,
): Promise<{ readonly asked: Promise<void> }> {
  const problems: Problem[] = [];
  const all: GenerationFiles[] = [];
  for (const resource of await ResourceFiles.list(host.root, host.runDirectory, host.prefix)) {
    const files = filesOf(host, host.prefix, resource);
    try {
      all.push(...(await files.generations()).map((generation) => files.generation(generation)));
    } catch (error) {
      problems.push({ kind: 'files-unreadable', resource, found: messageOf(error) });
    }
  }
  const going: Held[] = [];
  await forEachOf(all, READING, async (files) => {
    const { resource, generation } = files;
    try {
      const held = await goOn(host, tracker, files);
      if (typeof held === 'object') going.push(held);
      else if (held) problems.push({ kind: held, resource, generation, found: FOUND[held] });
    } catch (error) {
      problems.push({ kind: kindOf(error), resource, generation, found: messageOf(error) });
    }
  });

  let units: readonly UnitListing[];
  try {
    units = await host.systemd.listUnits(unitPattern(host.prefix)); // after the files: what is started now has both
  } catch (error) {
    // Unknown, so nothing is found; the observer lists them again soon.
    host.log.warn('files and units could not be compared', { error: messageOf(error) });
    for (const problem of problems) tracker.findings.add(problem);
    return { asked: Promise.resolve() };
  }
  const loaded = new Set(units.map(({ name }) => name));
  const leases = leaseNumbers(host.prefix, units);
  for (const held of going) {
    const { resource, placement } = held.launch;
    const { unit, generation } = placement;
    if (loaded.has(unit)) await tracker.renewals.correct(held, leases.get(unit) ?? []);
    else if (tracker.isTracked(held))
      // else it is proven already
      tracker.findings.add({ kind: 'files-without-unit', resource, generation, found: `${unit} is not loaded` });
  }
  const loose = problems.map((problem) => withUnit(host, problem, loaded));
  const known = new Set([...going.map(({ launch }) => launch.placement.unit), ...loose.map(({ unit }) => unit)]);
  for (const unit of units) if (!known.has(unit.name)) loose.push(...(await tracker.looseUnits.read(unit)));

  return { asked: askForOwners(tracker, link, going, loose) };
}

/** A finding to be, for whose owner is asked where systemd has its unit. */
type Loose = Problem & { readonly unit?: string };

const FOUND = {
  'files-incomplete': 'there is no launch record, or no lease',
  'files-other-boot': 'its launch record is of another boot',
} as const;

/** Goes on with one generation. A kind of finding where its files say that it can't be; undefined where nothing is to be done. */
async function goOn(
  host: HostContext,
  tracker: Tracker,
  files: GenerationFiles,
): Promise<Held | keyof typeof FOUND | undefined> {
  const { resource, generation } = files;
  const launch = await files.launch.read();
  const end = await files.end.read().catch(() => undefined);
  if (end) {
    if (launch) tracker.letGo({ resource, generation, owner: launch.owner, placement: launch.placement });
    return undefined;
  }
  if (launch && !isOfThisBoot(host, launch.placement)) return 'files-other-boot';
  const held = launch && (await tracker.load(files));
  if (!held) {
    tracker.dropUnsent(resource, files);
    return 'files-incomplete';
  }
  if (held.hold) tracker.keeper.resume(held);
  host.log.info('going on with', { resource, generation, hold: held.hold !== undefined });
  return held;
}

function isOfThisBoot(host: HostContext, { bootId }: Placement): boolean {
  return bootId === host.identity.bootIds.at(-1);
}

function kindOf(error: unknown): FindingKind {
  if (!(error instanceof RecordError) || error.flaw === 'malformed') return 'files-unreadable';
  return error.flaw === 'other-version' ? 'files-other-version' : 'files-other-subject';
}

function withUnit(host: HostContext, problem: Problem, loaded: ReadonlySet<string>): Loose {
  if (problem.generation === undefined) return problem;
  const unit = generationUnit(host.prefix, problem.resource, problem.generation);
  return loaded.has(unit) ? { ...problem, unit } : problem;
}

/**
 * Asks Temporal for the owners of what nobody holds, by their workflow ids. An owner that is open asks for its process sooner
 * or later, and what could not be asked is unknown: neither is a finding.
 */
async function askForOwners(
  tracker: Tracker,
  link: OwnerLink,
  going: readonly Held[],
  loose: readonly Loose[],
): Promise<void> {
  const until = performance.now() + ASKING.forMs;
  const mayAsk = (): boolean => !tracker.isClosed && performance.now() < until;
  const needed = ({ unit, kind }: Loose): boolean => unit !== undefined && kind !== 'unit-stranger';
  for (const one of loose) if (!needed(one)) tracker.findings.add(one);
  await forEachOf(loose.filter(needed), ASKING.atATime, async (one) => {
    const owner = mayAsk() ? await link.standing(one.resource) : 'unknown';
    if (tracker.isClosed) return;
    tracker.findings.add({ ...one, owner });
    if (owner === 'gone') await tracker.abandoned.withoutRecords(one.resource);
  });
  const unheld = going.filter((held) => !held.hold && tracker.isTracked(held));
  await forEachOf(unheld, ASKING.atATime, async (held) => {
    if (mayAsk()) await tracker.abandoned.standing(held);
  });
}
