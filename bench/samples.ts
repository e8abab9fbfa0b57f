/** Rest before a thing is timed: longer than what the one before it leaves behind in systemd and in the kernel. */
const REST_MS = 100;

/** Times of one thing, in ms. */
export class Samples {
  private readonly values: number[] = [];

  constructor(readonly name: string) {}

  /** Runs it once the machine is at rest, and keeps how long it took. */
  async timeAtRest<T>(run: () => Promise<T>): Promise<T> {
    // The kernel moves a process to another cgroup in 0.04 ms right after it has moved another one, and in 7.8 ms after
    // this rest (docs/figures.md): without it, whatever comes second would look faster than it is.
    await new Promise((resolve) => setTimeout(resolve, REST_MS));
    return this.time(run);
  }

  /** Runs it and keeps how long it took. */
  async time<T>(run: () => Promise<T>): Promise<T> {
    const from = performance.now();
    const result = await run();
    this.values.push(performance.now() - from);
    return result;
  }

  add(ms: number): void {
    this.values.push(ms);
  }

  get count(): number {
    return this.values.length;
  }

  get p50(): number {
    return this.quantile(0.5);
  }

  get p99(): number {
    return this.quantile(0.99);
  }

  /** Nearest rank, so that every figure is one that was measured. */
  private quantile(q: number): number {
    const sorted = [...this.values].sort((a, b) => a - b);
    return sorted[Math.max(0, Math.ceil(q * sorted.length) - 1)] ?? NaN;
  }
}

/** One line of the table. */
export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  /** p99, where the value is a p50. */
  readonly p99?: number;
  /** What it must stay under (or over, with `atLeast`), and how that came about. */
  readonly bound?: { readonly limit: number; readonly atLeast?: boolean; readonly because: string };
}

/** A figure made of samples: judged by p50, p99 shown. */
export function figureOf(samples: Samples, bound?: Figure['bound']): Figure {
  return { name: samples.name, value: samples.p50, p99: samples.p99, unit: 'ms', bound };
}

/** Whether a figure keeps its bound; one without a bound is shown only. */
export function holds({ value, bound }: Figure): boolean {
  if (!bound) return true;
  return bound.atLeast ? value >= bound.limit : value <= bound.limit;
}

/** The figures as a table for people. */
export function tableOf(figures: readonly Figure[]): string {
  const rows = figures.map((figure) => [
    figure.name,
    `${round(figure.value)} ${figure.unit}`,
    figure.p99 === undefined ? '' : `${round(figure.p99)} ${figure.unit}`,
    figure.bound ? `${figure.bound.atLeast ? '≥' : '≤'} ${round(figure.bound.limit)} (${figure.bound.because})` : '',
    figure.bound ? (holds(figure) ? 'ok' : 'MISSED') : '',
  ]);
  const header = ['figure', 'p50 / value', 'p99', 'bound', ''];
  const all = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}

function round(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}
