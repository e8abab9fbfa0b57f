import type { StartInput } from '../contract/activities';
import { sameParameters } from '../contract/facts';
import { parseUnit } from '../contract/names';
import { SystemdError, type ActiveState } from '../systemd/port';
import { isLiving } from './condition';
import { filesOf, type HostContext } from './context';
import type { GenerationFiles, LaunchRecord } from './generation-files';
import { prove } from './proof';
import { takeReadings } from './readings';
import { isOwn } from './unit';

/** What the host has of a resource at this moment, answered by systemd and the kernel. */
export interface Look {
  readonly units: readonly { readonly name: string; readonly generation: number }[];
  /** Why nothing may be started yet; undefined when the resource is proven clear. */
  readonly obstacle: string | undefined;
  /** One of its units runs. */
  readonly living: boolean;
}

/** Looks at a resource. The same rule as after a stop says whether it is clear: a start needs no weaker proof (G3). */
export async function look(host: HostContext, resource: string): Promise<Look> {
  const readings = await takeReadings(host, host.prefix, resource);
  if (readings.units.kind === 'unknown') throw new SystemdError('unknown', readings.units.error);
  const units = readings.units.list.map((unit) => {
    const parsed = parseUnit(host.prefix, unit.name);
    return { ...unit, generation: parsed?.kind === 'generation' ? parsed.generation : 0 };
  });
  // One that failed keeps its result for whoever stops it, so that comes first. One that is merely loaded, as while its
  // lease's oneshot runs and conflicts with it, has nothing to tell; the rule below says whether it is over.
  const kept = units.filter((unit) => unit.activeState !== 'inactive');
  if (kept.length > 0) {
    return {
      units,
      living: kept.some((unit) => isLiving({ ActiveState: unit.activeState as ActiveState, SubState: unit.subState })),
      obstacle: kept.map((unit) => `${unit.name} is ${unit.activeState} (${unit.subState})`).join(', '),
    };
  }
  const { instance, bootIds } = host.identity;
  const verdict = prove({ instance, bootId: bootIds.at(-1)!, generation: 0, invocation: '', cgroupId: '' }, readings);
  return { units, living: false, obstacle: verdict.proven ? undefined : verdict.reasons.join('; ') };
}

/** A generation that was taken over. */
export interface Adopted {
  readonly files: GenerationFiles;
  readonly launch: LaunchRecord;
}

/** Who asks for what is to be adopted. */
export type Adopter = Pick<StartInput, 'resource' | 'program' | 'parameters' | 'owner'>;

/**
 * Takes over the one living unit of this resource, if it is provably the resource's own. Writes the new owner, and that
 * nobody wants it stopped any more.
 */
export async function adopt(host: HostContext, input: Adopter, found: Look): Promise<Adopted | undefined> {
  const own = await identify(host, input, found);
  if (!own || own.launch.placement.control) return undefined; // a control server is adopted by its protocol alone
  return takeOver(host, input, own);
}

/**
 * The one living unit of this resource, if it is provably the resource's own (G6): its marks, its launch record, its boot,
 * its invocation and its program and parameters all agree. Undefined otherwise.
 */
export async function identify(host: HostContext, input: Adopter, found: Look): Promise<Adopted | undefined> {
  const [unit, ...others] = found.units;
  if (!unit || others.length > 0) return undefined;
  const files = filesOf(host, host.prefix, input.resource).generation(unit.generation);
  const launch = await files.launch.read().catch(() => undefined); // unreadable proves no identity: it is stopped first
  if (!launch) return undefined;
  const properties = await host.systemd.unitProperties(unit.name, [
    'InvocationID',
    'ControlGroupId',
    'LogExtraFields',
    'ActiveState',
    'SubState',
  ]);
  const { placement } = launch;
  const same =
    properties !== undefined &&
    isOwn(properties, input.resource, unit.generation, input.owner) &&
    isLiving(properties) &&
    placement.instance === host.identity.instance &&
    placement.bootId === host.identity.bootIds.at(-1) &&
    placement.program === input.program &&
    sameParameters(launch.parameters, input.parameters) &&
    properties.InvocationID !== '' &&
    (placement.invocation === '' || placement.invocation === properties.InvocationID);
  if (!same) return undefined;
  const seen = { invocation: properties.InvocationID ?? '', cgroupId: properties.ControlGroupId ?? '' };
  return { files, launch: { ...launch, placement: { ...placement, ...seen } } };
}

/** Makes an identified process this owner's; `epoch` is that of a control server's adoption. */
export async function takeOver(
  host: HostContext,
  { resource, owner }: Adopter,
  { files, launch }: Adopted,
  epoch?: number,
): Promise<Adopted> {
  const adopted: LaunchRecord = { ...launch, owner, ...(epoch !== undefined && { epoch }) };
  await files.launch.write(adopted);
  await files.stopping.remove();
  const { unit, generation } = launch.placement;
  host.log.info('adopted', { resource, generation, unit });
  return { files, launch: adopted };
}
