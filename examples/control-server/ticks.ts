import { readFileSync } from 'node:fs';

/** How often the log of a session is looked at. */
const LOOK_MS = 20;

/** What was seen of a session's ticks. */
export interface TicksSeen {
  /** The last tick. */
  readonly count: number;
  /** Numbers that should have been there before it. */
  readonly missing: number;
  /** The longest time in which no tick came, as seen from here. */
  readonly longestMs: number;
}

/** Follows the log of a session, which the server writes whoever owns it, and says every tenth tick. */
export class Ticks {
  private readonly timer = setInterval(() => this.look(), LOOK_MS);
  private seen: readonly number[] = [];
  private lastAt = performance.now();
  private longestMs = 0;

  constructor(
    private readonly file: string,
    private readonly onTenth: (count: number) => void,
  ) {}

  /** Stops following it. */
  close(): TicksSeen {
    clearInterval(this.timer);
    const count = this.seen.at(-1) ?? 0;
    return { count, missing: count - new Set(this.seen).size, longestMs: this.longestMs };
  }

  private look(): void {
    // The first line says who writes, and the last one may be half a line.
    const lines = readFileSync(this.file, 'utf8').split('\n').slice(0, -1);
    const ticks = lines.flatMap((line) => (/^[0-9]+$/.test(line) ? [Number(line)] : []));
    const fresh = ticks.slice(this.seen.length);
    if (fresh.length === 0) return;
    const now = performance.now();
    if (this.seen.length > 0) this.longestMs = Math.max(this.longestMs, now - this.lastAt);
    this.lastAt = now;
    this.seen = ticks;
    for (const tick of fresh) if (tick % 10 === 0) this.onTenth(tick);
  }
}
