import { dirname } from 'node:path';
import { prefixSlice } from '../contract/names';
import { SystemdError, type SystemdPort, type TransientUnit } from '../systemd/port';
import { ClaimedError, type Instance } from './instance';

/**
 * Claims a unit prefix on this manager, or finds its own claim, and returns the cgroup path of the manager itself.
 *
 * The claim is the prefix's own slice and its description: systemd is the one place that every worker on the manager
 * sees whatever its directories are, makes a unit only once, and forgets it at reboot. The slice is also what verifies
 * the cgroup root. Rejects with {@link ClaimedError} when somebody else has it.
 */
export async function claimPrefix(systemd: SystemdPort, prefix: string, identity: Instance): Promise<string> {
  const slice = prefixSlice(prefix);
  const claim =
    `temporal-systemd ${prefix}: namespace ${identity.namespace}, task queue ${identity.taskQueue}, ` +
    `host ${identity.hostId}, instance ${identity.instance}`;
  const read = (): ReturnType<SystemdPort['unitProperties']> =>
    systemd.unitProperties(slice, ['Description', 'ControlGroup', 'ActiveState']);

  await make(systemd, { name: slice, properties: [['Description', 's', claim]] });
  let found = await read();
  if (found?.Description !== claim) {
    throw new ClaimedError(
      `unit prefix "${prefix}" is taken on this host: ${slice} says "${found?.Description ?? 'nothing'}", this worker is "${claim}". ` +
        `Give this worker another systemd.unitPrefix; or, once none of the other's units is left ` +
        `(systemctl list-units '${prefix}-*'), free it with: systemctl stop ${slice}`,
    );
  }
  if (found.ActiveState !== 'active') {
    // Other hands have stopped it, and something refers to it still: then it can't be made, but a slice in it brings it
    // up again. No resource is called like that one, for a "_" comes with two hex digits.
    await make(systemd, { name: `${prefix}-_.slice`, properties: [['StopWhenUnneeded', 'b', true]] });
    found = await read();
  }
  if (!found?.ControlGroup) throw new Error(`${slice} is ${found?.ActiveState ?? 'not loaded'} and has no cgroup`);
  return dirname(found.ControlGroup);
}

async function make(systemd: SystemdPort, unit: TransientUnit): Promise<void> {
  try {
    await (
      await systemd.startTransientUnit(unit, [])
    ).done;
  } catch (error) {
    if (!(error instanceof SystemdError) || error.kind !== 'unit-exists') throw error;
  }
}
