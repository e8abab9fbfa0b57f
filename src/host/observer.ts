import { CgroupWatcher } from '../cgroup/watch';
import { parseUnit, unitPattern } from '../contract/names';
import type { UnitListing } from '../systemd/port';
import { isLiving, needsLease } from './condition';
import { prefixCgroup, type HostContext } from './context';
import type { Held } from './held';
import { messageOf, Sparse } from './log';

export interface ObserverOptions {
  /** Period of the full read, in ms. */
  readonly resyncMs: number;
  /** Told that a generation should be looked at. */
  readonly onWake: (held: Held) => void;
  /** Told that a unit which is up has no timer that would end it. */
  readonly onLeaseMissing: (held: Held) => void;
  /** Told after each full read which units systemd has. */
  readonly onResynced: (units: readonly UnitListing[]) => void;
}

/**
 * Notices when something may have changed: events wake, truth is re-read. Signals of the bus and changes of cgroups are
 * hints that can be lost, merged and late; so everything is also read again every `resyncMs`, after each reconnection,
 * and after the manager changed its name, with one list of all units.
 */
export class Observer {
  private readonly tracked = new Map<string, Held>();
  private readonly watcher: CgroupWatcher;
  private readonly stops: (() => void)[];
  private readonly sparse = new Sparse(2000);
  private readonly timer: NodeJS.Timeout;
  private resyncing: Promise<void> | undefined;
  private closed = false;

  constructor(
    private readonly host: HostContext,
    private readonly options: ObserverOptions,
  ) {
    this.watcher = new CgroupWatcher(prefixCgroup(host, host.prefix));
    this.stops = [
      host.systemd.onUnitChanged((unit) => {
        const held = this.tracked.get(unit);
        if (held) options.onWake(held);
      }),
      host.systemd.onResync(() => void this.resync()),
    ];
    this.timer = setInterval(() => void this.resync(), options.resyncMs);
  }

  /** Starts to watch a generation, and wakes for it once: what happened before the watch was armed woke nobody. */
  track(held: Held): void {
    const { unit, slice } = held.launch.placement;
    this.tracked.set(unit, held);
    this.arm(slice);
    this.options.onWake(held);
  }

  /** Arms the watch of a resource's slice, again where it was armed before: its cgroup may have come to be meanwhile. */
  arm(slice: string): void {
    this.watcher.add(slice, () => {
      for (const held of this.tracked.values()) if (held.launch.placement.slice === slice) this.options.onWake(held);
    });
  }

  untrack(held: Held): void {
    const { unit, slice } = held.launch.placement;
    this.tracked.delete(unit);
    if (![...this.tracked.values()].some((other) => other.launch.placement.slice === slice)) this.watcher.remove(slice);
  }

  /** One read of all units: wakes for every tracked generation that does not simply run under its lease. */
  resync(): Promise<void> {
    this.resyncing ??= this.readAll().finally(() => (this.resyncing = undefined));
    return this.resyncing;
  }

  close(): void {
    this.closed = true;
    clearInterval(this.timer);
    for (const stop of this.stops) stop();
    this.watcher.close();
    this.tracked.clear();
  }

  private async readAll(): Promise<void> {
    if (this.closed) return;
    const from = performance.now();
    const before = new Set(this.tracked.values()); // what is tracked later may be younger than the list
    let units: readonly UnitListing[];
    try {
      units = await this.host.systemd.listUnits(unitPattern(this.host.prefix));
    } catch (error) {
      if (!this.closed && this.sparse.due('resync')) {
        this.host.log.warn('resync: systemd gave no answer', { error: messageOf(error) });
      }
      return;
    }
    const byName = new Map(units.map((unit) => [unit.name, unit]));
    const leased = new Set<string>();
    for (const { name, subState } of units) {
      const parsed = parseUnit(this.host.prefix, name);
      // `waiting` for its deadline, or `running`: past it, and its oneshot is ending the unit.
      if (parsed?.kind === 'lease-timer' && (subState === 'waiting' || subState === 'running')) leased.add(parsed.unit);
    }
    for (const held of before) {
      const { unit } = held.launch.placement;
      if (this.tracked.get(unit) !== held) continue;
      const listed = byName.get(unit);
      const state = { ActiveState: listed?.activeState, SubState: listed?.subState };
      const living = isLiving(state);
      if (needsLease(state) && !leased.has(unit)) this.options.onLeaseMissing(held);
      // A hold that waits for a word may have missed the event that it waits for.
      if (!living || held.hold?.greet || held.hold?.ready === false) this.options.onWake(held);
    }
    this.options.onResynced(units);
    this.host.log.debug('resync', { tracked: before.size, units: units.length, ms: performance.now() - from });
  }
}
