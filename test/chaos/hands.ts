import { escapeResource, generationUnit, prefixSlice, resourceSlice } from '../../src/contract/names';
import { monotonicNow } from '../../src/host/context';
import type { Moments } from './moments';
import { inHost, systemctl, unitsOf } from './on-host';
import type { Hands, Plan } from './plan';
import type { ChaosScene } from './scene';

/** Takes back what lasts for a while. Where that is over by itself, as after a reboot, there is nothing of it to be found. */
export type Undo = () => Promise<unknown>;

type Resource = Plan['resources'][number];

/** A resource that hands are laid on, with what systemd has of it at this moment. */
interface Target extends Pick<Resource, 'name' | 'manner'> {
  readonly scene: ChaosScene;
  readonly moments: Moments;
  /** Its unit, the slice that this is in, and the lease's timer. */
  readonly service?: string;
  readonly slice?: string;
  readonly timer?: string;
  /** How long it lasts, for what has to know before. */
  readonly forMs: number;
}

/** Resolves once it is done; with undefined where the resource has nothing that it can be done to. */
type Hand = (on: Target) => Promise<Undo | undefined>;

/** What somebody with root on a host may do. */
const HANDS: Readonly<Record<Hands['kind'], Hand>> = {
  'unit stopped': ({ scene, service }) => calls(scene, service, 'stop', '--no-block'),
  'unit restarted': ({ scene, service }) => calls(scene, service, 'restart', '--no-block'),
  'unit killed': ({ scene, service }) => calls(scene, service, 'kill', '--kill-whom=main', '--signal=KILL'),
  'unit frozen': ({ scene, service }) => freezes(scene, service),
  'unit property set': ({ scene, service }) => sets(scene, service),
  'unit failure reset': resetsFailures,
  'unit by hand': startsByHand,
  'slice stopped': ({ scene, slice }) => calls(scene, slice, 'stop', '--no-block'),
  'slice killed': ({ scene, slice }) => calls(scene, slice, 'kill', '--signal=KILL'),
  'slice frozen': ({ scene, slice }) => freezes(scene, slice),
  'slice property set': ({ scene, slice }) => sets(scene, slice),
  'prefix slice frozen': ({ scene }) => freezes(scene, prefixSlice(scene.host.unitPrefix)),
  'timer stopped': ({ scene, moments, name, timer }) => {
    if (timer) moments.timersStopped.push({ resource: name, at: monotonicNow() });
    return calls(scene, timer, 'stop', '--no-block');
  },
  'stray in unit': (on) => straysInto(on, cgroupOf(on)),
  'stray in slice': (on) => straysInto(on, on.slice && `${prefixCgroup(on.scene)}/${on.slice}`),
  'main moved out': movesMain,
  'child moved out': movesChild,
};

/** Lays hands on a resource; where it has nothing for them, on the next one that has. Resolves with undefined where none has. */
export async function meddle(
  hands: Hands,
  resources: readonly Resource[],
  scene: ChaosScene,
  moments: Moments,
): Promise<Undo | undefined> {
  const units = await unitsOf(scene);
  const first = resources.findIndex(({ name }) => name === hands.resource);
  for (const { name, manner } of [...resources.slice(first), ...resources.slice(0, first)]) {
    const own = units.filter((unit) => unit.includes(`-${escapeResource(name)}-g`));
    if (own.length === 0) continue;
    const service = own.find((unit) => /-g\d+\.service$/.test(unit));
    const slice = service && resourceSlice(scene.host.unitPrefix, name);
    const timer = own.find((unit) => unit.endsWith('.timer'));
    const forMs = 'forMs' in hands ? hands.forMs : 0;
    const undo = await HANDS[hands.kind]({ name, manner, scene, moments, service, slice, timer, forMs });
    if (!undo) continue;
    moments.hands.push({ resource: name, what: hands.kind, at: monotonicNow() });
    return undo;
  }
  return undefined;
}

const nothing: Undo = () => Promise.resolve();

async function calls(scene: ChaosScene, unit: string | undefined, ...verb: string[]): Promise<Undo | undefined> {
  if (!unit) return undefined;
  await systemctl(scene, ...verb, unit);
  return nothing;
}

async function freezes(scene: ChaosScene, unit: string | undefined): Promise<Undo | undefined> {
  if (!unit) return undefined;
  await systemctl(scene, 'freeze', unit);
  return () => systemctl(scene, 'thaw', unit);
}

/** Leaves a drop-in of that unit's name behind: of the next generation's slice as well, for that has the same name. */
async function sets(scene: ChaosScene, unit: string | undefined): Promise<Undo | undefined> {
  if (!unit) return undefined;
  await systemctl(scene, 'set-property', '--runtime', unit, 'CPUWeight=50', 'TasksMax=1000');
  return nothing;
}

/** Again and again, on whatever has failed: no unit is failed for long before its owner has had it proven. */
async function resetsFailures({ scene, forMs }: Target): Promise<Undo> {
  const reset = 'while :; do systemctl reset-failed "$1"; sleep 0.1; done';
  const script = `exec >/dev/null 2>&1; timeout "$2" sh -c '${reset}' sh "$1" &`;
  await inHost(scene, script, `${scene.host.unitPrefix}-*.service`, seconds(forMs));
  return nothing;
}

/** A stranger by the name of a generation that is yet to come: while it is there, nothing of the resource starts or is proven. */
async function startsByHand({ scene, name, forMs }: Target): Promise<Undo> {
  const unit = generationUnit(scene.host.unitPrefix, name, Date.now() + forMs);
  await inHost(scene, 'timeout 20 systemd-run --collect --unit="$1" sleep "$2"', unit, seconds(forMs));
  return nothing;
}

/**
 * Moves a process there that is none of its own. In the unit's cgroup it ends with the unit, as a child would. In the slice's own
 * it is in the way of every proof until it ends by itself.
 */
async function straysInto({ scene, forMs }: Target, cgroup: string | undefined): Promise<Undo | undefined> {
  // It holds no pipe of ours: in a cgroup that is frozen it does not even begin, and who reads the output would wait for it.
  const script = 'exec >/dev/null 2>&1; sleep "$2" & echo $! > "$1/cgroup.procs" || { kill $!; exit 1; }';
  if (!cgroup || (await inHost(scene, script, cgroup, seconds(forMs))) === undefined) return undefined;
  return nothing;
}

/**
 * Removes empty cgroups that are there because of hands alone: systemd does not come back to one that had a stray in it when its
 * unit was over, and it makes one for a unit that is over when a property of that is set.
 */
export async function sweepAfterHands(scene: ChaosScene, { hands }: Moments): Promise<void> {
  for (const { resource } of hands.filter(({ what }) => /^stray|property set$/.test(what))) {
    const cgroup = `${prefixCgroup(scene)}/${resourceSlice(scene.host.unitPrefix, resource)}`;
    await inHost(scene, 'find "$1" -depth -type d -exec rmdir {} +', cgroup);
  }
}

/**
 * Moves a main process to a cgroup that is nobody's, and back. It stays systemd's own child, so a stop and a lease end it there
 * as well. One that has children is left alone: they would be born outside, and are then as those of {@link movesChild}.
 */
async function movesMain(on: Target): Promise<Undo | undefined> {
  const { scene, manner } = on;
  const home = cgroupOf(on);
  const away = manner !== 'family' && (await movesOut(on, await mainOf(on)));
  if (!home || !away) return undefined;
  const back = 'while read pid; do echo "$pid" > "$2/cgroup.procs"; done < "$1/cgroup.procs"; rmdir "$1"';
  return () => inHost(scene, back, away, home);
}

/** Moves a child that its main process leaves behind. No reading finds it any more, so whoever has moved it ends it. */
async function movesChild(on: Target): Promise<Undo | undefined> {
  const { name, scene, moments, manner } = on;
  const home = cgroupOf(on);
  if (!home || manner !== 'family') return undefined;
  const main = await mainOf(on);
  const pids = (await inHost(scene, 'cat "$1/cgroup.procs"', home)) ?? '';
  const pid = main === '' ? undefined : pids.split('\n').find((one) => one !== '' && one !== main);
  const moved = { resource: name, pid: Number(pid), from: monotonicNow(), to: Infinity };
  const away = await movesOut(on, pid);
  if (!away) return undefined;
  moments.movedOut.push(moved);
  return async () => {
    await inHost(scene, 'echo 1 > "$1/cgroup.kill"; timeout 5 sh -c "until rmdir $1; do sleep 0.1; done"', away);
    moved.to = monotonicNow();
  };
}

/** Moves a process of a unit to a cgroup of its own, and resolves with that. */
async function movesOut({ scene, service }: Target, pid: string | undefined): Promise<string | undefined> {
  if (!service || !Number(pid)) return undefined;
  const away = `/sys/fs/cgroup/away-${service}`;
  const moves = 'mkdir -p "$1" && { echo "$2" > "$1/cgroup.procs" || { rmdir "$1"; exit 1; }; }';
  const moved = await inHost(scene, moves, away, pid!);
  return moved === undefined ? undefined : away;
}

/** The process id of a unit's main process, in the host; empty where systemd gives no answer. */
async function mainOf({ scene, service }: Target): Promise<string> {
  return service ? systemctl(scene, 'show', '--value', '--property=MainPID', service) : '';
}

/** The cgroup of a unit, and of the prefix, as the host sees them. */
function cgroupOf({ scene, slice, service }: Target): string | undefined {
  return service && `${prefixCgroup(scene)}/${slice}/${service}`;
}

function prefixCgroup({ host }: ChaosScene): string {
  return `/sys/fs/cgroup/${prefixSlice(host.unitPrefix)}`;
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(1);
}
