import { randomBytes } from 'node:crypto';
import {
  Connection,
  controlError,
  ControlError,
  exchange,
  type Answer,
  type Call,
  type ControlErrorKind,
} from './exchange';
import { capabilitiesOf, endpointOf, matching, objectOf, parseObject, pathOf, positiveInteger } from './form';
import {
  CONTROL_PROTOCOL,
  ControlBounds,
  ControlPath,
  CREDENTIAL,
  macOf,
  sameSecret,
  TOKEN,
  type AdoptAnswer,
  type Endpoint,
  type Identity,
  type OwnerRequest,
  type RenewAnswer,
  type ServerOwner,
} from './protocol';

export { ControlError, type ControlErrorKind };

/** The period as a server reports it, for `renewalInterval`; any number, and undefined for everything else. */
type ReportedLease = { readonly leaseMs: number | undefined };

/** A server's own account of itself, covered by the MAC. */
export type ProvenIdentity = Omit<Identity, 'leaseMs'> & ReportedLease;

export type Adopted = Omit<AdoptAnswer, 'leaseMs'> & ReportedLease;
export type Renewed = Omit<RenewAnswer, 'leaseMs'> & ReportedLease;

/**
 * The host's side of the ownership protocol, for one endpoint.
 *
 * Every call ends within its `timeoutMs` whatever the server does, reads at most {@link ControlBounds}`.body` bytes and
 * follows no redirect. It resolves with an answer of the right form or rejects with {@link ControlError}; with TypeError only
 * for a credential of the wrong form, which is never sent.
 */
export class ControlClient {
  /**
   * `root` is where the host's file system is seen from here: `/`, except from outside of a host.
   * Throws TypeError for an endpoint that is neither an absolute socket path nor a loopback address with a port.
   */
  constructor(
    readonly endpoint: Endpoint,
    private readonly root = '/',
  ) {
    if (!endpointOf(endpoint))
      throw new TypeError('a control server listens on 127.x.x.x, ::1 or an absolute socket path');
  }

  /** Resolves once the server is healthy: it answered 200 with `{"alive":true}`. No secret is sent. */
  async health(timeoutMs: number): Promise<void> {
    const answer = await this.exchange({ method: 'GET', path: ControlPath.health, timeoutMs });
    if (succeeded(this.endpoint, answer).alive !== true) throw malformed(this.endpoint, answer);
  }

  /**
   * Asks who is there and verifies that it knows one of `credentials`, without sending any of them (G6, G9). What the
   * answer says is looked at only after its MAC, which covers every byte of it. Close what this resolves with.
   */
  async prove(credentials: readonly string[], timeoutMs: number): Promise<ProvenServer> {
    credentials.forEach(checkCredential);
    const connection = new Connection();
    try {
      const challenge = randomBytes(ControlBounds.challenge / 2).toString('hex');
      const path = `${ControlPath.identity}?challenge=${challenge}`;
      const answer = await this.exchange({ method: 'GET', path, timeoutMs, connection });
      // An error has no MAC, so it proves nothing, and is nobody's in particular.
      if (answer.status !== 200)
        throw controlError(this.endpoint, faultIn(answer) ? 'refused' : 'not-the-protocol', said(answer));
      const macs = answer.macs.split(/ *, */);
      if (!macs.every((mac) => /^[0-9a-f]{64}$/.test(mac))) throw malformed(this.endpoint, answer);
      const credential = credentials.find((one) => {
        const expected = macOf(one, challenge, answer.body);
        return macs.some((mac) => sameSecret(mac, expected));
      });
      if (credential === undefined)
        throw controlError(this.endpoint, 'challenge-failed', 'answered the challenge without our credential');
      const identity = identityIn(answer);
      if (!identity) throw malformed(this.endpoint, answer);
      return new ProvenServer(this.endpoint, this.root, connection, identity, credential);
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  private exchange(call: Call): Promise<Answer> {
    return exchange(this.endpoint, this.root, call);
  }
}

/**
 * A server that has proven to know a credential, for as long as the connection lasts over which it did: nobody else is sent
 * one. That it has the expected home, unit and endpoint is the caller's to compare first (G6). One call at a time.
 */
export class ProvenServer {
  constructor(
    private readonly endpoint: Endpoint,
    private readonly root: string,
    private readonly connection: Connection,
    readonly identity: ProvenIdentity,
    /** That of the given credentials which it has proven to know. */
    readonly credential: string,
  ) {}

  /**
   * Makes `owner` the server's owner. After `unreachable` and `timeout` the server may have rotated its credential; the one
   * that was sent stays valid then.
   */
  async adopt(credential: string, owner: ServerOwner, timeoutMs: number): Promise<Adopted> {
    const [answer, fields] = await this.post(ControlPath.adopt, timeoutMs, credential, owner);
    const rotated = matching(CREDENTIAL, fields.credential);
    if (rotated === undefined) throw malformed(this.endpoint, answer);
    return { credential: rotated, leaseMs: reported(fields.leaseMs) };
  }

  /** Renews the server's own lease. */
  async renew(credential: string, owner: ServerOwner, timeoutMs: number): Promise<Renewed> {
    const [answer, fields] = await this.post(ControlPath.renew, timeoutMs, credential, owner);
    // The period may be nonsense, but it is all that tells a renewal from somebody's `{}`.
    if (!('leaseMs' in fields)) throw malformed(this.endpoint, answer);
    return { leaseMs: reported(fields.leaseMs) };
  }

  /** Asks the server to end. That it took the request proves nothing about its end (G8). */
  async shutdown(credential: string, timeoutMs: number): Promise<void> {
    await this.post(ControlPath.shutdown, timeoutMs, credential);
  }

  close(): void {
    this.connection.close();
  }

  private async post(
    path: string,
    timeoutMs: number,
    credential: string,
    owner?: OwnerRequest,
  ): Promise<[Answer, Record<string, unknown>]> {
    checkCredential(credential);
    const { connection } = this;
    const body = owner && JSON.stringify(owner);
    const answer = await exchange(this.endpoint, this.root, {
      method: 'POST',
      path,
      timeoutMs,
      credential,
      body,
      connection,
    });
    return [answer, succeeded(this.endpoint, answer)];
  }
}

/** The object in a success of the protocol: 200, or 202 for what has only begun. Throws {@link ControlError} otherwise. */
function succeeded(endpoint: Endpoint, answer: Answer): Record<string, unknown> {
  const { status } = answer;
  if (status !== 200 && status !== 202)
    throw controlError(endpoint, faultIn(answer) ? faultKind(status) : 'not-the-protocol', said(answer));
  const fields = objectIn(answer);
  if (!fields) throw malformed(endpoint, answer);
  return fields;
}

function malformed(endpoint: Endpoint, { status }: Answer): ControlError {
  return controlError(endpoint, 'not-the-protocol', `answered status ${status} in another form than the protocol's`);
}

/** An empty credential would be a key that everybody has. */
function checkCredential(credential: string): void {
  if (!CREDENTIAL.test(credential))
    throw new TypeError('a credential is 32 bytes in base64url; make one with newCredential()');
}

function objectIn(answer: Answer): Record<string, unknown> | undefined {
  return parseObject(answer.body.toString('utf8'));
}

/** The code of an error of the protocol. */
function faultIn(answer: Answer): string | undefined {
  return answer.status >= 400 ? matching(TOKEN, objectIn(answer)?.error) : undefined;
}

function faultKind(status: number): ControlErrorKind {
  return status === 401 ? 'unauthorized' : status === 409 ? 'stale-epoch' : 'refused';
}

function said(answer: Answer): string {
  return `answered status ${answer.status}, ${faultIn(answer) ?? 'without a code'}`;
}

function reported(leaseMs: unknown): number | undefined {
  return typeof leaseMs === 'number' ? leaseMs : undefined;
}

function identityIn(answer: Answer): ProvenIdentity | undefined {
  const fields = objectIn(answer);
  if (fields?.protocol !== CONTROL_PROTOCOL) return undefined;
  const serverId = matching(TOKEN, fields.serverId);
  const endpoint = endpointOf(fields.endpoint);
  const home = pathOf(fields.home);
  const capabilities = capabilitiesOf(fields.capabilities);
  const generation = positiveInteger(fields.generation);
  const invocation = matching(/^[0-9a-f]{32}$/, fields.invocation);
  const ownerId = matching(TOKEN, objectOf(fields.owner)?.ownerId);
  const epoch = positiveInteger(objectOf(fields.owner)?.epoch);
  if (serverId === undefined || endpoint === undefined || home === undefined || capabilities === undefined)
    return undefined;
  if (generation === undefined || invocation === undefined || ownerId === undefined || epoch === undefined)
    return undefined;
  const leaseMs = reported(fields.leaseMs);
  const owner = { ownerId, epoch };
  return { protocol: CONTROL_PROTOCOL, serverId, endpoint, home, capabilities, leaseMs, generation, invocation, owner };
}
