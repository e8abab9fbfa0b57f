import type { Program } from '../../src/config';
import type { HoldInput, OwnerIdentity, StartAnswer, StartInput, StopInput } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { Host, type HostOptions } from '../../src/host/host';
import type { HostLog } from '../../src/host/log';
import { connectSystemd } from '../../src/systemd/dbus-systemd';
import type { SystemdPort } from '../../src/systemd/port';
import { RecordingLink } from './recording-link';
import type { TestHost } from './test-host';

/** A worker's host part on a test host, without Temporal. */
export interface OwnedHost {
  readonly host: Host;
  readonly link: RecordingLink;
  readonly systemd: SystemdPort;
  readonly lines: readonly LogLine[];
}

export interface LogLine {
  readonly level: string;
  readonly message: string;
  readonly attributes: Record<string, unknown>;
}

/** Opens the host part of a worker on a test host. `change` overrides any option. */
export async function openOwnedHost(
  testHost: TestHost,
  programs: readonly Program[],
  change: Partial<HostOptions> = {},
): Promise<OwnedHost> {
  const lines: LogLine[] = [];
  const link = new RecordingLink();
  const systemd = change.systemd ?? (await connectSystemd({ busAddress: testHost.busAddress }));
  try {
    const host = await Host.open({
      id: 'test-host',
      namespace: 'test',
      taskQueue: 'owners',
      programs: Object.fromEntries(programs.map((program) => [program.name, program])),
      systemd,
      manager: testHost.manager,
      unitPrefix: testHost.unitPrefix,
      runDirectory: testHost.runDirectory,
      stateDirectory: testHost.stateDirectory,
      cgroupRoot: 'auto',
      root: testHost.root,
      resyncMs: 15_000,
      link,
      log: collectingLog(lines),
      ...change,
    });
    return { host, link, systemd, lines };
  } catch (error) {
    await systemd.close();
    throw error;
  }
}

/** A program with every default, as the configuration would load it; shorter times, for tests. */
export function program(name: string, exec: Program['exec'], change: Partial<Program> = {}): Program {
  return {
    name,
    exec,
    parameters: {},
    environmentFiles: [],
    environment: {},
    credentials: {},
    limits: {},
    hardening: 'off',
    stop: { signal: 'SIGTERM', timeoutMs: 2000, killMode: 'control-group' },
    ready: 'exec',
    readyTimeoutMs: 60_000,
    leaseMs: 60_000,
    restart: { policy: 'no', backoffMs: 100, maxBackoffMs: 1000, limit: 3, resetAfterMs: 600_000 },
    ...change,
  };
}

/** Runs a shell script. */
export function script(name: string, text: string, change: Partial<Program> = {}): Program {
  return program(name, ['/bin/sh', '-c', text], change);
}

export const owner: OwnerIdentity = {
  namespace: 'test',
  taskQueue: 'owners',
  workflowId: 'own:test',
  ownerId: 'owner-1',
};

export function startInput(resource: string, program: string, change: Partial<StartInput> = {}): StartInput {
  return { resource, program, parameters: {}, owner, generation: Date.now(), ...change };
}

export function stopInput(resource: string, placement: Placement, change: Partial<StopInput> = {}): StopInput {
  return { resource, owner, rung: 'stop', generation: placement.generation, placement, ...change };
}

export function holdInput(resource: string, placement: Placement, change: Partial<HoldInput> = {}): HoldInput {
  return { resource, placement, owner, ready: true, greet: false, ...change };
}

/** The placement of an answer that must be `started` or `adopted`. */
export function placementOf(answer: StartAnswer): Placement {
  if (!('placement' in answer)) throw new Error(`expected a placement, got ${JSON.stringify(answer)}`);
  return answer.placement;
}

/** A log that keeps its lines. */
export function collectingLog(lines: LogLine[]): HostLog {
  const at =
    (level: string) =>
    (message: string, attributes: Record<string, unknown> = {}): void =>
      void lines.push({ level, message, attributes });
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}
