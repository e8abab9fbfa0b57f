import { Agent, request as httpRequest, type RequestOptions } from 'node:http';
import { join } from 'node:path';
import { matching } from './form';
import { ControlBounds, MAC_HEADER, MAX_SOCKET_PATH, TOKEN, type Endpoint } from './protocol';

/**
 * What a failed call means.
 *
 * - `unreachable`, `timeout`: no whole answer.
 * - `not-the-protocol`: an answer, in a form that the protocol has not.
 * - `challenge-failed`: it answered a challenge, and does not know our credential.
 * - `unauthorized`, `stale-epoch`, `refused`: an error of the protocol: 401, 409, any other.
 */
export type ControlErrorKind =
  'unreachable' | 'timeout' | 'not-the-protocol' | 'challenge-failed' | 'unauthorized' | 'stale-epoch' | 'refused';

/** A call failed. The message names the endpoint and never a credential or the server's own words (G8, G9). */
export class ControlError extends Error {
  override readonly name = 'ControlError';

  constructor(
    readonly kind: ControlErrorKind,
    message: string,
  ) {
    super(message);
  }
}

/** One call. `credential` is sent as it is: the caller has checked its form. */
export interface Call {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** For the whole of it: from the connection to the answer's last byte. */
  readonly timeoutMs: number;
  readonly credential?: string;
  readonly body?: string;
  /** The connection that it is made on. Absent, it has one of its own. */
  readonly connection?: Connection;
}

/**
 * One connection for several calls, so that all of them reach the same process: what listens at an address may change between
 * two connections, and a credential is only for the one that has proven itself (G6).
 */
export class Connection {
  readonly agent = new Agent({ keepAlive: true, maxSockets: 1 });

  close(): void {
    this.agent.destroy();
  }
}

/** A whole answer that says it is JSON. */
export interface Answer {
  readonly status: number;
  /** The MAC header as it came, empty where there was none. */
  readonly macs: string;
  readonly body: Buffer;
}

/**
 * Calls a server that may be anybody: with a bound on time and on length, and without following a redirect. A credential is
 * sent on a connection that was used before, and on no other. Resolves with any whole answer of type application/json,
 * whatever its status; rejects with {@link ControlError} of kind `unreachable`, `timeout` or `not-the-protocol`.
 */
export function exchange(endpoint: Endpoint, root: string, call: Call): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const { method, path, timeoutMs, credential, body = '', connection } = call;
    const place = placeOf(endpoint, root);
    if (!place)
      return reject(controlError(endpoint, 'unreachable', `has a path of more than ${MAX_SOCKET_PATH} bytes here`));
    const headers = {
      accept: 'application/json',
      ...(method === 'POST' && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
      ...(credential !== undefined && { authorization: `Bearer ${credential}` }),
    };
    const agent = connection?.agent ?? false;
    const request = httpRequest({ ...place, method, path, headers, agent }, (response) => {
      const status = response.statusCode ?? 0;
      if (!/^application\/json *(;|$)/i.test(response.headers['content-type'] ?? '')) {
        return fail('not-the-protocol', `answered status ${status} without JSON`);
      }
      const chunks: Buffer[] = [];
      let length = 0;
      response.on('data', (chunk: Buffer) => {
        length += chunk.length;
        if (length > ControlBounds.body) fail('not-the-protocol', `answered more than ${ControlBounds.body} bytes`);
        else chunks.push(chunk);
      });
      response.on('end', () => {
        resolve({ status, macs: String(response.headers[MAC_HEADER] ?? ''), body: Buffer.concat(chunks) });
        clearTimeout(timer);
        if (!connection) request.destroy();
      });
    });
    // Only the first of these counts; what a destroyed request still emits changes nothing.
    const timer = setTimeout(() => fail('timeout', `gave no whole answer in ${Math.round(timeoutMs)} ms`), timeoutMs);
    const fail = (kind: ControlErrorKind, words: string): void => {
      reject(controlError(endpoint, kind, words));
      clearTimeout(timer);
      request.destroy();
    };
    request.on('socket', () => {
      // Before anything is written to it: a new one still connects.
      if (credential !== undefined && !request.reusedSocket)
        fail('unreachable', 'closed the connection over which it had proven itself');
    });
    request.on('error', ({ code = '' }: NodeJS.ErrnoException) =>
      code.startsWith('HPE_') // of node's HTTP parser
        ? fail('not-the-protocol', 'answered what is no HTTP')
        : fail('unreachable', `can't be reached (${matching(TOKEN, code) ?? 'no code'})`),
    );
    request.on('close', () => fail('unreachable', 'closed the connection without a whole answer'));
    request.end(body);
  });
}

/** An error about the server at `endpoint`; `words` go on after its name. */
export function controlError(endpoint: Endpoint, kind: ControlErrorKind, words: string): ControlError {
  const name = 'socket' in endpoint ? endpoint.socket : `${endpoint.host} port ${endpoint.port}`;
  return new ControlError(kind, `control server at ${name} ${words}`);
}

/** Where the endpoint is as seen from here; undefined for a socket path that is too long. */
function placeOf(endpoint: Endpoint, root: string): RequestOptions | undefined {
  if (!('socket' in endpoint)) return { host: endpoint.host, port: endpoint.port };
  const socketPath = join(root, endpoint.socket);
  return Buffer.byteLength(socketPath) <= MAX_SOCKET_PATH ? { socketPath } : undefined;
}
