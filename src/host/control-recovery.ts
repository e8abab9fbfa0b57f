import { join } from 'node:path';
import type { Program } from '../config/config';
import { expand } from '../config/expand';
import type { RecoverInput } from '../contract/activities';
import type { RecordReading, Recovery, RecoveryReason, RecoveryScope } from '../contract/control';
import { ControlError, type ProvenServer } from '../control-server/client';
import { sameEndpoint } from '../control-server/protocol';
import { identify, look, takeOver, type Adopted } from './adoption';
import { filesOf, type HostContext } from './context';
import { readControlRecord, writeCredential, type ControlRecord } from './control-record';
import { controlClient, credentialOf, missingCapability, record } from './control-server';
import type { GenerationFiles } from './generation-files';
import { messageOf } from './log';

/** A record, and the files of the generation that it is of. */
interface Recorded {
  readonly files: GenerationFiles;
  readonly record: ControlRecord;
}

/** Reads the recorded endpoint of a resource: of the highest generation that was not proven dead. */
export async function readEndpoint(host: HostContext, program: Program, resource: string): Promise<RecordReading> {
  const reading = await readRecord(host, program, resource);
  if (!('record' in reading)) return reading;
  const { endpoint, home } = reading.record;
  return { kind: 'found', generation: reading.files.generation, endpoint, home };
}

async function readRecord(
  host: HostContext,
  program: Program,
  resource: string,
): Promise<Recorded | Exclude<RecordReading, { readonly kind: 'found' }>> {
  const { readTimeoutMs, readRetries } = program.control!.recovery;
  const files = filesOf(host, host.prefix, resource);
  for (const generation of [...(await files.generations())].reverse()) {
    const of = files.generation(generation);
    const reading = await readControlRecord(of.controlRecord, { timeoutMs: readTimeoutMs, retries: readRetries });
    if (reading.kind === 'found') {
      if (reading.record.credentialFile === of.credentialFile) return { files: of, record: reading.record };
      return { kind: 'malformed', detail: 'it names a credential file that is not its own' };
    }
    if (reading.kind !== 'missing') return reading;
  }
  return { kind: 'missing', detail: 'no generation has a record' };
}

/** What a recovery came to, and what was adopted. */
export interface Recovered {
  readonly recovery: Recovery;
  readonly adopted?: Adopted;
}

/** Why there is nothing to adopt. */
class NotAdopted extends Error {
  constructor(
    readonly reason: RecoveryReason,
    readonly scope?: RecoveryScope,
  ) {
    super(reason);
  }
}

/**
 * Adopts the control server that an earlier owner left, if it proves to be the resource's own (G6): the record, the unit with
 * its invocation and marks, and the server's answer to a challenge all agree. Only then does a credential leave this host's
 * files. Rotates it, writes the new one, renews with it, and only then makes the process this owner's.
 *
 * Whatever else comes of it is an outcome with its reason; nothing of a stranger's is touched.
 */
export function adoptServer(host: HostContext, program: Program, input: RecoverInput): Promise<Recovered> {
  return recover(host, program, input, async ({ server, own, recorded, timeoutMs }) => {
    const { ownerId } = input.owner;
    const owner = { ownerId, epoch: input.epoch };
    const answer = await server.adopt(server.credential, owner, timeoutMs());
    try {
      await writeCredential(join(host.root, recorded.files.credentialFile), answer.credential);
    } catch {
      throw new NotAdopted('credential-not-written'); // the former one is still good: this one was never used
    }
    const { leaseMs } = await server.renew(answer.credential, owner, timeoutMs());
    const adopted = await takeOver(host, input, own, input.epoch);
    await record(host, adopted.files, adopted.launch, server.identity);
    return { reason: 'adopted', adopted, lease: leaseMs };
  });
}

/** Shuts down, by the protocol, the server that an earlier owner left: this program's do not survive their owners. */
export function reclaimServer(host: HostContext, program: Program, input: RecoverInput): Promise<Recovered> {
  return recover(host, program, input, async ({ server, timeoutMs }) => {
    await server.shutdown(server.credential, timeoutMs());
    return { reason: 'reclaimed' };
  });
}

/** A server that has proven to be the resource's own. */
interface Proven {
  readonly server: ProvenServer;
  readonly own: Adopted;
  readonly recorded: Recorded;
  /** What is left of the recovery's time, in ms. */
  readonly timeoutMs: () => number;
}

interface Outcome {
  readonly reason: RecoveryReason;
  readonly adopted?: Adopted;
  readonly lease?: number;
}

async function recover(
  host: HostContext,
  program: Program,
  input: RecoverInput,
  act: (server: Proven) => Promise<Outcome>,
): Promise<Recovered> {
  const found = await look(host, input.resource);
  const lives = found.living; // one that is over may be loaded still
  let facts: Pick<Recovery, 'endpoint' | 'contactedAt'> = {};
  let authentic = false;
  let server: ProvenServer | undefined;
  const ended = (reason: RecoveryReason, scope: RecoveryScope): Recovered => {
    host.log.info('recovery', { resource: input.resource, scope, reason });
    return { recovery: { adopted: false, scope, reason, ...facts } };
  };
  try {
    const recorded = await readRecord(host, program, input.resource);
    if (!('record' in recorded)) throw new NotAdopted(`record-${recorded.kind}`);
    const { endpoint, bootId, unit, invocation } = recorded.record;
    if (bootId !== host.identity.bootIds.at(-1)) throw new NotAdopted('record-other-boot');
    const credential = await ownCredential(host, recorded.files);
    facts = { endpoint };

    const client = controlClient(host, endpoint);
    const startedAt = Date.now();
    const deadline = performance.now() + program.control!.recovery.timeoutMs;
    const timeoutMs = (): number => Math.max(1, deadline - performance.now());
    server = await client.prove([credential], timeoutMs()).catch((error: unknown) => {
      if (!(error instanceof ControlError) || error.kind !== 'unreachable')
        facts = { endpoint, contactedAt: startedAt };
      throw error;
    });
    facts = { endpoint, contactedAt: startedAt };
    const { identity } = server;
    // One that passes the challenge on to the real server does not listen where that one says it does.
    if (!sameEndpoint(identity.endpoint, endpoint)) throw new NotAdopted('other-endpoint', 'foreign-server');
    const own = await identify(host, input, found);
    if (!own || own.launch.placement.unit !== unit || own.launch.placement.invocation !== invocation)
      throw new NotAdopted('record-other-unit');
    if (identity.invocation !== invocation || identity.generation !== own.files.generation)
      throw new NotAdopted('other-unit', 'foreign-server');
    authentic = true;
    const home = expand(program.control!.home, { ...input.parameters, resource: input.resource });
    if (recorded.record.home !== home) throw new NotAdopted('record-other-home');
    if (identity.home !== home) throw new NotAdopted('other-home');
    if (missingCapability(program, identity) !== undefined) throw new NotAdopted('capability-missing');

    const { reason, adopted, lease } = await act({ server, own, recorded, timeoutMs });
    if (!adopted) return ended(reason, 'no-server');
    const { contactedAt } = facts;
    return { recovery: { adopted: true, scope: 'adopted', reason, endpoint, contactedAt, lease }, adopted };
  } catch (error) {
    if (error instanceof NotAdopted) return ended(error.reason, error.scope ?? (lives ? 'own-server' : 'no-server'));
    if (error instanceof ControlError) return ended(...outcomeOf(error, authentic, lives));
    throw error;
  } finally {
    server?.close();
  }
}

async function ownCredential(host: HostContext, files: GenerationFiles): Promise<string> {
  try {
    return await credentialOf(host, files.credentialFile);
  } catch (error) {
    host.log.warn('a control server can’t be adopted', { error: messageOf(error) });
    throw new NotAdopted('credential-lost');
  }
}

/** What a call that failed says: of the resource's own server once that was proven, else of whoever answered. */
function outcomeOf(error: ControlError, authentic: boolean, lives: boolean): [RecoveryReason, RecoveryScope] {
  const own = lives ? 'own-server' : 'no-server';
  switch (error.kind) {
    case 'unreachable':
      return ['unreachable', own];
    case 'timeout':
      return ['timeout', lives ? 'own-server' : 'foreign-server'];
    case 'not-the-protocol':
    case 'challenge-failed':
      return [error.kind, authentic ? 'own-server' : 'foreign-server'];
    case 'unauthorized':
      return ['credential-refused', own];
    case 'stale-epoch':
      return ['epoch-refused', own];
    case 'refused':
      return ['refused', authentic ? 'own-server' : 'foreign-server'];
  }
}
