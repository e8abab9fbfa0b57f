import type { OwnerStanding } from './owner-link';
import type { HostLog } from './log';

/**
 * What a worker finds that does not fit together between the files of this host, the units of its systemd and the owners in
 * Temporal. Nothing is done because of a finding alone: a unit that nobody renews ends with its lease.
 */
export interface Finding {
  readonly kind: FindingKind;
  readonly resource: string;
  /** Absent where it is about all files of a resource. */
  readonly generation?: number;
  /** Present where systemd has the generation's service. */
  readonly unit?: string;
  /** What Temporal answered of the resource's owner; absent where nobody had to ask. */
  readonly owner?: OwnerStanding;
  /** What was found, for people. */
  readonly found: string;
}

/**
 * - `files-unreadable`: cut off, not readable, or not what they have to be.
 * - `files-other-version`: written by another version, which means something else by them.
 * - `files-other-subject`: they say that they are of another resource, generation or unit than their place does.
 * - `files-other-boot`: of an earlier boot of this host; what they speak of ended with it.
 * - `files-incomplete`: no launch record or no lease. A worker ended while it wrote them, and nothing was started.
 * - `files-without-unit`: systemd does not have the unit. It ended and was forgotten while no worker was there.
 * - `unit-without-files`: a loaded service of this host's, and no files of it.
 * - `unit-stranger`: a loaded service with a name like this host's, and without the marks that make it one.
 * - `owner-closed`: it runs, nobody holds it, and Temporal answers that its resource has no open owner.
 */
export type FindingKind =
  | 'files-unreadable'
  | 'files-other-version'
  | 'files-other-subject'
  | 'files-other-boot'
  | 'files-incomplete'
  | 'files-without-unit'
  | 'unit-without-files'
  | 'unit-stranger'
  | 'owner-closed';

/** What comes of it, for people. */
const NEXT: Readonly<Record<FindingKind, string>> = {
  'files-unreadable': 'left alone: nothing renews its lease, and a stop needs none of these files',
  'files-other-version': 'left alone: nothing renews its lease; a worker of that version can go on with it',
  'files-other-subject': 'left alone: nothing renews its lease, and a stop needs none of these files',
  'files-other-boot': 'its owner has it proven by the reboot; they go with the next stop of the resource',
  'files-incomplete': 'they go once it is proven that nothing came of it',
  'files-without-unit': 'it is proven dead as after a stop; an owner that holds it is told that it ended',
  'unit-without-files': 'its owner stops it until it is proven dead; where that is gone, another one is begun for it',
  'unit-stranger': 'never touched: whoever made it can stop it; no start of the resource as long as it is there',
  'owner-closed':
    'what an owner has released is left to its lease; for anything else an owner is begun that stops it until it is proven dead',
};

/** Those that are about a unit, and over when that is not loaded any more. */
const OF_UNIT: readonly FindingKind[] = ['unit-without-files', 'unit-stranger'];

/** The findings of a worker, each logged once when it is made, and again when Temporal answers otherwise of its owner. */
export class Findings {
  private all: readonly Finding[] = [];

  constructor(private readonly log: HostLog) {}

  get list(): readonly Finding[] {
    return this.all;
  }

  add(finding: Finding): void {
    const same = (other: Finding): boolean =>
      other.kind === finding.kind &&
      other.resource === finding.resource &&
      other.generation === finding.generation &&
      other.unit === finding.unit;
    const former = this.all.find(same);
    if (former && former.owner === finding.owner) return;
    this.all = [...this.all.filter((other) => other !== former), finding];
    const { kind, ...attributes } = finding;
    this.log.warn(kind, { ...attributes, next: NEXT[kind] });
  }

  /** A resource is proven free, held or started anew: what was found of it up to that generation is over. */
  settle(resource: string, generation: number): void {
    this.all = this.all.filter((one) => one.resource !== resource || (one.generation ?? 0) > generation);
  }

  /** What was found of units that are not loaded any more is over. */
  keepLoaded(loaded: ReadonlySet<string>): void {
    const over = this.all.filter(({ kind, unit = '' }) => OF_UNIT.includes(kind) && !loaded.has(unit));
    if (over.length === 0) return;
    this.all = this.all.filter((one) => !over.includes(one));
    for (const { kind, ...attributes } of over) this.log.info(`no longer: ${kind}`, { ...attributes });
  }
}
