import { setTimeout as delay } from 'node:timers/promises';
import { monotonicNow } from '../../src/host/context';
import type { Silence } from '../support/oracle';
import type { PrivateHost } from '../support/private-host';
import { runCli, type CliProcess, type WorkerLine } from '../support/worker-process';

/** Between the end of a worker that nobody wanted to end and the next one, as `RestartSec=` has it in deploy/. */
const RESTART_MS = 1_000;

/** What a second one is given to be serving; meanwhile systemd or Temporal may be away. */
const START_MS = 15_000;

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
  private readonly running = new Set<CliProcess>();
  private goneSince = monotonicNow();
  private current: CliProcess | undefined;
  /** Runs already, and takes the place of the current one when that ends. */
  private successor: CliProcess | undefined;
  private wanted = true;
  private supervising: Promise<void> | undefined;
  private wake = (): void => undefined;

  constructor(
    private readonly host: PrivateHost,
    private readonly config: string,
  ) {}

  /** All that the workers have logged. */
  get lines(): readonly WorkerLine[] {
    return [...this.former, ...[...this.running].flatMap(({ lines }) => lines)];
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

  /**
   * Has a second one serve the host beside the one there is, for a while; then one of them ends. Where that is the former,
   * it is asked to, as in an upgrade.
   */
  async double(forMs: number, ends: 'newcomer' | 'former'): Promise<void> {
    const former = this.current;
    const newcomer = this.run();
    const serves = newcomer.line('serving the host').catch(() => undefined); // it may end before
    await Promise.race([serves, delay(START_MS)]);
    await delay(forMs);
    if (ends === 'former' && former && this.current === former) {
      this.successor = newcomer;
      former.kill('SIGTERM');
      await former.ended;
    } else {
      newcomer.kill('SIGKILL');
      await newcomer.ended;
    }
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
      if (this.running.size === 0) this.silences.push({ from: this.goneSince, to: monotonicNow() });
      const worker = this.successor ?? this.run();
      this.successor = undefined;
      this.current = worker;
      const { code, stdout, stderr } = await worker.ended;
      this.goneSince = monotonicNow();
      this.current = undefined;
      if (!this.wanted) return;
      if (this.successor) continue;
      this.ends.push(`exit ${code}: ${(stderr || stdout).trim().split('\n').slice(0, 2).join(' ').slice(0, 300)}`);
      await new Promise<void>((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, RESTART_MS).unref();
      });
    }
  }

  private run(): CliProcess {
    const worker = runCli(this.host, ['--config', this.config, 'worker'], { LOG_LEVEL: 'info' });
    this.running.add(worker);
    void worker.ended.then(() => {
      this.running.delete(worker);
      this.former.push(...worker.lines);
    });
    return worker;
  }
}
