import type { IncomingMessage, ServerResponse } from 'node:http';
import { matching, parseObject, positiveInteger } from './form';
import { ControlBounds, TOKEN, type ControlFault, type ControlFaultCode, type OwnerRequest } from './protocol';

const FAULTS: Record<ControlFaultCode, readonly [status: number, message: string]> = {
  'bad-request': [400, 'the call has not the form that docs/control-server.md gives'],
  unauthorized: [401, 'send a credential that is valid now: Authorization: Bearer …'],
  'not-found': [404, 'the protocol has no such call'],
  'stale-epoch': [409, 'it has another owner, or a later epoch'],
  'too-large': [413, `the body is longer than ${ControlBounds.body} bytes`],
  closing: [503, 'the server is ending'],
};

/** Answers with JSON; a text is taken for JSON already. */
export function answer(res: ServerResponse, status: number, body: object | string, headers: object = {}): void {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
  res.writeHead(status, {
    'content-type': 'application/json',
    'content-length': bytes.length,
    'cache-control': 'no-store',
    ...headers,
  });
  res.end(bytes);
}

export function fault(res: ServerResponse, error: ControlFaultCode): void {
  const [status, message] = FAULTS[error];
  answer(res, status, { error, message } satisfies ControlFault);
}

/** The bearer credential, or '', which is never a valid one. */
export function bearer(req: IncomingMessage): string {
  return /^bearer +([A-Za-z0-9_-]+)$/i.exec(req.headers.authorization ?? '')?.[1] ?? '';
}

/** The challenge of a query, if there is exactly one and it has its form. */
export function readChallenge(query: string): string | undefined {
  const [challenge, ...more] = new URLSearchParams(query).getAll('challenge');
  if (challenge === undefined || more.length > 0) return undefined;
  return challenge.length === ControlBounds.challenge && /^[0-9a-f]+$/.test(challenge) ? challenge : undefined;
}

/** The body of `adopt` and `renew`, or what is wrong with it. Fields that are not known are for later versions. */
export async function readOwner(req: IncomingMessage): Promise<OwnerRequest | ControlFaultCode> {
  const chunks: Buffer[] = [];
  let length = 0;
  try {
    // What is too long is read to its end and dropped: who still writes would miss an answer.
    for await (const chunk of req as AsyncIterable<Buffer>) {
      length += chunk.length;
      if (length <= ControlBounds.body) chunks.push(chunk);
    }
  } catch {
    return 'bad-request'; // cut off: nobody reads the answer
  }
  if (length > ControlBounds.body) return 'too-large';
  const fields = parseObject(Buffer.concat(chunks).toString('utf8'));
  const ownerId = matching(TOKEN, fields?.ownerId);
  const epoch = positiveInteger(fields?.epoch);
  return ownerId === undefined || epoch === undefined ? 'bad-request' : { ownerId, epoch };
}
