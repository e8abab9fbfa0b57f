import type { OwnerHandle, OwnResult } from '../src/client';
import { hostWorkflowId, ownerWorkflowId } from '../src/contract/names';
import type { TemporalServer } from '../test/support/temporal-server';
import type { PrivateHost, TestHost } from '../test/support/test-host';

/** Ends what was opened, newest first, however the demo ends: by itself, by an error, or by Ctrl-C at any point. */
export class CleanUp {
  private readonly steps: (() => Promise<void>)[] = [];
  private running = false;

  /** It has begun: whoever goes on after an interruption must start nothing any more. */
  get hasBegun(): boolean {
    return this.running;
  }

  /** Runs `main` and cleans up after it; sets the exit code. */
  static async around(main: (cleanUp: CleanUp) => Promise<void>): Promise<void> {
    const cleanUp = new CleanUp();
    const interrupted = new Promise<'interrupted'>((resolve) => {
      // Twice is usual: a terminal sends it to all processes, and npm passes it on.
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => resolve('interrupted'));
    });
    const running = main(cleanUp);
    running.catch(() => undefined); // after an interruption its calls fail one by one
    try {
      if ((await Promise.race([running, interrupted])) === 'interrupted') {
        print('\ncleaning up');
        process.exitCode = 130;
      }
    } catch (error) {
      console.error(error instanceof Error ? error.message : error);
      process.exitCode = 1;
    }
    await cleanUp.run();
    process.exit(); // calls that were cut off may still have timers
  }

  /** Waits for something to open, and has it closed in the end; also when it opens only after an interruption. */
  async after<T>(opening: Promise<T>, close: (opened: T) => Promise<void>): Promise<T> {
    this.steps.push(async () => {
      const opened = await opening.catch(() => undefined); // the one who waits for it below is told
      if (opened !== undefined) await close(opened);
    });
    return opening;
  }

  add(step: () => Promise<void>): void {
    this.steps.push(step);
  }

  private async run(): Promise<void> {
    this.running = true;
    for (const step of this.steps.reverse()) {
      await step().catch((error: unknown) => {
        console.error('clean-up:', error instanceof Error ? error.message : error);
        process.exitCode = 1;
      });
    }
  }
}

/**
 * On a server that goes on without the demo, nothing of it must stay open: the host's claim on its id, and, after an
 * interruption, the owner, whose process ends with the host.
 */
export async function endWorkflows(server: TemporalServer, host: string, resource: string): Promise<void> {
  if (server.uiUrl !== undefined) return; // the demo's own, which is about to go
  for (const workflowId of [ownerWorkflowId(resource), hostWorkflowId(host)]) {
    const ended = server.client.workflow.getHandle(workflowId).terminate('the demo is over');
    await ended.catch(() => undefined); // ended already
  }
}

/** The command by which a person looks at a unit. A private host is entered by the pid of its PID 1. */
export function lookCommand(host: TestHost, unit: string): string {
  if (host.manager === 'user') return `systemctl --user status ${unit}`;
  return `nsenter --target ${(host as PrivateHost).pid} --mount --pid --cgroup systemctl status ${unit}`;
}

export function print(text: string): void {
  console.log(text);
}

export function time(): string {
  return new Date().toISOString().slice(11, 23);
}

export function printTable(rows: readonly (readonly [string, string | undefined])[]): void {
  const width = Math.max(...rows.map(([name]) => name.length));
  for (const [name, value] of rows) print(`  ${name.padEnd(width)}  ${value ?? '-'}`);
}

/** Where a person finds the owner in Temporal. */
export function workflowLink({ uiUrl, namespace, address }: TemporalServer, resource: string): string {
  const id = ownerWorkflowId(resource);
  if (uiUrl === undefined) return `that of ${address}: namespace ${namespace}, workflow ${id}`;
  return `${uiUrl}/namespaces/${namespace}/workflows/${encodeURIComponent(id)}`;
}

/** Prints what the owner says whenever it says something new, until it has ended, or until `over`. */
export async function printChanges(handle: OwnerHandle, over: () => boolean = () => false): Promise<void> {
  let last = '';
  for (;;) {
    const status = await handle.status().catch(() => undefined);
    if (!status || over()) return;
    const { state, lastEvent, next, placement } = status;
    const line = `${state.padEnd(9)} ${lastEvent}; next: ${next}`;
    if (line !== last) print(`${time()}  owner  ${line}`);
    last = line;
    if (state === 'stopped') return;
    await new Promise((resolve) => setTimeout(resolve, placement ? 100 : 20));
  }
}

/** How ownership ended, and what that rests on. */
export function printEnd({ end, exit, proof, generation, restarts }: OwnResult): void {
  print('');
  printTable([
    ['end', end],
    ['exit report', `${exit.wording} (source: ${exit.source})`],
    ['generation', `${generation}, after ${restarts} restarts`],
    ['proof by', proof?.by ?? 'none: there was no process'],
    ['systemd said', proof?.units],
    ['cgroup said', proof?.cgroup],
    ['instance', proof?.instance],
    ['boot', proof?.bootId],
    ['invocation', proof?.invocation],
    ['read at', proof && new Date(proof.readAt).toISOString()],
  ]);
}
