import { createHmac, timingSafeEqual } from 'node:crypto';
import { isIPv4 } from 'node:net';
import type { Endpoint } from '../contract/endpoint';

export type { Endpoint };

/**
 * The ownership protocol, version 1, as both sides have it: paths, answers, bounds, the MAC and the effective lease.
 * `docs/control-server.md` says the same for a server in any language.
 */
export const CONTROL_PROTOCOL = 1;

/** The calls, by their paths. */
export const ControlPath = {
  health: '/v1/health',
  identity: '/v1/identity',
  adopt: '/v1/adopt',
  renew: '/v1/renew',
  shutdown: '/v1/shutdown',
} as const;

/** Response header of `identity`: the MACs of the body, one for each credential that is valid now, newest first. */
export const MAC_HEADER = 'ownership-mac';

/** What neither side accepts more of. A server's words decide nothing beyond their form (G8). */
export const ControlBounds = {
  /** Bytes of a body, in either direction. */
  body: 65_536,
  /** Characters of a challenge, all of them lower-case hex. */
  challenge: 64,
  /** Characters of a home directory. */
  home: 4_096,
  capabilities: 64,
} as const;

/** Form of capabilities, server ids, owner ids and error codes: what may be shown and logged as it is. */
export const TOKEN = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,63}$/;

/** Form of a credential: 32 random bytes in base64url. */
export const CREDENTIAL = /^[A-Za-z0-9_-]{43}$/;

/** Name of the credential that a server is started with: `$CREDENTIALS_DIRECTORY/ownership` (systemd.exec(5), LoadCredential=). */
export const CREDENTIAL_NAME = 'ownership';

/** `GET /v1/health`. */
export interface HealthAnswer {
  readonly alive: true;
}

/** `GET /v1/identity?challenge=…`: whom the caller talks to. Authentic only together with its MAC. */
export interface Identity {
  readonly protocol: number;
  /** Random, one for each process of the server. */
  readonly serverId: string;
  /** Where the server listens by its own account. A stranger that passes the challenge on is found out by it. */
  readonly endpoint: Endpoint;
  /** The directory that it works in. */
  readonly home: string;
  readonly capabilities: readonly string[];
  /** The lease that it enforces, in ms; see {@link effectiveLease}. */
  readonly leaseMs: number;
  /** `$OWNED_GENERATION` that it was started with. */
  readonly generation: number;
  /** `$INVOCATION_ID` that systemd started it with, 32 hex digits. */
  readonly invocation: string;
  /** Who owns it now. */
  readonly owner: ServerOwner;
}

export interface ServerOwner {
  /** First run id of the owner's workflow. */
  readonly ownerId: string;
  /** The workflow's time in ms at adoption, or at the start. It only grows. */
  readonly epoch: number;
}

/** Body of `POST /v1/adopt` and `POST /v1/renew`. */
export type OwnerRequest = ServerOwner;

/** Answer to `adopt`: also the first renewal. */
export interface AdoptAnswer {
  /** The rotated credential. The former one stays valid until this one has been used once. */
  readonly credential: string;
  readonly leaseMs: number;
}

/** Answer to `renew`: the lease that is now in force. */
export interface RenewAnswer {
  readonly leaseMs: number;
}

/** Body of every answer but 2xx. */
export interface ControlFault {
  readonly error: ControlFaultCode;
  /** For people who use the server by hand; never logged by the caller. */
  readonly message: string;
}

/**
 * `bad-request` 400 · `unauthorized` 401 · `not-found` 404 · `stale-epoch` 409 · `too-large` 413 · `closing` 503.
 */
export type ControlFaultCode = 'bad-request' | 'unauthorized' | 'not-found' | 'stale-epoch' | 'too-large' | 'closing';

/** HMAC-SHA256 with the credential as its key, over the challenge, a line break and the body's bytes; in hex. */
export function macOf(credential: string, challenge: string, body: string | Buffer): string {
  return createHmac('sha256', credential).update(`${challenge}\n`).update(body).digest('hex');
}

/** Whether two texts are the same, in a time that says nothing about where they differ. */
export function sameSecret(a: string, b: string): boolean {
  const [left, right] = [Buffer.from(a), Buffer.from(b)];
  return left.length === right.length && timingSafeEqual(left, right);
}

/** So many bytes fit into `sun_path` before its final zero (unix(7)). libuv cuts a longer path and calls whoever is there. */
export const MAX_SOCKET_PATH = 107;

/** Only this machine reaches it. Not `localhost`: what a name stands for is up to the host's resolver. */
export function isLoopback(host: string): boolean {
  return host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/** Whether two endpoints are the same place, as written: who listens on a loopback address says which one. */
export function sameEndpoint(a: Endpoint, b: Endpoint): boolean {
  if ('socket' in a || 'socket' in b) return 'socket' in a && 'socket' in b && a.socket === b.socket;
  return a.host === b.host && a.port === b.port;
}

/** What a lease is resolved from. All in ms; anything that is no positive number counts as absent. */
export interface LeaseSettings {
  /** How long the server lives without a renewal. Default {@link DEFAULT_LEASE_MS}. */
  readonly leaseMs?: number;
  /** How long a server with work of its own must have been idle before it ends itself. Default: it has none. */
  readonly idleTimeoutMs?: number;
  /** How long a busy server may go on without a renewal. Default {@link BUSY_CAP_FACTOR} times the longer of both. */
  readonly busyCapMs?: number;
}

/** The resolved lease, in ms. */
export interface EffectiveLease {
  /** Without a renewal for this long a server ends itself, once it is also idle. This is the period that it reports. */
  readonly leaseMs: number;
  /** It must have been idle for this long. 0: being idle is not looked at. */
  readonly idleTimeoutMs: number;
  /** Without a renewal for this long it ends itself, busy or not. systemd's own lease is never shorter. */
  readonly atMostMs: number;
}

export const MIN_LEASE_MS = 3_000;
export const DEFAULT_LEASE_MS = 60_000;
export const BUSY_CAP_FACTOR = 10;

/**
 * The lease that is in force for given settings: the one rule that a server enforces and its owner reckons with.
 *
 * - `leaseMs` is the setting, else the idle timeout, else a minute; never less than three seconds.
 * - Without an idle timeout a server has no work of its own: it ends with its lease (`atMostMs` = `leaseMs`).
 * - With one it ends when both are over, and at the busy cap at the latest; the cap is never shorter than either.
 */
export function effectiveLease(settings: LeaseSettings): EffectiveLease {
  const lease = positive(settings.leaseMs);
  const idle = positive(settings.idleTimeoutMs);
  const leaseMs = Math.max(MIN_LEASE_MS, lease ?? idle ?? DEFAULT_LEASE_MS);
  if (idle === undefined) return { leaseMs, idleTimeoutMs: 0, atMostMs: leaseMs };
  const longer = Math.max(leaseMs, idle);
  return {
    leaseMs,
    idleTimeoutMs: idle,
    atMostMs: Math.max(longer, positive(settings.busyCapMs) ?? longer * BUSY_CAP_FACTOR),
  };
}

/** How often a lease is renewed: at a third of the period that the *server* reports; the minimum where it reports none. */
export function renewalInterval(reportedLeaseMs: unknown): number {
  return Math.max(MIN_LEASE_MS, positive(reportedLeaseMs) ?? MIN_LEASE_MS) / 3;
}

function positive(value: unknown): number | undefined {
  return typeof value === 'number' && Number.isFinite(value) && value > 0 ? value : undefined;
}
