import { NEVER_STARTED, placedEndpoint, type ExitReport, type Placement, type Proof } from '../contract/facts';
import { parseUnit, unitPattern } from '../contract/names';
import type { UnitProperties } from '../systemd/port';
import { filesOf, monotonicNow, type HostContext } from './context';
import { exitReport, readExitRecord } from './exit-record';
import type { EndRecord, GenerationFiles } from './generation-files';
import { stopLeaseUnit } from './lease';
import { messageOf } from './log';
import { readResourceUnits } from './readings';
import { prefixOf, type StopSubject } from './stopper';

/**
 * Writes how a proven resource ended, so that whoever asks again gets the same exit report. The first one that is written
 * stays; where none can be, the answer is the same, and only asking again is answered with less. `leaseUntil` is the end of
 * the last lease that this worker knows of, which the record may not.
 */
export async function recordEnd(
  host: HostContext,
  subject: StopSubject,
  proof: Proof,
  leaseUntil = 0,
): Promise<EndRecord> {
  const { placement } = subject;
  const files = filesOf(host, prefixOf(host, subject), subject.resource);
  if (!placement) return { proof, exit: NEVER_STARTED };
  const generation = files.generation(placement.generation);
  const known = await generation.end.read().catch(() => undefined); // unreadable: written anew
  if (known) return { proof, exit: known.exit }; // the proof is of now, the wording of then
  const end = { proof, exit: await howItEnded(host, placement, generation, proof, leaseUntil) };
  await generation.recordEnd(end).catch((error: unknown) => {
    const { resource } = subject;
    host.log.warn('the end could not be recorded', { resource, generation: proof.generation, error: messageOf(error) });
  });
  return end;
}

/**
 * Lets go of what the host keeps for a proven resource: lease units, failed states and files, and only this resource's own,
 * up to the subject's generation. Nothing waits for it but the next start. Never rejects: the resource is free all the same,
 * and what stays is named by that start. Returns whether nothing stays.
 */
export async function letGo(host: HostContext, subject: StopSubject, end?: EndRecord): Promise<boolean> {
  const { placement, resource } = subject;
  const files = filesOf(host, prefixOf(host, subject), resource);
  try {
    await forgetUnits(host, subject);
    // Last, for it is by them that the next worker process knows what this one did not come to.
    for (const generation of await files.generations()) {
      if (generation > subject.generation) continue;
      const of = files.generation(generation);
      // Of one that can't be read, the port is free all the same: its generation is gone.
      const launch = await of.launch.read().catch(() => undefined);
      const known = generation === placement?.generation ? placement : launch?.placement;
      if (known) await host.ports.free({ ...known, resource }, placedEndpoint(known));
      if (generation === placement?.generation) await of.letGo(end);
      else await of.remove();
    }
    return true;
  } catch (error) {
    host.log.warn('could not clean up after the proof', { resource, error: messageOf(error) });
    return false;
  }
}

/**
 * Stops the resource's lease units and resets its failed ones, so that systemd unloads them. A oneshot that has just ended
 * the unit would sleep out its stop timeout, and its conflict keep the dead unit loaded.
 */
async function forgetUnits(host: HostContext, subject: StopSubject): Promise<void> {
  const prefix = prefixOf(host, subject);
  for (const { name, activeState } of await host.systemd.listUnits(unitPattern(prefix, subject.resource))) {
    const lease = parseUnit(prefix, name);
    if (!lease || lease.kind === 'generation' || activeState === 'inactive') continue;
    const unit = parseUnit(prefix, lease.unit);
    if (unit?.kind === 'generation' && unit.generation <= subject.generation) await stopLeaseUnit(host, name);
  }
  for (const { name, generation, own } of await readResourceUnits(host, prefix, subject)) {
    if (own && generation <= subject.generation) await host.systemd.resetFailedUnit(name);
  }
}

async function howItEnded(
  host: HostContext,
  placement: Placement,
  files: GenerationFiles,
  proof: Proof,
  leaseUntil: number,
): Promise<ExitReport> {
  // What can't be read costs some wording, and not the release of what is proven free.
  const [record, lease, stopping, found] = await Promise.all([
    readExitRecord(files.exitRecord),
    files.lease.read().catch(() => undefined),
    files.stopping.read().catch(() => undefined),
    readResults(host, placement.unit),
  ]);
  // Another invocation's results are not this one's.
  const strange = found && placement.invocation !== '' && found.InvocationID !== placement.invocation;
  const unit = strange ? { Result: 'start-limit-hit' } : found;
  const endedAt = unit?.ExecMainExitTimestampMonotonic || monotonicNow();
  const leaseOver = stopping?.lived !== true && lease !== undefined && endedAt >= Math.max(lease.deadline, leaseUntil);
  return exitReport({ unit, record, leaseOver, rebooted: proof.by === 'reboot' });
}

/** How the unit's last run ended, as far as its manager still knows. */
async function readResults(host: HostContext, unit: string): Promise<UnitProperties | undefined> {
  try {
    return await host.systemd.unitProperties(unit, [
      'InvocationID',
      'Result',
      'ExecMainCode',
      'ExecMainStatus',
      'ExecMainExitTimestampMonotonic',
    ]);
  } catch (error) {
    host.log.debug('exit report without the unit', { unit, error: messageOf(error) });
    return undefined;
  }
}
