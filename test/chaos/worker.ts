import { setTimeout as delay } from 'node:timers/promises';
import { monotonicNow } from '../../src/host/context';
import type { Silence } from '../support/oracle';
import type { PrivateHost } from '../support/private-host';
import { runCli, type CliProcess, type WorkerLine } from '../support/worker-process';

/** Between the end of a worker that nobody wanted to end and the next one, as `RestartSec=` has it in deploy/. */
const RESTART_MS = 1_000;

/**
 * The host's worker, a process in the host, run as systemd would run it: one that ends is followed by another. Knows when
 * there surely was none at work.
 */
export class ChaosWorker {
  /** While there was none, or it was stopped. */
  readonly silences: Silence[] = [];
  /** How the ones that nobody had killed have ended. */
  readonly ends: string[] = [];
  private readonly former: WorkerLine[] = [];
  private goneSince = monotonicNow();
  private current: CliProcess | undefined;
  private wanted = true;
  private supervising: Promise<void> | undefined;
  private wake = (): void => undefined;

  constructor(
    private readonly host: PrivateHost,
    private readonly config: string,
  ) {}

  /** All that the workers have logged. */
  get lines(): readonly WorkerLine[] {
    return [...this.former, ...(this.current?.lines ?? [])];
  }

  start(): void {
    this.wanted = true;
    this.supervising ??= this.supervise().finally(() => (this.supervising = undefined));
  }

  /** Ends it, and starts no other one; resolves once it is gone. */
  async stop(signal: NodeJS.Signals): Promise<void> {
    this.wanted = false;
    this.wake();
    this.current?.kill(signal);
    await this.supervising;
  }

  /** Pauses the one there is. */
  async pause(forMs: number): Promise<void> {
    const { current } = this;
    if (!current) return;
    current.kill('SIGSTOP');
    const from = monotonicNow() + 100_000; // by then the signal has stopped each of its threads
    await delay(forMs);
    if (this.current === current) this.silences.push({ from, to: monotonicNow() });
    current.kill('SIGCONT');
  }

  /** Resolves once it serves the host. */
  async serving(withinMs: number): Promise<void> {
    for (const until = Date.now() + withinMs; ; await delay(100)) {
      if (this.current?.lines.some(({ msg }) => msg === 'serving the host')) return;
      if (Date.now() > until) {
        const last = this.ends.slice(-3).join('\n');
        throw new Error(`no worker serves the host after ${withinMs} ms. The last ones ended with:\n${last}`);
      }
    }
  }

  private async supervise(): Promise<void> {
    while (this.wanted) {
      this.silences.push({ from: this.goneSince, to: monotonicNow() });
      const worker = runCli(this.host, ['--config', this.config, 'worker'], { LOG_LEVEL: 'info' });
      this.current = worker;
      const { code, stdout, stderr } = await worker.ended;
      this.goneSince = monotonicNow();
      this.current = undefined;
      this.former.push(...worker.lines);
      if (!this.wanted) return;
      this.ends.push(`exit ${code}: ${(stderr || stdout).trim().split('\n').slice(0, 2).join(' ').slice(0, 300)}`);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, RESTART_MS).unref();
      });
    }
  }
}
