import { endpointText, type Endpoint } from './endpoint';

/** Control servers, as host, owner and client speak of them. Plain JSON; a credential is never in here (G9). */

/** What a placement says of a control server. */
export interface PlacedControl {
  readonly endpoint: Endpoint;
  /** Path of the file on the host that holds the credential. */
  readonly credentialFile: string;
  readonly home: string;
  /**
   * How long it lives without a renewal as it is configured, in ms: an owner that hears nothing of its host for two thirds of
   * this asks again. How often it is renewed follows from what it reports itself.
   */
  readonly leaseMs?: number;
  /** The owner (its first run id) that started it. */
  readonly startedBy: string;
  readonly health: {
    readonly intervalMs: number;
    readonly timeoutMs: number;
    readonly withinMs: number;
  };
  /** What cancelling the owner's workflow does with the server. */
  readonly onCancel: 'stop' | 'stop-if-started' | 'leave';
  /** A server that is not healthy in time is stopped, and does not only get a warning. */
  readonly requireHealthy: boolean;
  /** How this owner came by it, as the owner keeps it. */
  readonly recovery?: Recovery;
}

/** The record of a server's endpoint, as read; of what is not found, why. */
export type RecordReading =
  | { readonly kind: 'found'; readonly generation: number; readonly endpoint: Endpoint; readonly home: string }
  | { readonly kind: 'missing' | 'unreadable' | 'malformed'; readonly detail: string };

/**
 * What may be concluded about what an earlier owner left.
 *
 * - `adopted`: it lives on, and is this owner's.
 * - `no-server`: nothing was recorded, or nothing answered there.
 * - `foreign-server`: a stranger answered at the recorded endpoint. It keeps running, got no credential, and says nothing
 *   about the resource's own server.
 * - `own-server`: the resource's own unit runs a server that can't be adopted. It is stopped until proven, or waited for,
 *   before another one is started (G2).
 */
export type RecoveryScope = 'adopted' | 'no-server' | 'foreign-server' | 'own-server';

/**
 * Why a recovery ended as it did. One word each; people find them explained in `docs/control-server.md`.
 */
export type RecoveryReason =
  | 'adopted'
  // the record
  | 'record-missing'
  | 'record-unreadable'
  | 'record-malformed'
  | 'record-other-boot'
  | 'record-other-unit'
  | 'record-other-home'
  // the endpoint
  | 'unreachable'
  | 'timeout'
  | 'not-the-protocol'
  | 'challenge-failed'
  // the server, known to be the resource's own
  | 'other-endpoint'
  | 'other-home'
  | 'other-unit'
  | 'capability-missing'
  | 'credential-lost'
  | 'credential-not-written'
  | 'credential-refused'
  | 'epoch-refused'
  | 'refused'
  // what was to be done with it
  | 'reclaimed';

/** What came of looking for a surviving server. Shown in the status and in the result of `ready`. */
export interface Recovery {
  readonly adopted: boolean;
  readonly scope: RecoveryScope;
  readonly reason: RecoveryReason;
  readonly endpoint?: Endpoint;
  /** Epoch ms at which the endpoint was first contacted; absent if nothing was. */
  readonly contactedAt?: number;
  /** Lease in ms that the server reported with its adoption. */
  readonly lease?: number;
}

/** What the owner knows of its control server. */
export interface ControlStatus {
  /** It runs, and it answered when it was last asked. */
  readonly available: boolean;
  /** Epoch ms since when it is, or is not. */
  readonly since: number;
  /** How this owner came by it, or did not. */
  readonly recovery?: Recovery;
  /** What people should know although it runs: not healthy in time, record not written. */
  readonly warnings: readonly string[];
}

/** One line about a server, for people. */
export function serverText({ available, since }: ControlStatus, endpoint: Endpoint): string {
  return `${endpointText(endpoint)}, ${available ? '' : 'not '}available since ${new Date(since).toISOString()}`;
}

/** One line about what came of looking for a surviving server, for people. */
export function recoveryText({ scope, reason, endpoint, contactedAt }: Recovery): string {
  const where = endpoint ? ` at ${endpointText(endpoint)}` : '';
  const when = contactedAt === undefined ? '' : `, contacted ${new Date(contactedAt).toISOString()}`;
  return `${scope} (${reason})${where}${when}`;
}
