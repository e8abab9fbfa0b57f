import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { get } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { ControlClient, ControlError, type ProvenServer } from '../../src/control-server/client';
import {
  ControlBounds,
  ControlPath,
  MAC_HEADER,
  macOf,
  renewalInterval,
  type Endpoint,
} from '../../src/control-server/protocol';
import { newCredential } from '../../src/host/control-record';
import { answer, openRawServer, type Behaviour, type RawServer } from '../support/raw-server';

/** For calls that are not expected to need it. */
const LONG = 20_000;
/** For calls that are expected to run into it. */
const SHORT = 100;
/** Stands in everything that a stranger says. */
const SESAME = 'sesame';

const [newer, older, another] = [newCredential(), newCredential(), newCredential()];
const owner = { ownerId: 'run-1', epoch: 1_700_000_000_000 };
const ownIdentity = {
  protocol: 1,
  serverId: 'server-1',
  endpoint: { host: '127.0.0.1', port: 4000 } as Endpoint,
  home: '/srv/home',
  capabilities: ['files', 'shell:2'],
  leaseMs: 60_000,
  generation: 1_700_000_000_000,
  invocation: '0123456789abcdef'.repeat(2),
  owner,
};

type Call = (client: ControlClient, timeoutMs: number) => Promise<unknown>;

/** What is said to anybody. */
const openCalls: Readonly<Record<string, Call>> = {
  health: (client, timeoutMs) => client.health(timeoutMs),
  identity: async (client, timeoutMs) => (await client.prove([newer, older], timeoutMs)).close(),
};

/** What only a server hears that has proven itself. */
const secretCalls: Readonly<Record<string, Call>> = {
  adopt: (client, timeoutMs) => proven(client, (server) => server.adopt(newer, owner, timeoutMs)),
  renew: (client, timeoutMs) => proven(client, (server) => server.renew(newer, owner, timeoutMs)),
  shutdown: (client, timeoutMs) => proven(client, (server) => server.shutdown(newer, timeoutMs)),
};

const calls = { ...openCalls, ...secretCalls };

async function proven<R>(client: ControlClient, call: (server: ProvenServer) => Promise<R>): Promise<R> {
  const server = await client.prove([newer, older], LONG);
  try {
    return await call(server);
  } finally {
    server.close();
  }
}

/** How a call ended: `success` or the kind of its error, whose message has passed its checks. */
async function kindOf(call: Promise<unknown>): Promise<string> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (error === undefined) return 'success';
  expect(error).toBeInstanceOf(ControlError);
  const { kind, message, cause } = error as ControlError;
  expect(message).toMatch(/^control server at \S+( port \d+)? [ -~]{1,200}$/);
  for (const secret of [SESAME, newer, older]) expect(message).not.toContain(secret);
  expect(cause).toBeUndefined();
  return kind;
}

/** How asking for an identity ended. */
function identityKind(client: ControlClient, credentials: readonly string[] = [newer]): Promise<string> {
  return kindOf(client.prove(credentials, LONG).then((server) => server.close()));
}

async function kindsOf(
  client: ControlClient,
  timeoutMs = LONG,
  of: Readonly<Record<string, Call>> = calls,
): Promise<Record<string, string>> {
  const kinds = await Promise.all(
    Object.entries(of).map(async ([name, call]) => [name, await kindOf(call(client, timeoutMs))]),
  );
  return Object.fromEntries(kinds) as Record<string, string>;
}

function all(kind: string): Record<string, string> {
  return Object.fromEntries(Object.keys(calls).map((name) => [name, kind]));
}

/** Does what a server of the protocol does, as far as the client can tell. */
function genuine(
  identity: unknown = ownIdentity,
  credentials: readonly string[] = [newer],
  headers: object = {},
): Behaviour {
  return (socket, request) => {
    const challenge = /^GET \/v1\/identity\?challenge=([0-9a-f]{64}) /.exec(request)?.[1];
    if (challenge !== undefined) {
      const body = JSON.stringify(identity);
      const macs = credentials.map((credential) => macOf(credential, challenge, body));
      return socket.write(answer(200, body, { [MAC_HEADER]: macs.join(', '), ...headers }));
    }
    if (request.startsWith(`GET ${ControlPath.health} `))
      return socket.write(answer(200, '{"alive":true}', { 'content-type': 'application/json; charset=utf-8' }));
    if (request.startsWith(`POST ${ControlPath.shutdown} `)) return socket.write(answer(202, '{}'));
    if (request.startsWith(`POST ${ControlPath.renew} `)) return socket.write(answer(200, '{"leaseMs":60000}'));
    socket.write(answer(200, JSON.stringify({ credential: another, leaseMs: 60_000 })));
  };
}

/** Proves itself, and does otherwise whatever it does. */
function afterProof(behave: Behaviour): Behaviour {
  const prove = genuine();
  return (socket, request) => (request.includes('/v1/identity?') ? prove : behave)(socket, request);
}

/** Writes again and again, as fast as it is read. */
function forever(socket: Socket, chunk: string): void {
  const more = (): void => {
    while (!socket.destroyed && socket.write(chunk));
  };
  socket.on('drain', more);
  more();
}

/** Writes a little now and then, so that the connection is never idle. */
function drip(socket: Socket, chunk: string): void {
  const timer = setInterval(() => socket.write(chunk), 5);
  socket.on('close', () => clearInterval(timer));
}

const html = `<html>${SESAME}</html>`;
/** What every call but `identity` would take, were it called JSON. */
const right = JSON.stringify({ alive: true, credential: another, leaseMs: 60_000 });
const chunkedHead = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n';
const big = SESAME.repeat(200_000);

type Stranger = [what: string, behaviour: Behaviour, expected: string | Record<string, string>];

const strangers: Stranger[] = [
  ['answers with a page', (s) => s.end(answer(200, html, { 'content-type': 'text/html' })), 'not-the-protocol'],
  // The end of a server is proven by systemd; that somebody takes a request for it decides nothing.
  ['answers {} to everything', (s) => s.end(answer(200, '{}')), { ...all('not-the-protocol'), shutdown: 'success' }],
  [
    'says the right words as text',
    (s) => s.end(answer(200, right, { 'content-type': 'text/plain' })),
    'not-the-protocol',
  ],
  [
    'says the right words as JSONP',
    (s) => s.end(answer(200, right, { 'content-type': 'application/jsonp' })),
    'not-the-protocol',
  ],
  ['says the right words as nothing', (s) => s.end(`HTTP/1.1 200 OK\r\n\r\n${right}`), 'not-the-protocol'],
  ['answers what is no JSON', (s) => s.end(answer(200, `{"${SESAME}`)), 'not-the-protocol'],
  ['answers with a list', (s) => s.end(answer(200, `["${SESAME}"]`)), 'not-the-protocol'],
  ['answers with null', (s) => s.end(answer(200, 'null')), 'not-the-protocol'],
  ['answers 204', (s) => s.end('HTTP/1.1 204 No Content\r\n\r\n'), 'not-the-protocol'],
  ['answers 201', (s) => s.end(answer(201, '{"alive":true,"leaseMs":1}')), 'not-the-protocol'],
  ['answers 500 with a page', (s) => s.end(answer(500, html, { 'content-type': 'text/html' })), 'not-the-protocol'],
  ['answers 401 with a page', (s) => s.end(answer(401, html, { 'content-type': 'text/html' })), 'not-the-protocol'],
  ['answers 401 without a code', (s) => s.end(answer(401, '{}')), 'not-the-protocol'],
  ['answers a code that is text', (s) => s.end(answer(409, `{"error":"a ${SESAME}"}`)), 'not-the-protocol'],
  ['asks to speak otherwise', (s) => s.end('HTTP/1.1 101 x\r\nupgrade: a\r\nconnection: upgrade\r\n\r\n'), 'any'],
  ['speaks something else', (s) => s.end(`SSH-2.0-${SESAME}\r\n`), 'not-the-protocol'],
  ['compresses', (s) => s.end(answer(200, '\x1f\x8b\x08', { 'content-encoding': 'gzip' })), 'not-the-protocol'],
  ['answers with 1 MB of home', (s) => s.end(answer(200, `{"home":"/${big}"}`)), 'not-the-protocol'],
  ['answers with 1 MB of capabilities', (s) => s.end(answer(200, `{"capabilities":["${big}"]}`)), 'not-the-protocol'],
  [
    'streams for ever',
    (s) => {
      s.write(chunkedHead);
      forever(s, `1000\r\n${' '.repeat(0x1000)}\r\n`);
    },
    'not-the-protocol',
  ],
  [
    'sends headers for ever',
    (s) => {
      s.write('HTTP/1.1 200 OK\r\n');
      forever(s, `x-${SESAME}: ${'x'.repeat(1000)}\r\n`);
    },
    'not-the-protocol',
  ],
  [
    'drips for ever',
    (s) => {
      s.write(chunkedHead);
      drip(s, '1\r\n \r\n');
    },
    'timeout',
  ],
  ['promises an answer for ever', (s) => drip(s, 'HTTP/1.1 102 Processing\r\n\r\n'), 'timeout'],
  ['hangs after its headers', (s) => s.write(chunkedHead), 'timeout'],
  ['hangs within its body', (s) => s.write(answer(200, '{"alive":true}', { 'content-length': '99' })), 'timeout'],
  ['hangs', () => undefined, 'timeout'],
  ['closes at once', (s) => s.destroy(), 'unreachable'],
  ['ends at once', (s) => s.end(), 'unreachable'],
  ['closes within its body', (s) => s.end(answer(200, '{"alive":true}', { 'content-length': '99' })), 'unreachable'],
];

describe('the client of control servers', () => {
  const opened: RawServer[] = [];
  const open = async (...how: Parameters<typeof openRawServer>): Promise<RawServer> => {
    const server = await openRawServer(...how);
    opened.push(server);
    return server;
  };
  const clientOf = async (...how: Parameters<typeof openRawServer>): Promise<ControlClient> =>
    new ControlClient((await open(...how)).endpoint);
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((server) => server.close()));
  });

  it('gets along with a genuine server, and proves it before it sends a credential (G6, G9)', async () => {
    const server = await open(genuine());
    const client = new ControlClient(server.endpoint);
    await client.health(LONG);
    const genuinely = await client.prove([newer], LONG);
    expect(genuinely).toMatchObject({ identity: ownIdentity, credential: newer });
    expect(server.requests.join()).not.toMatch(new RegExp(`authorization|${newer}`, 'i'));

    expect(await genuinely.adopt(newer, owner, LONG)).toEqual({ credential: another, leaseMs: 60_000 });
    expect(await genuinely.renew(newer, owner, LONG)).toEqual({ leaseMs: 60_000 });
    await genuinely.shutdown(newer, LONG);
    genuinely.close();
    const sent = server.requests.slice(2);
    expect(sent.map((request) => request.split(' HTTP')[0])).toEqual([
      'POST /v1/adopt',
      'POST /v1/renew',
      'POST /v1/shutdown',
    ]);
    for (const request of sent) expect(request).toContain(`authorization: Bearer ${newer}\r\n`);
    expect(sent[0]!.split('\r\n\r\n')[1]).toBe(JSON.stringify(owner));
    expect(server.connections()).toBe(2); // one for health, and one for all the rest
    await server.idle();
  });

  describe('once the connection is gone on which a server has proven itself', () => {
    /** All that needs the proof fails, and none of it arrives at whoever listens there. */
    async function nothingArrives(server: ProvenServer, there: RawServer): Promise<void> {
      expect(await kindOf(server.adopt(newer, owner, LONG))).toBe('unreachable');
      expect(await kindOf(server.renew(newer, owner, LONG))).toBe('unreachable');
      expect(await kindOf(server.shutdown(newer, LONG))).toBe('unreachable');
      await new ControlClient(there.endpoint).health(LONG); // accepted after whatever came before it
      await there.idle();
      expect(there.received()).toContain(ControlPath.health);
      expect(there.received()).not.toMatch(new RegExp(`authorization|POST|${newer}`, 'i'));
    }

    it('sends no credential to whoever has its port since, even with the same credential (G6, G9)', async () => {
      const gone = await openRawServer(genuine());
      const server = await new ControlClient(gone.endpoint).prove([newer], LONG);
      await gone.close();
      await nothingArrives(server, await open(genuine(), gone.port));
      server.close();
    });

    type HangingUp = { atOnce?: (socket: Socket) => void; later?: (socket: Socket) => void; headers?: object };
    it.each<[string, HangingUp]>([
      ['ends it with its proof', { atOnce: (socket) => socket.end() }],
      ['ends it later', { later: (socket) => socket.end() }],
      ['cuts it later', { later: (socket) => socket.resetAndDestroy() }],
      ['says that it will', { headers: { connection: 'close' } }],
    ])('because the server %s: sends it none over another one (G6, G9)', async (_how, { atOnce, later, headers }) => {
      const prove = genuine(ownIdentity, [newer], headers);
      let first: Socket | undefined;
      const there = await open((socket, request) => {
        prove(socket, request);
        if (first) return socket.end();
        first = socket;
        atOnce?.(socket);
      });
      const server = await new ControlClient(there.endpoint).prove([newer], LONG);
      later?.(first!);
      await there.idle();
      await nothingArrives(server, there);
      server.close();
    });

    it('because it was closed here: sends it none (G6, G9)', async () => {
      const there = await open(genuine());
      const server = await new ControlClient(there.endpoint).prove([newer], LONG);
      server.close();
      await nothingArrives(server, there);
    });
  });

  describe('facing a server that keeps connections', () => {
    const said = JSON.stringify(ownIdentity);
    it.each<[string, Behaviour, string]>([
      ['knows another credential', genuine(ownIdentity, [another]), 'challenge-failed'],
      ['proves what is no identity', genuine({}), 'not-the-protocol'],
      ['has no MAC', (s) => s.write(answer(200, said)), 'not-the-protocol'],
      ['refuses', (s) => s.write(answer(503, '{"error":"closing"}')), 'refused'],
      ['answers with a page', (s) => s.write(answer(200, '', { 'content-type': 'text/html' })), 'not-the-protocol'],
    ])('and %s: none is left open (G4)', async (_what, behave, kind) => {
      const server = await open(behave);
      expect(await identityKind(new ControlClient(server.endpoint))).toBe(kind);
      await server.idle();
      expect(server.connections()).toBe(1);
    });

    it.each<[string, Behaviour, string]>([
      ['refuses a call', (s) => s.write(answer(401, '{"error":"unauthorized"}')), 'unauthorized'],
      ['answers it in no form', (s) => s.write(answer(200, '[]')), 'not-the-protocol'],
      ['does not answer it', () => undefined, 'timeout'],
    ])('and, proven, %s: none is left open after close (G4)', async (_what, behave, kind) => {
      const there = await open(afterProof(behave));
      const server = await new ControlClient(there.endpoint).prove([newer], LONG);
      expect(await kindOf(server.adopt(newer, owner, kind === 'timeout' ? SHORT : LONG))).toBe(kind);
      server.close();
      await there.idle();
      expect(there.connections()).toBe(1);
    });
  });

  it('makes a new challenge for each identity, so that no earlier answer fits (G6)', async () => {
    let first: Buffer | undefined;
    const client = await clientOf((socket, request) => {
      const challenge = /challenge=([0-9a-f]{64}) /.exec(request)![1]!;
      first ??= answer(200, JSON.stringify(ownIdentity), {
        [MAC_HEADER]: macOf(newer, challenge, JSON.stringify(ownIdentity)),
      });
      socket.end(first);
    });
    expect(await identityKind(client)).toBe('success');
    expect(await identityKind(client)).toBe('challenge-failed');
  });

  describe('facing a stranger', () => {
    it.each(strangers)(
      'that %s: every call settles and hangs up, none ends well (G4, G8)',
      async (_what, behave, expected) => {
        const timeoutMs = expected === 'timeout' ? SHORT : LONG;
        const [server, later] = [await open(behave), await open(afterProof(behave))];
        const kinds = {
          ...(await kindsOf(new ControlClient(server.endpoint), timeoutMs, openCalls)),
          ...(await kindsOf(new ControlClient(later.endpoint), timeoutMs, secretCalls)),
        };
        if (expected === 'any') expect(Object.values(kinds)).not.toContain('success');
        else expect(kinds).toEqual(typeof expected === 'string' ? all(expected) : expected);
        await Promise.all([server.idle(), later.idle()]);
      },
    );

    it.each(strangers)('that %s, never sends it a credential (G6, G9)', async (_what, behave, expected) => {
      const server = await open(behave);
      const client = new ControlClient(server.endpoint);
      const takeOver = client
        .prove([newer, older], expected === 'timeout' ? SHORT : LONG)
        .then((proof) => proof.adopt(proof.credential, owner, LONG));
      expect(await kindOf(takeOver)).not.toBe('success');
      expect(server.requests.length).toBeLessThanOrEqual(1);
      expect(server.requests.join()).not.toMatch(new RegExp(`authorization|${newer}|${older}`, 'i'));
    });

    it('that sends it elsewhere, does not go there (G6)', async () => {
      const target = await open(genuine());
      for (const status of [301, 302, 303, 307, 308]) {
        const location = `http://127.0.0.1:${target.port}/v1/identity`;
        const moves: Behaviour = (s) => s.end(answer(status, '{"error":"moved"}', { location }));
        const kinds = {
          ...(await kindsOf(await clientOf(moves), LONG, openCalls)),
          ...(await kindsOf(await clientOf(afterProof(moves)), LONG, secretCalls)),
        };
        expect(kinds).toEqual(all('not-the-protocol'));
      }
      expect(target.connections()).toBe(0);
    });

    it('that answers whatever bytes, settles and never takes it for a success (G8)', async () => {
      let said: Uint8Array = Buffer.alloc(0);
      const saying: Behaviour = (socket) => socket.end(said);
      const [client, later] = [await clientOf(saying), await clientOf(afterProof(saying))];
      const bytes = fc.uint8Array({ maxLength: 2_000 }).map((noise) => ({ noise, on: Object.keys(calls) }));
      const status = fc.constantFrom(200, 202, 204, 302, 401, 409, 500);
      const body = fc.oneof(
        fc.json().map((text) => Buffer.from(text)),
        fc.uint8Array({ maxLength: 500 }).map((noise) => Buffer.from(noise)),
      );
      const macs = fc.stringMatching(/^[0-9a-f]{64}(, [0-9a-f]{64})?$/);
      const http = fc.tuple(status, body, macs).map(([code, text, mac]) => ({
        noise: answer(code, text, { [MAC_HEADER]: mac }),
        on: Object.keys(calls).filter((name) => name !== 'shutdown'), // any object may be the answer to it
      }));
      await fc.assert(
        fc.asyncProperty(fc.oneof(bytes, http), async ({ noise, on }) => {
          said = noise;
          for (const name of on) {
            const call = name in openCalls ? openCalls[name]!(client, LONG) : secretCalls[name]!(later, LONG);
            expect(await kindOf(call)).not.toBe('success');
          }
        }),
        { numRuns: 150 },
      );
    });
  });

  describe('asking for an identity', () => {
    it.each([
      ['the newer', [newer, older], [another, newer], newer],
      ['the older', [newer, older], [older, another], older],
      ['the only', [newer], [newer], newer],
    ])('says that %s credential fits (G6)', async (_which, valid, known, fits) => {
      const client = await clientOf(genuine(ownIdentity, valid));
      const server = await client.prove(known, LONG);
      expect(server.credential).toBe(fits);
      server.close();
    });

    it.each([
      ['with another credential', [another]],
      ['with none', []],
    ])('%s fails the challenge (G6)', async (_how, known) => {
      const client = await clientOf(genuine(ownIdentity, [newer, older]));
      expect(await identityKind(client, known)).toBe('challenge-failed');
    });

    it.each(['', 'x', ', ', 'A'.repeat(64), 'a'.repeat(63), `${'a'.repeat(64)}, `, 'é'.repeat(64)])(
      'takes a MAC of %j for none of the protocol (G8)',
      async (mac) => {
        const client = await clientOf((s) => s.end(answer(200, JSON.stringify(ownIdentity), { [MAC_HEADER]: mac })));
        expect(await identityKind(client)).toBe('not-the-protocol');
      },
    );

    it('learns from one that passes the challenge on where the real server is, not that it is this one (G6)', async () => {
      const real = await open(genuine());
      const relay = await open((socket, request) => {
        get({ port: real.port, host: '127.0.0.1', path: request.split(' ')[1] }, (response) => {
          void response.toArray().then((chunks: Buffer[]) => {
            socket.end(answer(200, Buffer.concat(chunks), { [MAC_HEADER]: String(response.headers[MAC_HEADER]) }));
          });
        });
      });
      const server = await new ControlClient(relay.endpoint).prove([newer], LONG);
      const { identity } = server;
      server.close();
      expect(identity.endpoint).toEqual(ownIdentity.endpoint);
      expect(identity.endpoint).not.toEqual(relay.endpoint);
    });

    it('fails the challenge for an answer with any byte changed, its endpoint as all the rest (G6)', async () => {
      let change: (body: Buffer) => void = () => undefined;
      const client = await clientOf((socket, request) => {
        const body = Buffer.from(JSON.stringify(ownIdentity));
        const mac = macOf(newer, /challenge=([0-9a-f]{64}) /.exec(request)![1]!, body);
        change(body);
        socket.end(answer(200, body, { [MAC_HEADER]: mac }));
      });
      expect(await identityKind(client)).toBe('success');
      change = (body) => body.write('4001', body.indexOf('4000'));
      expect(await identityKind(client)).toBe('challenge-failed');
      const length = JSON.stringify(ownIdentity).length;
      await fc.assert(
        fc.asyncProperty(fc.nat({ max: length - 1 }), fc.integer({ min: 1, max: 255 }), async (at, bits) => {
          change = (body) => void (body[at]! ^= bits);
          expect(await identityKind(client)).toBe('challenge-failed');
        }),
      );
    });

    it.each<[string, unknown]>([
      ['another protocol', { protocol: 2 }],
      ['no server id', { serverId: undefined }],
      ['a server id with a space', { serverId: 'a b' }],
      ['no endpoint', { endpoint: null }],
      ['an endpoint that others reach', { endpoint: { host: '0.0.0.0', port: 4000 } }],
      ['an endpoint by a name', { endpoint: { host: 'localhost', port: 4000 } }],
      ['an endpoint without a port', { endpoint: { host: '127.0.0.1', port: 0 } }],
      ['an endpoint of two kinds', { endpoint: { host: '127.0.0.1', port: 1, socket: '/s' } }],
      ['a relative home', { home: 'srv' }],
      ['a home that is too long', { home: `/${'h'.repeat(ControlBounds.home)}` }],
      ['a home of many', { home: ['/srv'] }],
      ['too many capabilities', { capabilities: Array.from({ length: 65 }, (_, n) => `c${n}`) }],
      ['capabilities that are no tokens', { capabilities: ['files', '\u001b[2J'] }],
      ['capabilities that are no list', { capabilities: 'files' }],
      ['generation 0', { generation: 0 }],
      ['a negative generation', { generation: -1 }],
      ['half a generation', { generation: 1.5 }],
      ['a generation that is not exact', { generation: 2 ** 53 }],
      ['a generation as text', { generation: '1' }],
      ['an invocation that is too short', { invocation: 'abc' }],
      ['no owner', { owner: undefined }],
      ['an owner without an id', { owner: { epoch: 1 } }],
      ['an owner without an epoch', { owner: { ownerId: 'a', epoch: null } }],
    ])('takes %s for nothing of the protocol, although its MAC fits (G8)', async (_what, part) => {
      const client = await clientOf(genuine({ ...ownIdentity, ...(part as object) }));
      expect(await identityKind(client)).toBe('not-the-protocol');
    });

    it.each([undefined, null, 'long', 0, -5, {}, Infinity])(
      'lets a period of %j come to renewals at the minimum interval (G7)',
      async (leaseMs) => {
        const client = await clientOf(genuine({ ...ownIdentity, leaseMs }));
        const server = await client.prove([newer], LONG);
        const { identity } = server;
        server.close();
        expect(renewalInterval(identity.leaseMs)).toBe(1_000);
      },
    );
  });

  describe('adopting', () => {
    it.each<[unknown]>([[''], ['short'], [`${'a'.repeat(43)}\n`], ['a'.repeat(44)], [`${SESAME}/+=`], [null], [7]])(
      'does not take %j for a credential (G8)',
      async (credential) => {
        const said = JSON.stringify({ credential, leaseMs: 60_000 });
        const client = await clientOf(afterProof((s) => s.end(answer(200, said))));
        expect(await kindOf(secretCalls.adopt!(client, LONG))).toBe('not-the-protocol');
      },
    );

    it.each([
      [401, 'unauthorized', 'unauthorized'],
      [409, 'stale-epoch', 'stale-epoch'],
      [503, 'closing', 'refused'],
      [404, 'not-found', 'refused'],
      [400, 'bad-request', 'refused'],
    ])('understands status %d with %s, and says so in own words (G8, G9)', async (status, error, kind) => {
      const fault: Behaviour = (s) => s.end(answer(status, JSON.stringify({ error, message: SESAME })));
      const [client, later] = [await clientOf(fault), await clientOf(afterProof(fault))];
      // To a challenge it is nobody's word in particular.
      expect(await kindsOf(client, LONG, openCalls)).toEqual({ health: kind, identity: 'refused' });
      expect(await kindsOf(later, LONG, secretCalls)).toEqual({ adopt: kind, renew: kind, shutdown: kind });
      await expect(secretCalls.adopt!(later, LONG)).rejects.toThrow(`answered status ${status}, ${error}`);
    });
  });

  it('never sends or checks a credential of another form, the empty one above all (G6, G9)', async () => {
    const server = await open(genuine(ownIdentity, ['', newer]));
    const client = new ControlClient(server.endpoint);
    const proof = await client.prove([newer], LONG);
    for (const none of ['', `${newer}\r\nx: y`, newer.slice(1)]) {
      await expect(client.prove([newer, none], LONG)).rejects.toThrow(TypeError);
      await expect(proof.adopt(none, owner, LONG)).rejects.toThrow(TypeError);
      await expect(proof.renew(none, owner, LONG)).rejects.toThrow(TypeError);
      await expect(proof.shutdown(none, LONG)).rejects.toThrow(TypeError);
    }
    expect(server.requests.length).toBe(1);
    proof.close();
  });

  it.each<[Endpoint]>([
    [{ host: '0.0.0.0', port: 80 }],
    [{ host: '192.0.2.1', port: 80 }],
    [{ host: 'localhost', port: 80 }],
    [{ host: '127.0.0.1', port: 0 }],
    [{ socket: 'relative' }],
  ])('is not made for %j, which is not on this machine for sure (G9)', (endpoint) => {
    expect(() => new ControlClient(endpoint)).toThrow(TypeError);
  });

  it('finds nobody at a port that nobody listens on (G4)', async () => {
    const server = await openRawServer(() => undefined);
    await server.close();
    expect(await kindsOf(new ControlClient(server.endpoint))).toEqual(all('unreachable'));
  });

  describe('at a unix socket', () => {
    let folder: string;
    beforeEach(async () => void (folder = await mkdtemp(join(tmpdir(), 'control-'))));
    afterEach(() => rm(folder, { recursive: true, force: true }));

    it('finds a server whose path is as the host’s own processes see it (G6)', async () => {
      await mkdir(join(folder, 'run'));
      await open(genuine(), join(folder, 'run/control'));
      const client = new ControlClient({ socket: '/run/control' }, folder);
      expect(await identityKind(client)).toBe('success');
    });

    it('finds nobody where there is no socket (G4)', async () => {
      expect(await kindsOf(new ControlClient({ socket: join(folder, 'none') }))).toEqual(all('unreachable'));
    });

    it('does not talk to whoever listens at the beginning of a path that is too long (G6)', async () => {
      const longest = `${folder}/${'x'.repeat(107 - folder.length - 1)}`;
      const server = await open(genuine(), longest);
      expect(await identityKind(new ControlClient({ socket: longest }))).toBe('success');
      const longer = new ControlClient({ socket: `${longest}x` });
      await expect(longer.prove([newer], LONG)).rejects.toThrow('has a path of more than 107 bytes here');
      expect(await kindsOf(longer)).toEqual(all('unreachable'));
      expect(server.connections()).toBe(1);
    });
  });
});
