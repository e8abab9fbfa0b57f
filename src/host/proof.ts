import type { Proof } from '../contract/facts';

/**
 * The proof rule: when may it be said that a resource has no process left?
 *
 * Never because somebody said so: a stop job ends `done` over living processes, a unit reads `inactive` over a
 * populated cgroup, and a wrong cgroup root answers ENOENT for everything. So the rule wants the manager's answer, the
 * kernel's answer, and that both speak of the same tree; whatever could not be read counts as "no" (G4).
 */
export function prove(of: ProofSubject, readings: Readings): Verdict {
  const reasons: string[] = [];
  const no = (reason: string): void => void reasons.push(reason);

  // Only the host that started the process can know that it is gone; a second machine with the same host id knows
  // nothing of it, and would find neither unit nor cgroup.
  if (readings.instance !== of.instance) {
    no(`the answer comes from instance ${readings.instance}, the process was started by ${of.instance}`);
    return { proven: false, reasons };
  }

  // Clause 1: no process outlives its kernel. Both boot ids must stand in this instance's own list, in this order.
  const before = readings.bootIds.indexOf(of.bootId);
  const now = readings.bootIds.indexOf(readings.bootId);
  if (before >= 0 && now > before) {
    return { proven: true, proof: { by: 'reboot', ...recordOf(of, readings) } };
  }
  if (readings.bootId !== of.bootId) no(`boot id ${of.bootId} is not known to be an earlier one of this instance`);

  // Clause 2, the manager: every unit of the resource is over and nothing is queued for it.
  if (readings.units.kind === 'unknown') no(`systemd could not be asked: ${readings.units.error}`);
  else for (const unit of readings.units.list) if (!isOver(unit)) no(`systemd: ${describeUnit(unit)}`);

  // Clause 2, the kernel: the slice's cgroup, which covers every generation and left-over, is gone or empty.
  if (readings.cgroup.kind === 'unknown') no(`cgroup.events could not be read: ${readings.cgroup.error}`);
  else if (readings.cgroup.kind === 'populated') no('cgroup: populated 1');

  // Clause 2, the same tree: the cgroup root that was read is the one that this manager puts its units in.
  if (readings.root.kind === 'unknown') no(`the cgroup root could not be verified: ${readings.root.error}`);
  else if (readings.root.cgroupId !== readings.root.controlGroupId) {
    no(`wrong cgroup root: inode ${readings.root.cgroupId}, systemd says ${readings.root.controlGroupId}`);
  } else if (!isId(readings.root.cgroupId)) no(`the cgroup root has no identity: inode ${readings.root.cgroupId}`);

  if (reasons.length > 0) return { proven: false, reasons };
  return { proven: true, proof: { by: 'empty', ...recordOf(of, readings) } };
}

/** What a proof is about: the recorded facts of the last generation that was started. */
export interface ProofSubject {
  readonly instance: string;
  readonly bootId: string;
  readonly generation: number;
  readonly invocation: string;
  readonly cgroupId: string;
}

/** Everything the rule looks at. `readings.ts` takes them, in the order that the rule needs. */
export interface Readings {
  /** The instance that took the readings. */
  readonly instance: string;
  readonly bootId: string;
  /** The boots that this instance has seen, oldest first. */
  readonly bootIds: readonly string[];
  readonly units: { readonly kind: 'list'; readonly list: readonly UnitReading[] } | UnknownReading;
  readonly cgroup:
    | { readonly kind: 'gone'; readonly error: 'ENOENT' | 'ENODEV' }
    | { readonly kind: 'empty' | 'populated' }
    | UnknownReading;
  /** Inode of the prefix's slice below the cgroup root, and that slice's ControlGroupId on the bus. */
  readonly root: { readonly kind: 'ids'; readonly cgroupId: string; readonly controlGroupId: string } | UnknownReading;
  /** Epoch ms of the last reading. */
  readonly readAt: number;
}

export interface UnknownReading {
  readonly kind: 'unknown';
  readonly error: string;
}

/** A unit of the resource as ListUnitsByPatterns answered. */
export interface UnitReading {
  readonly name: string;
  readonly activeState: string;
  readonly subState: string;
  /** `''` without a job. */
  readonly jobType: string;
}

export type Verdict =
  { readonly proven: true; readonly proof: Proof } | { readonly proven: false; readonly reasons: readonly string[] };

/**
 * Over is `inactive` or `failed` without a job, and nothing else: `active (exited)` can have living children and must
 * be stopped first, and a state that is not known here (a newer systemd's) is not over.
 */
export function isOver(unit: UnitReading): boolean {
  return (unit.activeState === 'inactive' || unit.activeState === 'failed') && unit.jobType === '';
}

function isId(inode: string): boolean {
  return /^[1-9][0-9]*$/.test(inode);
}

function describeUnit(unit: UnitReading): string {
  return `${unit.name} ${unit.activeState} (${unit.subState})${unit.jobType === '' ? '' : `, job ${unit.jobType}`}`;
}

function recordOf(of: ProofSubject, readings: Readings): Omit<Proof, 'by'> {
  const { units, cgroup } = readings;
  return {
    instance: readings.instance,
    bootId: readings.bootId,
    generation: of.generation,
    invocation: of.invocation,
    cgroupId: of.cgroupId,
    units:
      units.kind === 'unknown' ? `unknown: ${units.error}` : units.list.map(describeUnit).join('; ') || 'none loaded',
    cgroup: cgroup.kind === 'gone' ? cgroup.error : cgroup.kind === 'empty' ? 'populated 0' : cgroup.kind,
    readAt: readings.readAt,
  };
}
