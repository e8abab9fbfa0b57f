import type { CapacityConfig } from '../config/config';

/** What a host's processes take of it. */
export interface Load {
  readonly units: number;
  /** Their memory limits together, in bytes. */
  readonly memoryBytes: number;
}

/**
 * What this worker lets its host take on. A resource has its room from its start until it is proven dead, also while it is
 * not known whether anything of it runs. Limits hold for new starts alone: what runs already is never too much.
 *
 * Each worker process counts for itself. Two of them on one host at the same time may take on more.
 */
export class Capacity {
  /** Why no new resource is taken on; undefined where they are. */
  draining: string | undefined;
  private readonly taken = new Map<string, number>();

  constructor(private readonly limits: CapacityConfig = {}) {}

  get load(): Load {
    return { units: this.taken.size, memoryBytes: this.memory };
  }

  /** The resources that have room here, in no order. */
  get resources(): readonly string[] {
    return [...this.taken.keys()];
  }

  /**
   * Takes room for a start, or says why there is none. `goesOn`: its owner had a process here before, which a host that is
   * being drained lets it have again.
   */
  take(resource: string, memoryBytes = 0, goesOn = false): string | undefined {
    if (this.draining !== undefined && !goesOn) return `the host is being drained: ${this.draining}`;
    const others = this.taken.size - (this.taken.has(resource) ? 1 : 0);
    const { units = Infinity, memoryBytes: most = Infinity } = this.limits;
    if (others + 1 > units) return `the host is full: ${others} of ${units} units`;
    const memory = this.memory - (this.taken.get(resource) ?? 0);
    if (memory + memoryBytes > most) {
      return `the host is full: ${memory} of ${most} bytes of memory are given away, and ${memoryBytes} are asked for`;
    }
    this.keep(resource, memoryBytes);
    return undefined;
  }

  /** It runs, or may run, whatever the limits say. */
  keep(resource: string, memoryBytes = 0): void {
    this.taken.set(resource, memoryBytes);
  }

  /** Nothing of it is left. */
  free(resource: string): void {
    this.taken.delete(resource);
  }

  private get memory(): number {
    return [...this.taken.values()].reduce((sum, bytes) => sum + bytes, 0);
  }
}
