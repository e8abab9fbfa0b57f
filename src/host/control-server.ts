import { join } from 'node:path';
import type { ControlConfig, Program } from '../config/config';
import { expand } from '../config/expand';
import type { AwaitServerAnswer, OwnerIdentity } from '../contract/activities';
import type { PlacedControl } from '../contract/control';
import type { Endpoint } from '../contract/endpoint';
import {
  ControlClient,
  ControlError,
  type ControlErrorKind,
  type ProvenIdentity,
  type ProvenServer,
} from '../control-server/client';
import { effectiveLease, sameEndpoint, type ServerOwner } from '../control-server/protocol';
import type { HostContext } from './context';
import { newCredential, readCredential, writeControlRecord, writeCredential } from './control-record';
import type { GenerationFiles, LaunchRecord } from './generation-files';
import { messageOf } from './log';

/** What a placement says of the server. */
export function placeControl(
  control: ControlConfig,
  values: Readonly<Record<string, string>>,
  owner: OwnerIdentity,
  files: GenerationFiles,
  endpoint: Endpoint,
): PlacedControl {
  const { intervalMs, timeoutMs, withinMs, require } = control.health;
  return {
    endpoint,
    credentialFile: files.credentialFile,
    home: expand(control.home, values),
    leaseMs: effectiveLease(control.lease).leaseMs,
    startedBy: owner.ownerId,
    health: { intervalMs, timeoutMs, withinMs },
    onCancel: control.onCancel,
    requireHealthy: require,
  };
}

/** Variables that tell a server how it is owned; the credential is none of them (G9). `docs/control-server.md`. */
export function controlEnvironment(
  { lease }: ControlConfig,
  { endpoint, home }: PlacedControl,
  owner: OwnerIdentity,
): Readonly<Record<string, string>> {
  const { leaseMs, idleTimeoutMs, busyCapMs } = lease;
  const variables: Readonly<Record<string, string | number | undefined>> = {
    ...('socket' in endpoint
      ? { OWNED_CONTROL_SOCKET: endpoint.socket }
      : { OWNED_CONTROL_HOST: endpoint.host, OWNED_CONTROL_PORT: endpoint.port }),
    OWNED_HOME: home,
    OWNED_OWNER: owner.ownerId,
    OWNED_LEASE_MS: leaseMs,
    OWNED_IDLE_TIMEOUT_MS: idleTimeoutMs,
    OWNED_BUSY_CAP_MS: busyCapMs,
  };
  return Object.fromEntries(
    Object.entries(variables).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]])),
  );
}

/** Makes the credential that a server is started with. */
export async function makeCredential(host: HostContext, files: GenerationFiles): Promise<void> {
  await writeCredential(join(host.root, files.credentialFile), newCredential());
}

/** The caller's side of the protocol for an endpoint of this host. */
export function controlClient(host: HostContext, endpoint: Endpoint): ControlClient {
  return new ControlClient(endpoint, host.root);
}

/** A server's owner, as the server has it: the epoch is the generation, or the epoch of the adoption since. */
export function serverOwner(launch: LaunchRecord): ServerOwner {
  return { ownerId: launch.owner.ownerId, epoch: launch.epoch ?? launch.placement.generation };
}

/**
 * Waits until a fresh server is healthy and has shown that it is this generation's, renews it for the first time and writes
 * the record of its endpoint. Never rejects for what the server does: not healthy is an answer.
 */
export async function awaitServer(
  host: HostContext,
  program: Program,
  files: GenerationFiles,
  launch: LaunchRecord,
): Promise<AwaitServerAnswer> {
  const { placement } = launch;
  const control = placement.control!;
  const { intervalMs, timeoutMs, withinMs } = control.health;
  const client = controlClient(host, control.endpoint);
  const deadline = performance.now() + withinMs;
  let reason = 'nothing was asked';
  for (;;) {
    let server: ProvenServer | undefined;
    try {
      await client.health(timeoutMs);
      const credential = await credentialOf(host, control.credentialFile);
      server = await client.prove([credential], timeoutMs);
      checkIsPlaced(server.identity, launch, program);
      await server.renew(credential, serverOwner(launch), timeoutMs);
      const recordFailed = await record(host, files, launch, server.identity);
      return { healthy: true, ...(recordFailed !== undefined && { recordFailed }) };
    } catch (error) {
      reason = messageOf(error);
    } finally {
      server?.close();
    }
    if (performance.now() + intervalMs >= deadline) return { healthy: false, reason: `${reason}, for ${withinMs} ms` };
    await new Promise((resolve) => setTimeout(resolve, intervalMs));
  }
}

/** Writes the record of a server's endpoint; says why where it could not be written: the server runs all the same. */
export async function record(
  host: HostContext,
  files: GenerationFiles,
  { placement, resource }: LaunchRecord,
  { capabilities }: Pick<ProvenIdentity, 'capabilities'>,
): Promise<string | undefined> {
  const { unit, invocation, bootId } = placement;
  const { endpoint, home, credentialFile } = placement.control!;
  try {
    await writeControlRecord(files.controlRecord, {
      version: 1,
      endpoint,
      unit,
      invocation,
      bootId,
      home,
      capabilities,
      credentialFile,
    });
    return undefined;
  } catch (error) {
    const reason = messageOf(error);
    host.log.warn('the endpoint could not be recorded', { resource, unit, error: reason });
    return reason;
  }
}

/** Throws unless the one that proved to know the credential is the placed process at the placed endpoint. */
function checkIsPlaced(identity: ProvenIdentity, { placement }: LaunchRecord, program: Program): void {
  const { control, invocation, generation } = placement;
  if (!sameEndpoint(identity.endpoint, control!.endpoint)) throw new Error('the server says that it listens elsewhere');
  if (identity.invocation !== invocation || identity.generation !== generation)
    throw new Error('the server is of another invocation or generation');
  if (identity.home !== control!.home) throw new Error('the server has another home');
  const missing = missingCapability(program, identity);
  if (missing !== undefined) throw new Error(`the server has no capability "${missing}"`);
}

/** The first required capability that a server does not have. */
export function missingCapability(
  { control }: Program,
  { capabilities }: Pick<ProvenIdentity, 'capabilities'>,
): string | undefined {
  return control?.capabilities.find((required) => !capabilities.includes(required));
}

/** What a server is told to be renewed with. Rejects where there is none: the message has the reason, never the content. */
export async function credentialOf(host: HostContext, file: string): Promise<string> {
  const reading = await readCredential(join(host.root, file));
  if (reading.kind === 'found') return reading.credential;
  throw new Error(`the credential file ${file} is ${reading.kind}: ${reading.detail}`);
}

/** What only a server with another owner answers; `challenge-failed` may also be a stranger's at a port that is not bound yet. */
const REFUSALS: ReadonlySet<ControlErrorKind> = new Set(['unauthorized', 'stale-epoch', 'challenge-failed']);

/** What a renewal came to. */
export type ServerRenewal =
  | { readonly kind: 'renewed'; readonly leaseMs: number | undefined; readonly capabilities: readonly string[] }
  /** It takes somebody else for its owner. */
  | { readonly kind: 'refused'; readonly reason: string }
  /** No answer, or none of the protocol: unknown (G4). */
  | { readonly kind: 'no-answer'; readonly reason: string };

/** Renews a server's own lease. Whoever answers there is asked to prove itself before the credential is sent (G6). */
export async function renewServer(host: HostContext, launch: LaunchRecord, timeoutMs: number): Promise<ServerRenewal> {
  const control = launch.placement.control!;
  let server: ProvenServer | undefined;
  try {
    const credential = await credentialOf(host, control.credentialFile);
    const deadline = performance.now() + timeoutMs;
    server = await controlClient(host, control.endpoint).prove([credential], timeoutMs);
    const { leaseMs } = await server.renew(credential, serverOwner(launch), Math.max(1, deadline - performance.now()));
    return { kind: 'renewed', leaseMs, capabilities: server.identity.capabilities };
  } catch (error) {
    const reason = messageOf(error);
    return { kind: error instanceof ControlError && REFUSALS.has(error.kind) ? 'refused' : 'no-answer', reason };
  } finally {
    server?.close();
  }
}
