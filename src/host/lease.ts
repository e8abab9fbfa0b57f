import type { Placement } from '../contract/facts';
import { leaseUnits, parseUnit, unitLeases } from '../contract/names';
import { SystemdError, type ManagerFacts, type TransientUnit, type UnitListing } from '../systemd/port';
import { monotonicNow, type HostContext } from './context';
import type { LeaseRecord } from './generation-files';
import { execCommand } from './unit';

/** A lease could not be armed. What runs under the former one goes on until that is over. */
export class LeaseError extends Error {
  override readonly name = 'LeaseError';
}

/** How far the manager's own idea of the deadline may be from ours, in µs: well below the shortest lease. */
const DEADLINE_TOLERANCE = 250_000;

/**
 * The n-th lease of a unit: a timer that elapses at an absolute moment, and the oneshot that it starts, whose conflict
 * with the unit makes systemd stop it: no worker and no Temporal are needed for that (G7).
 *
 * - `OnBootSec` is a moment of CLOCK_MONOTONIC. `OnActiveSec` would start anew at every daemon-reload (systemd#31914),
 *   and a renewal that arrives late would be a full one.
 * - After the unit's stop timeout the oneshot kills: a notify service could extend its own stop for ever.
 * - No start limit: at the default of five in ten seconds, the fifth renewal would leave the unit without a lease.
 */
export function leasePair(
  host: HostContext,
  unit: string,
  n: number,
  deadline: number,
  stopTimeoutMs: number,
): [timer: TransientUnit, oneshot: TransientUnit] {
  const { timer, oneshot } = leaseUnits(unit, n);
  const onBoot = Math.max(1, Math.round(deadline - host.bootBase));
  const systemctl =
    host.identity.manager === 'system' ? ['/usr/bin/env', 'systemctl'] : ['/usr/bin/env', 'systemctl', '--user'];
  const kill = [...systemctl, 'kill', '--kill-whom=all', '--signal=KILL', unit];
  const noStartLimit = ['StartLimitIntervalUSec', 't', 0] as const;
  return [
    {
      name: timer,
      properties: [
        ['Description', 's', `lease ${n} of ${unit}`],
        ['TimersMonotonic', 'a(st)', [['OnBootSec', onBoot]]],
        ['AccuracyUSec', 't', 1000],
        ['RemainAfterElapse', 'b', false],
        noStartLimit,
      ],
    },
    {
      name: oneshot,
      properties: [
        ['Description', 's', `end of lease ${n} of ${unit}`],
        ['Type', 's', 'oneshot'],
        ['Conflicts', 'as', [unit]],
        [
          'ExecStart',
          'a(sasb)',
          [execCommand(['/bin/sleep', String(Math.ceil(stopTimeoutMs / 1000) + 1)]), execCommand(kill, true)],
        ],
        ['CollectMode', 's', 'inactive-or-failed'],
        noStartLimit,
      ],
    },
  ];
}

/**
 * Starts the n-th pair of a unit. Counts once the job is done and the timer itself says that it waits for `deadline`. Returns
 * the numbers of the unit's other timers that systemd has, whoever made them: each of them would end the unit in its time.
 */
export async function armLease(
  host: HostContext,
  placement: Pick<Placement, 'unit' | 'stopTimeoutMs'>,
  n: number,
  deadline: number,
): Promise<readonly number[]> {
  const { unit, stopTimeoutMs } = placement;
  const [timer, oneshot] = leasePair(host, unit, n, deadline, stopTimeoutMs);
  const result = await (await host.systemd.startTransientUnit(timer, [oneshot])).done;
  if (result !== 'done') throw new LeaseError(`${timer.name}: the start job ended "${result}"`);
  return checkLease(host, unit, n, deadline);
}

/** Rejects unless the timer of this lease waits for its deadline; returns the numbers of the unit's others. */
async function checkLease(host: HostContext, unit: string, n: number, deadline: number): Promise<readonly number[]> {
  const { timer } = leaseUnits(unit, n);
  const [units, next] = await Promise.all([
    host.systemd.listUnits(unitLeases(unit)),
    host.systemd.unitProperties(timer, ['NextElapseUSecMonotonic']),
  ]);
  const found = units.find(({ name }) => name === timer);
  if (found?.activeState !== 'active' || found.subState !== 'waiting') {
    throw new LeaseError(
      `${timer} is ${found ? `${found.activeState} (${found.subState})` : 'not loaded'}, not waiting`,
    );
  }
  const off = Math.abs((next?.NextElapseUSecMonotonic ?? 0) - deadline);
  if (off > DEADLINE_TOLERANCE && deadline > monotonicNow()) {
    throw new LeaseError(
      `${timer} would elapse ${Math.round(off / 1000)} ms off its deadline: this manager counts OnBootSec from another ` +
        `moment than CLOCK_MONOTONIC ${host.bootBase} µs`,
    );
  }
  return (leaseNumbers(host.prefix, units).get(unit) ?? []).filter((other) => other !== n);
}

/** By unit, the numbers of the lease timers in a list of units that may still elapse. */
export function leaseNumbers(prefix: string, units: readonly UnitListing[]): ReadonlyMap<string, readonly number[]> {
  const numbers = new Map<string, number[]>();
  for (const { name, activeState, jobType } of units) {
    const parsed = parseUnit(prefix, name);
    if (parsed?.kind !== 'lease-timer' || (activeState !== 'active' && jobType === '')) continue;
    numbers.set(parsed.unit, [...(numbers.get(parsed.unit) ?? []), parsed.n]);
  }
  return numbers;
}

/** When a lease timer elapses, in µs of CLOCK_MONOTONIC, as systemd has it; undefined where it gives no answer. */
export async function deadlineOf(host: HostContext, unit: string, n: number): Promise<number | undefined> {
  const { timer } = leaseUnits(unit, n);
  const found = await host.systemd.unitProperties(timer, ['NextElapseUSecMonotonic']).catch(() => undefined);
  const deadline = found?.NextElapseUSecMonotonic ?? 0;
  return deadline > 0 && Number.isFinite(deadline) ? deadline : undefined;
}

/** Whether the timer of this lease surely waits for its deadline; no answer is no (G4). */
export function isArmed(
  host: HostContext,
  unit: string,
  { n, deadline }: Pick<LeaseRecord, 'n' | 'deadline'>,
): Promise<boolean> {
  return checkLease(host, unit, n, deadline).then(
    () => true,
    () => false,
  );
}

/**
 * What the manager's `OnBootSec=` counts from, in µs of CLOCK_MONOTONIC: the kernel's start, except in a container, where
 * it is the start of the manager (systemd.timer(5) is silent on this; systemd's timer.c). {@link checkLease} finds out
 * when this is wrong.
 */
export function bootBaseOf(manager: ManagerFacts): number {
  return CONTAINERS.test(manager.virtualization) ? manager.userspaceTimestampMonotonic : 0;
}

/** Names that systemd-detect-virt(1) gives to containers; all others are virtual machines. */
const CONTAINERS = /^(openvz|lxc|lxc-libvirt|systemd-nspawn|docker|podman|rkt|wsl|proot|pouch|container-other)$/;

/** Stops a timer or oneshot of a lease; that it is gone already is as good. */
export async function stopLeaseUnit(host: HostContext, unit: string): Promise<void> {
  try {
    await (
      await host.systemd.stopUnit(unit)
    ).done;
  } catch (error) {
    if (!(error instanceof SystemdError) || error.kind !== 'no-such-unit') throw error;
  }
}
