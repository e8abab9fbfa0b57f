/** Where the host writes what it does; the shape of Temporal's own `Logger`, so that either fits. */
export interface HostLog {
  debug(message: string, attributes?: Record<string, unknown>): void;
  info(message: string, attributes?: Record<string, unknown>): void;
  warn(message: string, attributes?: Record<string, unknown>): void;
  error(message: string, attributes?: Record<string, unknown>): void;
}

/**
 * Lets one message per key through in `intervalMs`: a process that does not end wakes its observer a hundred times a
 * second, and nobody reads the same line that often.
 */
export class Sparse {
  private readonly last = new Map<string, number>();

  constructor(
    private readonly intervalMs: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Whether it is time to say this again. */
  due(key: string): boolean {
    const now = this.now();
    const last = this.last.get(key);
    if (last !== undefined && now - last < this.intervalMs) return false;
    if (this.last.size > 10_000) this.last.clear(); // keys are unit names, which never come back
    this.last.set(key, now);
    return true;
  }
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
