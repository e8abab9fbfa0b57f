import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Credentials } from './credentials';
import type { OwnedEnvironment } from './environment';
import { capabilitiesOf, pathOf } from './form';
import { answer, bearer, fault, readChallenge, readOwner } from './http-calls';
import { LeaseWatch, type LeaseEndReason } from './lease-watch';
import { requireLocal } from './listen';
import {
  CONTROL_PROTOCOL,
  ControlBounds,
  ControlPath,
  CREDENTIAL,
  effectiveLease,
  MAC_HEADER,
  macOf,
  TOKEN,
  type AdoptAnswer,
  type HealthAnswer,
  type Identity,
  type RenewAnswer,
  type ServerOwner,
} from './protocol';

/** Why a server ends: its lease is over (in one of three ways), its owner asked for it, or systemd did (SIGTERM). */
export type EndReason = LeaseEndReason | 'shutdown' | 'signal';

export interface OwnershipOptions {
  /** What the host gave to the process; see {@link readOwnedEnvironment}. */
  readonly environment: OwnedEnvironment;
  /** What the server can do: at most 64 words that an owner may ask for before it adopts. Default: none. */
  readonly capabilities?: readonly string[];
  /** Whether requests beside the protocol need a valid credential as well. Default: true. */
  readonly authorize?: boolean;
  /** Saves and ends the server's own work. Awaited for the grace time at most. Default: nothing to do. */
  readonly onEnd?: (reason: EndReason) => void | Promise<void>;
  /** Grace time in ms; keep it below the program's stop timeout. Default: 5,000. */
  readonly graceMs?: number;
}

/** The ownership protocol around one server. */
export interface Ownership {
  /** Random, one for each process, as `identity` gives it. */
  readonly serverId: string;
  /**
   * Answers everything below `/v1/`, and hands on what else is authorised. It reads the body itself: put it before
   * anything that parses bodies.
   */
  middleware(req: IncomingMessage, res: ServerResponse, next: () => void): void;
  /** Whether the request has a valid credential; a pending one is used by this. For upgrades, which pass no middleware. */
  isAuthorized(req: IncomingMessage): boolean;
  /** Work that goes on without an open request keeps the server busy until the answered function is called. */
  busy(): () => void;
  /** Ends gracefully: refuses every call from now on, and awaits `onEnd`. Returns {@link Ownership.ended}. */
  end(reason: EndReason): Promise<EndReason>;
  /** Resolves with the reason once `onEnd` is done or its grace is over: now close the server. Rejects as `onEnd` does. */
  readonly ended: Promise<EndReason>;
  /** Stops the lease's timer, and nothing else; for a server that was closed by its author. */
  close(): void;
}

/**
 * Starts to enforce the lease, and returns the protocol as middleware for `node:http` and what is like it. The server
 * around it is its author's, who closes it when {@link Ownership.ended} resolves; {@link serveOwned} does all of that.
 *
 * Throws for options that can't be used.
 */
export function createOwnership(options: OwnershipOptions): Ownership {
  const { environment, capabilities = [], authorize = true, onEnd, graceMs = 5_000 } = options;
  requireUsable(environment, capabilities);
  const credentials = new Credentials(environment.credential);
  const watch = new LeaseWatch(effectiveLease(environment.lease), (reason) => void end(reason));
  const { leaseMs } = watch.lease;
  const self: Omit<Identity, 'owner'> = {
    protocol: CONTROL_PROTOCOL,
    serverId: randomUUID(),
    endpoint: environment.endpoint,
    home: environment.home,
    capabilities,
    leaseMs,
    generation: environment.generation,
    invocation: environment.invocation,
  };
  let owner: ServerOwner = environment.owner;
  let closing = false;
  let resolveEnded!: (reason: EndReason | Promise<EndReason>) => void;
  const ended = new Promise<EndReason>((resolve) => (resolveEnded = resolve));

  function end(reason: EndReason): Promise<EndReason> {
    if (!closing) {
      closing = true;
      watch.stop();
      resolveEnded(withinGrace(reason));
    }
    return ended;
  }

  async function withinGrace(reason: EndReason): Promise<EndReason> {
    let timer: NodeJS.Timeout | undefined;
    const grace = new Promise<void>((resolve) => (timer = setTimeout(resolve, graceMs)));
    try {
      await Promise.race([onEnd?.(reason), grace]);
    } finally {
      clearTimeout(timer);
    }
    return reason;
  }

  function middleware(req: IncomingMessage, res: ServerResponse, next: () => void): void {
    const [path = '', query = ''] = (req.url ?? '').split('?', 2);
    if (path.startsWith('/v1/')) void control(req, res, `${req.method} ${path}`, query);
    else if (closing) fault(res, 'closing');
    else if (authorize && !isAuthorized(req)) fault(res, 'unauthorized');
    else {
      res.once('close', watch.busy());
      next();
    }
  }

  function isAuthorized(req: IncomingMessage): boolean {
    return !closing && credentials.use(bearer(req));
  }

  async function control(req: IncomingMessage, res: ServerResponse, call: string, query: string): Promise<void> {
    if (closing) return fault(res, 'closing');
    switch (call) {
      case `GET ${ControlPath.health}`:
        return answer(res, 200, { alive: true } satisfies HealthAnswer);
      case `GET ${ControlPath.identity}`:
        return identity(res, query);
      case `POST ${ControlPath.shutdown}`:
        if (!isAuthorized(req)) return fault(res, 'unauthorized');
        res.once('close', () => void end('shutdown')); // the answer first
        return answer(res, 202, {});
      case `POST ${ControlPath.adopt}`:
      case `POST ${ControlPath.renew}`: {
        // Before a byte of the body is read, and once more with it: another call may have rotated meanwhile.
        if (!credentials.accepts(bearer(req))) return fault(res, 'unauthorized');
        const request = await readOwner(req);
        if (closing) return fault(res, 'closing');
        if (typeof request === 'string') return fault(res, request);
        return call === `POST ${ControlPath.adopt}` ? adopt(req, res, request) : renew(req, res, request);
      }
      default:
        return fault(res, 'not-found');
    }
  }

  /** The caller has sent no credential yet: this tells it, and nobody else, that the server has one of its own. */
  function identity(res: ServerResponse, query: string): void {
    const challenge = readChallenge(query);
    if (challenge === undefined) return fault(res, 'bad-request');
    const body = JSON.stringify({ ...self, owner } satisfies Identity);
    const macs = credentials.valid.map((credential) => macOf(credential, challenge, body));
    answer(res, 200, body, { [MAC_HEADER]: macs.join(', ') });
  }

  function adopt(req: IncomingMessage, res: ServerResponse, request: ServerOwner): void {
    if (!credentials.accepts(bearer(req))) return fault(res, 'unauthorized');
    const isNewer = request.epoch > owner.epoch;
    // A refused owner leaves no trace: its credential may be a pending one that the present owner holds as well.
    if (!isNewer && !isSame(request, owner)) return fault(res, 'stale-epoch');
    credentials.use(bearer(req));
    owner = request;
    watch.renew();
    answer(res, 200, { credential: credentials.rotate(), leaseMs } satisfies AdoptAnswer);
  }

  function renew(req: IncomingMessage, res: ServerResponse, request: ServerOwner): void {
    if (!isAuthorized(req)) return fault(res, 'unauthorized');
    if (!isSame(request, owner)) return fault(res, 'stale-epoch');
    watch.renew();
    answer(res, 200, { leaseMs } satisfies RenewAnswer);
  }

  return {
    serverId: self.serverId,
    middleware,
    isAuthorized,
    busy: () => watch.busy(),
    end,
    ended,
    close: () => watch.stop(),
  };
}

function isSame(a: ServerOwner, b: ServerOwner): boolean {
  return a.ownerId === b.ownerId && a.epoch === b.epoch;
}

function requireUsable({ endpoint, home, credential }: OwnedEnvironment, capabilities: readonly string[]): void {
  requireLocal(endpoint);
  if (pathOf(home) === undefined) throw new Error(`home ${JSON.stringify(home)}: use an absolute path`);
  if (!CREDENTIAL.test(credential)) throw new Error('the credential is not 32 random bytes in base64url');
  if (capabilitiesOf(capabilities) === undefined) {
    const most = `at most ${ControlBounds.capabilities} words that match ${TOKEN}`;
    throw new Error(`capabilities ${JSON.stringify(capabilities)}: use ${most}`);
  }
}
