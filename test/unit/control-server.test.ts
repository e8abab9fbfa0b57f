import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { Agent, createServer, request, type IncomingHttpHeaders, type IncomingMessage, type Server } from 'node:http';
import { createServer as createNetServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import {
  createOwnership,
  effectiveLease,
  OwnedEnvironmentError,
  readOwnedEnvironment,
  serveOwned,
  type Endpoint,
  type EndReason,
  type Identity,
  type LeaseSettings,
  type OwnedEnvironment,
  type Ownership,
  type OwnershipOptions,
} from '../../src/control-server';
import { ControlClient } from '../../src/control-server/client';
import { leaseEnd } from '../../src/control-server/lease-watch';
import { ControlBounds, DEFAULT_LEASE_MS, MAC_HEADER, macOf, MIN_LEASE_MS } from '../../src/control-server/protocol';
import { until } from '../support/until';

const repository = join(__dirname, '../..');
const newCredential = (): string => randomBytes(32).toString('base64url');
const first = { ownerId: 'first', epoch: 1000 };
const challenge = '5c'.repeat(32);

let folder: string;
beforeEach(async () => (folder = await mkdtemp(join(tmpdir(), 'control-server-'))));
afterEach(async () => {
  jest.useRealTimers();
  for (const end of cleanUp.splice(0).reverse()) await end();
  jest.restoreAllMocks();
  await rm(folder, { recursive: true });
});
const cleanUp: (() => unknown)[] = [];

const environmentFor = (endpoint: Endpoint, more: Partial<OwnedEnvironment> = {}): OwnedEnvironment => ({
  endpoint,
  home: folder,
  owner: first,
  generation: first.epoch,
  lease: {},
  invocation: 'ab'.repeat(16),
  credential: newCredential(),
  ...more,
});

interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
  readonly body: Record<string, unknown>;
}

interface Sent {
  readonly credential?: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

/** Calls an endpoint, over connections that are kept. */
function caller(endpoint: Endpoint): (call: string, sent?: Sent) => Promise<Answer> {
  const agent = new Agent({ keepAlive: true });
  cleanUp.push(() => agent.destroy());
  const place = 'socket' in endpoint ? { socketPath: endpoint.socket } : endpoint;
  return async (call, { credential, body, headers } = {}) => {
    const [method, path] = call.split(' ');
    const authorization = credential === undefined ? {} : { authorization: `Bearer ${credential}` };
    const sending = request({ ...place, agent, method, path, headers: { ...authorization, ...headers } });
    sending.end(method === 'POST' ? (typeof body === 'string' ? body : JSON.stringify(body)) : undefined);
    const [res] = (await once(sending, 'response')) as [IncomingMessage];
    let text = '';
    for await (const chunk of res) text += String(chunk);
    const parsed =
      text && res.headers['content-type'] === 'application/json' ? (JSON.parse(text) as Answer['body']) : {};
    return { status: res.statusCode!, headers: res.headers, text, body: parsed };
  };
}

interface Open {
  readonly ownership: Ownership;
  readonly environment: OwnedEnvironment;
  readonly call: ReturnType<typeof caller>;
  /** The credentials that are valid, newest first, among those given; by what `identity` proves. */
  readonly validOf: (credentials: Iterable<string>) => Promise<string[]>;
  readonly identity: () => Promise<Identity>;
}

/** An owned server whose handler is `next`; its author's own `node:http` server is around it. */
async function open(
  options: Partial<OwnershipOptions> & { on?: 'loopback' | 'unix socket'; lease?: LeaseSettings; next?: Handler } = {},
): Promise<Open> {
  const { on = 'unix socket', lease = {}, next = (_req, res) => res.end('handled'), ...rest } = options;
  const server = createServer();
  server.listen(on === 'unix socket' ? join(folder, 'socket') : { host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  const endpoint: Endpoint =
    on === 'unix socket'
      ? { socket: join(folder, 'socket') }
      : { host: '127.0.0.1', port: (server.address() as AddressInfo).port };
  const environment = environmentFor(endpoint, { lease });
  const ownership = createOwnership({ environment, ...rest });
  server.on('request', (req, res) => ownership.middleware(req, res, () => next(req, res)));
  cleanUp.push(() => {
    ownership.close();
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  const call = caller(endpoint);
  const identify = (): Promise<Answer> => call(`GET /v1/identity?challenge=${challenge}`);
  return {
    ownership,
    environment,
    call,
    identity: async () => (await identify()).body as unknown as Identity,
    validOf: async (credentials) => {
      const { text, headers } = await identify();
      const known = new Map(Array.from(credentials, (credential) => [macOf(credential, challenge, text), credential]));
      return String(headers[MAC_HEADER])
        .split(', ')
        .map((mac) => known.get(mac) ?? 'unknown');
    },
  };
}
type Handler = NonNullable<Parameters<Server['on']>[1]> & Parameters<typeof serveOwned>[0]['handler'];

/** Only what a lease goes by; the connections of the test go on by themselves. */
function stopTime(): void {
  jest.useFakeTimers({
    doNotFake: [
      'Date',
      'hrtime',
      'nextTick',
      'queueMicrotask',
      'setImmediate',
      'clearImmediate',
      'setInterval',
      'clearInterval',
    ],
  });
}

const milliseconds = fc.oneof(fc.integer({ min: 1, max: 100_000 }), fc.integer({ min: 1, max: 2 ** 40 }));
const settings = fc.record(
  { leaseMs: milliseconds, idleTimeoutMs: milliseconds, busyCapMs: milliseconds },
  { requiredKeys: [] },
);

describe('the effective lease', () => {
  it('is the same for the server, by its environment, as for its owner, by the settings (G7)', async () => {
    await fc.assert(
      fc.asyncProperty(settings, async (given) => {
        await writeFile(join(folder, 'ownership'), newCredential());
        const { lease } = await readOwnedEnvironment({
          ...variables(),
          OWNED_LEASE_MS: given.leaseMs?.toString(),
          OWNED_IDLE_TIMEOUT_MS: given.idleTimeoutMs?.toString(),
          OWNED_BUSY_CAP_MS: given.busyCapMs?.toString(),
        });
        expect(effectiveLease(lease)).toEqual(effectiveLease(JSON.parse(JSON.stringify(given)) as LeaseSettings));
      }),
    );
  });

  it('has a minimum, follows from what was set, and its end is never before its parts (G7)', () => {
    fc.assert(
      fc.property(settings, (given) => {
        const { leaseMs, idleTimeoutMs, atMostMs } = effectiveLease(given);
        expect(leaseMs).toBe(Math.max(MIN_LEASE_MS, given.leaseMs ?? given.idleTimeoutMs ?? DEFAULT_LEASE_MS));
        expect(idleTimeoutMs).toBe(given.idleTimeoutMs ?? 0);
        expect(atMostMs).toBeGreaterThanOrEqual(Math.max(leaseMs, idleTimeoutMs));
        if (given.idleTimeoutMs === undefined) expect(atMostMs).toBe(leaseMs);
        else if (given.busyCapMs === undefined) expect(atMostMs).toBe(10 * Math.max(leaseMs, idleTimeoutMs));
      }),
    );
  });

  it('takes what is no positive number for absent (G8)', () => {
    const odd = fc.constantFrom(0, -1, NaN, Infinity, null, '5', {}) as fc.Arbitrary<number | undefined>;
    fc.assert(
      fc.property(fc.record({ leaseMs: odd, idleTimeoutMs: odd, busyCapMs: odd }), (given) => {
        expect(effectiveLease(given)).toEqual(effectiveLease({}));
      }),
    );
  });

  it('ends between the lease and its cap; a busy server at the cap alone; no renewal and no work makes it end sooner (G7)', () => {
    const facts = fc.record({ renewedAt: fc.nat(1e9), idleSince: fc.option(fc.nat(1e9), { nil: undefined }) });
    fc.assert(
      fc.property(settings, facts, fc.nat(1e9), (given, { renewedAt, idleSince }, later) => {
        const lease = effectiveLease(given);
        const { at, reason } = leaseEnd(lease, { renewedAt, idleSince });
        expect(at).toBeGreaterThanOrEqual(renewedAt + lease.leaseMs);
        expect(at).toBeLessThanOrEqual(renewedAt + lease.atMostMs);
        if (reason === 'lease') expect(lease.idleTimeoutMs).toBe(0);
        if (reason === 'busy-cap') expect(at).toBe(renewedAt + lease.atMostMs);
        if (reason === 'idle') expect(at).toBeGreaterThanOrEqual(idleSince! + lease.idleTimeoutMs);
        expect(leaseEnd(lease, { renewedAt: renewedAt + later, idleSince }).at).toBeGreaterThanOrEqual(at);
        const idleLater = idleSince === undefined ? undefined : idleSince + later;
        expect(leaseEnd(lease, { renewedAt, idleSince: idleLater }).at).toBeGreaterThanOrEqual(at);
      }),
    );
  });
});

describe('a server whose lease nobody renews', () => {
  let ends: EndReason[];
  beforeEach(() => (ends = []));
  const options = (lease: LeaseSettings): Parameters<typeof open>[0] => ({
    lease,
    onEnd: (reason) => void ends.push(reason),
  });

  /** Says when it ended: nothing may have happened 1 ms before. */
  async function endsAfter(ms: number): Promise<readonly EndReason[]> {
    await jest.advanceTimersByTimeAsync(ms - 1);
    expect(ends).toEqual([]);
    await jest.advanceTimersByTimeAsync(2); // a timer of whole milliseconds, and a clock with fractions
    return ends;
  }

  it('ends with it, where it has no work of its own, busy or not (G7)', async () => {
    stopTime();
    const { ownership } = await open(options({ leaseMs: 5_000 }));
    ownership.busy();
    expect(await endsAfter(5_000)).toEqual(['lease']);
    await expect(ownership.ended).resolves.toBe('lease');
  });

  it('counts from the last renewal or adoption, and from no refused one (G7)', async () => {
    stopTime();
    const { call, environment } = await open(options({ leaseMs: 5_000 }));
    const { credential } = environment;
    await jest.advanceTimersByTimeAsync(4_000);
    expect((await call('POST /v1/renew', { credential, body: first })).status).toBe(200);
    await jest.advanceTimersByTimeAsync(4_000);
    const adopter = { ownerId: 'second', epoch: 2000 };
    expect((await call('POST /v1/adopt', { credential, body: adopter })).status).toBe(200);
    await jest.advanceTimersByTimeAsync(4_000);
    const refused = [
      await call('POST /v1/renew', { credential, body: first }),
      await call('POST /v1/adopt', { credential, body: first }),
      await call('POST /v1/renew', { credential: newCredential(), body: adopter }),
      await call('GET /v1/health'),
      await call('GET /handled', { credential }),
    ];
    expect(refused.map(({ status }) => status)).toEqual([409, 409, 401, 200, 200]);
    expect(await endsAfter(1_000)).toEqual(['lease']);
  });

  it('waits until it was idle for the idle timeout (G7)', async () => {
    stopTime();
    const { ownership } = await open(options({ leaseMs: 5_000, idleTimeoutMs: 2_000 }));
    const [one, other] = [ownership.busy(), ownership.busy()];
    await jest.advanceTimersByTimeAsync(10_000);
    one();
    one(); // once more says nothing new
    await jest.advanceTimersByTimeAsync(10_000);
    other();
    expect(await endsAfter(2_000)).toEqual(['idle']);
  });

  it('is busy while a request of its handler is open (G7)', async () => {
    stopTime();
    let finish!: () => void;
    const next: Handler = (_req, res) => void (finish = () => res.end());
    const { call, environment } = await open({ ...options({ leaseMs: 5_000, idleTimeoutMs: 2_000 }), next });
    const answered = call('GET /work', { credential: environment.credential });
    while (!finish) await new Promise(setImmediate);
    await jest.advanceTimersByTimeAsync(20_000);
    expect(ends).toEqual([]);
    finish();
    await answered;
    expect(await endsAfter(2_000)).toEqual(['idle']);
  });

  it('ends at the busy cap at the latest, which a renewal moves (G7)', async () => {
    stopTime();
    const { ownership, call, environment } = await open(
      options({ leaseMs: 5_000, idleTimeoutMs: 2_000, busyCapMs: 30_000 }),
    );
    ownership.busy();
    await jest.advanceTimersByTimeAsync(29_000);
    await call('POST /v1/renew', { credential: environment.credential, body: first });
    expect(await endsAfter(30_000)).toEqual(['busy-cap']);
  });

  it('lives through a cap that is longer than a timer can be (G7)', async () => {
    stopTime();
    const { ownership } = await open(options({ leaseMs: 7 * 86_400_000, idleTimeoutMs: 1_000 }));
    ownership.busy();
    expect(await endsAfter(70 * 86_400_000)).toEqual(['busy-cap']);
  });

  it('takes no notice of the wall clock (G7)', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'queueMicrotask', 'setImmediate'] });
    const { ownership } = await open(options({ leaseMs: 5_000 }));
    jest.setSystemTime(Date.now() + 86_400_000);
    expect(await endsAfter(5_000)).toEqual(['lease']);
    await ownership.ended;
  });

  it('awaits onEnd, for its grace time at most, and ends once', async () => {
    stopTime();
    const onEnd = jest.fn(() => new Promise<void>(() => undefined));
    const { ownership } = await open({ onEnd, graceMs: 700 });
    const over = jest.fn();
    void ownership.end('signal').then(over);
    void ownership.end('shutdown');
    await jest.advanceTimersByTimeAsync(699);
    expect(over).not.toHaveBeenCalled();
    await jest.advanceTimersByTimeAsync(1);
    expect(over).toHaveBeenCalledWith('signal');
    expect(onEnd.mock.calls).toEqual([['signal']]);
  });

  it.each([
    ['throws', () => void fail()],
    ['rejects', async () => fail()],
  ])('tells its author when onEnd %s', async (_how, onEnd) => {
    const { ownership } = await open({ onEnd });
    await expect(ownership.end('shutdown')).rejects.toThrow('not saved');
  });
  const fail = (): never => {
    throw new Error('not saved');
  };
});

describe.each(['loopback', 'unix socket'] as const)('the protocol over a %s', (on) => {
  it('tells everybody that it is alive, and nothing else', async () => {
    const { call } = await open({ on });
    const { status, text, headers } = await call('GET /v1/health');
    expect([status, text]).toEqual([200, '{"alive":true}']);
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'cache-control': 'no-store' });
  });

  it('says who it is before it was sent a credential, with a MAC over every byte of it (G6)', async () => {
    const { call, environment, ownership } = await open({
      on,
      capabilities: ['sessions', 'x.2'],
      lease: { leaseMs: 9_000 },
    });
    const { status, text, headers, body } = await call(`GET /v1/identity?challenge=${challenge}`);
    expect(status).toBe(200);
    expect(body).toEqual({
      protocol: 1,
      serverId: ownership.serverId,
      endpoint: environment.endpoint,
      home: folder,
      capabilities: ['sessions', 'x.2'],
      leaseMs: 9_000,
      generation: first.epoch,
      invocation: environment.invocation,
      owner: first,
    });
    expect(headers[MAC_HEADER]).toBe(macOf(environment.credential, challenge, text));
  });

  it('is adopted, renewed and shut down (G1)', async () => {
    const ends: EndReason[] = [];
    const { call, environment, identity, ownership } = await open({ on, onEnd: (reason) => void ends.push(reason) });
    const second = { ownerId: 'second', epoch: 2000 };
    const adopted = await call('POST /v1/adopt', { credential: environment.credential, body: second });
    expect(adopted.status).toBe(200);
    expect(adopted.body).toEqual({ credential: expect.stringMatching(/^[\w-]{43}$/), leaseMs: 60_000 });
    expect((await identity()).owner).toEqual(second);
    const { credential } = adopted.body as { credential: string };
    expect(await call('POST /v1/renew', { credential, body: second })).toMatchObject({
      status: 200,
      text: '{"leaseMs":60000}',
    });
    expect(await call('POST /v1/shutdown', { credential })).toMatchObject({ status: 202, text: '{}' });
    await expect(ownership.ended).resolves.toBe('shutdown');
    expect(ends).toEqual(['shutdown']);
  });
});

describe('the protocol', () => {
  it.each([
    '',
    '?challenge=',
    `?challenge=${challenge.toUpperCase()}`,
    `?challenge=${challenge}0`,
    `?challenge=${challenge.slice(1)}`,
    `?challenge=${challenge.slice(1)}%0A`,
    `?challenge=${challenge}&challenge=${challenge}`,
  ])('answers no other challenge than 64 lower-case hex digits: %s', async (query) => {
    const { call } = await open();
    const { status, body, headers } = await call(`GET /v1/identity${query}`);
    expect([status, body.error, headers[MAC_HEADER]]).toEqual([400, 'bad-request', undefined]);
  });

  it.each([
    'GET /v1/',
    'GET /v1/nothing',
    'GET /v1/health/',
    'HEAD /v1/health',
    'POST /v1/health',
    'POST /v1/identity',
    'GET /v1/adopt',
    'PUT /v1/renew',
    'GET /v1/shutdown',
    'GET /v1/toString',
  ])('has no %s, and hands nothing below /v1/ on', async (line) => {
    const next = jest.fn();
    const { call, environment } = await open({ authorize: false, next });
    expect((await call(line, { credential: environment.credential })).status).toBe(404);
    expect(next).not.toHaveBeenCalled();
  });

  it.each(['POST /v1/adopt', 'POST /v1/renew', 'POST /v1/shutdown', 'GET /work'])(
    'lets nobody %s without a valid credential, and changes nothing then (G6)',
    async (line) => {
      const next = jest.fn();
      const { call, environment, validOf, identity } = await open({ next });
      const { credential } = environment;
      const before = await identity();
      const answered = await call('POST /v1/adopt', { credential, body: first });
      const pending = answered.body.credential as string;
      const wrong = [
        '',
        `Bearer`,
        `Bearer ${newCredential()}`,
        `Bearer ${credential}x`,
        `Basic ${credential}`,
        credential,
      ];
      for (const authorization of wrong) {
        const { status, body } = await call(line, { headers: { authorization }, body: { ownerId: 'x', epoch: 5000 } });
        expect([authorization, status, body.error]).toEqual([authorization, 401, 'unauthorized']);
      }
      expect(next).not.toHaveBeenCalled();
      expect(await validOf([pending, credential])).toEqual([pending, credential]);
      expect(await identity()).toEqual(before);
    },
  );

  it.each([
    ['nothing', ''],
    ['no JSON', 'ownerId=x'],
    ['null', 'null'],
    ['a list', '[]'],
    ['no owner', { epoch: 5000 }],
    ['no epoch', { ownerId: 'x' }],
    ['an owner with a line break', { ownerId: 'x\n', epoch: 5000 }],
    ['an owner of 65 characters', { ownerId: 'x'.repeat(65), epoch: 5000 }],
    ['an epoch in words', { ownerId: 'x', epoch: '5000' }],
    ['a broken epoch', { ownerId: 'x', epoch: 5000.5 }],
    ['an epoch of zero', { ownerId: 'x', epoch: 0 }],
    ['an epoch that is too large to count on', { ownerId: 'x', epoch: 2 ** 53 }],
  ])('takes no owner from %s, and rotates nothing then', async (_what, body) => {
    const { call, environment, validOf, identity } = await open();
    const { credential } = environment;
    for (const line of ['POST /v1/adopt', 'POST /v1/renew']) {
      expect(await call(line, { credential, body })).toMatchObject({ status: 400, body: { error: 'bad-request' } });
    }
    expect((await identity()).owner).toEqual(first);
    expect(await validOf([credential])).toEqual([credential]);
  });

  it('reads bodies up to its bound and no longer ones, announced or not', async () => {
    const { call, environment } = await open();
    const { credential } = environment;
    const body = (bytes: number): string => JSON.stringify(first).padEnd(bytes);
    for (const headers of [{}, { 'transfer-encoding': 'chunked' }] as Record<string, string>[]) {
      const fits = await call('POST /v1/renew', { credential, headers, body: body(ControlBounds.body) });
      expect(fits.status).toBe(200);
      const over = await call('POST /v1/renew', { credential, headers, body: body(ControlBounds.body + 1) });
      expect(over).toMatchObject({ status: 413, body: { error: 'too-large' } });
    }
  });

  it('looks once more at what is valid, and whether it ends, when the body is there (G1)', async () => {
    const { call, environment, ownership } = await open();
    const { credential, endpoint } = environment;
    const { socket: socketPath } = endpoint as { socket: string };
    const newest = { ownerId: 'late', epoch: 3000 };
    /** Resolves once the server has read the head of the call; the answered function sends the body. */
    const begin = async (): Promise<() => Promise<number | undefined>> => {
      const headers = { authorization: `Bearer ${credential}`, expect: '100-continue' };
      const late = request({ socketPath, method: 'POST', path: '/v1/adopt', headers });
      late.flushHeaders();
      await once(late, 'continue');
      return async () => {
        late.end(JSON.stringify(newest));
        const [res] = (await once(late, 'response')) as [IncomingMessage];
        res.resume();
        return res.statusCode;
      };
    };
    const late = await begin();
    const { body } = await call('POST /v1/adopt', { credential, body: first });
    const later = await begin();
    expect((await call('POST /v1/renew', { credential: body.credential as string, body: first })).status).toBe(200);
    expect(await late()).toBe(401);
    void ownership.end('signal');
    expect(await later()).toBe(503);
  });

  it('survives a caller that goes away in the middle of its body', async () => {
    const { call, environment } = await open();
    const { credential } = environment;
    const { socket: socketPath } = environment.endpoint as { socket: string };
    const headers = { authorization: `Bearer ${credential}`, 'content-length': '100' };
    const cut = request({ socketPath, method: 'POST', path: '/v1/adopt', headers });
    cut.write('{"ownerId"', () => cut.destroy());
    await expect(once(cut, 'close')).rejects.toThrow('socket hang up');
    expect((await call('POST /v1/renew', { credential, body: first })).status).toBe(200);
  });

  it('refuses a lower epoch, and an equal one of another owner; takes an equal one of the same, which is a retry (G1)', async () => {
    const { call, environment, identity } = await open();
    const { credential } = environment;
    const adopt = async (ownerId: string, epoch: number): Promise<number> =>
      (await call('POST /v1/adopt', { credential, body: { ownerId, epoch } })).status;
    expect(await adopt('second', 2000)).toBe(200);
    expect(await adopt('third', 1999)).toBe(409);
    expect(await adopt('second', 1999)).toBe(409);
    expect(await adopt('third', 2000)).toBe(409);
    expect(await adopt('second', 2000)).toBe(200);
    expect((await identity()).owner).toEqual({ ownerId: 'second', epoch: 2000 });
    expect(await adopt('second', 2001)).toBe(200);
  });

  it('is renewed by its owner in its present epoch alone (G1)', async () => {
    const { call, environment } = await open();
    const renew = async (ownerId: string, epoch: number): Promise<unknown> =>
      (await call('POST /v1/renew', { credential: environment.credential, body: { ownerId, epoch } })).body.error;
    expect(await renew('first', 1000)).toBeUndefined();
    expect(await renew('first', 999)).toBe('stale-epoch');
    expect(await renew('first', 1001)).toBe('stale-epoch');
    expect(await renew('other', 1000)).toBe('stale-epoch');
  });

  it('establishes nothing by an adoption that it refuses: the present owner may not have written the pending one yet', async () => {
    const { call, environment, validOf } = await open();
    const { credential } = environment;
    const { body } = await call('POST /v1/adopt', { credential, body: { ownerId: 'second', epoch: 2000 } });
    const pending = body.credential as string;
    expect((await call('POST /v1/adopt', { credential: pending, body: first })).status).toBe(409);
    expect((await call('POST /v1/adopt', { credential: pending, body: 'no JSON' })).status).toBe(400);
    expect(await validOf([pending, credential])).toEqual([pending, credential]);
  });

  it('keeps valid the last credential that was used and the last that was answered, and no other one, in any order of calls', async () => {
    const server = await open();
    const said = jest.spyOn(console, 'error').mockImplementation();
    const step = fc.record({
      line: fc.constantFrom('POST /v1/adopt', 'POST /v1/adopt', 'POST /v1/renew', 'GET /work'),
      /** Whose caller: one that got the last answer, one that crashed before, one that was replaced, or a stranger. */
      holds: fc.constantFrom('answered', 'used', 'older', 'oldest', 'guessed'),
      owner: fc.constantFrom('same', 'newer', 'stale', 'other'),
    });
    let owner = first;
    let used = server.environment.credential;
    let answered = used;
    const known = [used];
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 12 }), async (steps) => {
        for (const { line, holds, owner: whose } of steps) {
          const older = known.filter((one) => one !== used && one !== answered);
          const credential =
            { answered, used, older: older.at(-1), oldest: older[0], guessed: undefined }[holds] ?? newCredential();
          const body = {
            same: owner,
            newer: { ownerId: 'n', epoch: owner.epoch + 1 },
            stale: { ownerId: owner.ownerId, epoch: owner.epoch - 1 },
            other: { ownerId: 'o', epoch: owner.epoch },
          }[whose];
          const isValid = credential === used || credential === answered;
          const isTaken = whose === 'same' || (whose === 'newer' && line === 'POST /v1/adopt') || line === 'GET /work';

          const answer = await server.call(line, { credential, body });
          expect(answer.status).toBe(isValid ? (isTaken ? 200 : 409) : 401);

          if (isValid && (isTaken || line !== 'POST /v1/adopt')) used = credential;
          if (answer.status === 200 && line === 'POST /v1/adopt') {
            owner = body;
            known.push((answered = answer.body.credential as string));
          } else {
            for (const secret of known) expect(`${answer.text}${JSON.stringify(answer.headers)}`).not.toContain(secret);
          }
          if (known.length > 20) known.splice(0, 10);
          const valid = [...new Set([answered, used])];
          expect(await server.validOf(new Set([...known, used]))).toEqual(valid);
        }
      }),
      { numRuns: 60 },
    );
    expect(said).not.toHaveBeenCalled(); // G9
  });

  it('refuses every call while it ends, and says so', async () => {
    const next = jest.fn();
    const { call, environment, ownership } = await open({
      next,
      onEnd: () => new Promise(() => undefined),
      graceMs: 60_000,
    });
    const { credential } = environment;
    stopTime(); // the grace goes on for as long as the test looks
    void ownership.end('shutdown');
    const identity = `GET /v1/identity?challenge=${challenge}`;
    for (const line of [
      'GET /v1/health',
      identity,
      'POST /v1/adopt',
      'POST /v1/renew',
      'POST /v1/shutdown',
      'GET /work',
    ]) {
      const { status, body } = await call(line, { credential, body: first });
      expect([line, status, body.error]).toEqual([line, 503, 'closing']);
    }
    expect(next).not.toHaveBeenCalled();
  });

  it('hands everything on where its author authorises for himself, who can ask; a pending credential is used by that', async () => {
    const asked: boolean[] = [];
    const next: Handler = (req, res) => {
      asked.push(server.ownership.isAuthorized(req));
      res.end();
    };
    const server = await open({ authorize: false, next });
    const { credential } = server.environment;
    const { body } = await server.call('POST /v1/adopt', { credential, body: first });
    const pending = body.credential as string;
    for (const with_ of [undefined, credential, pending, credential])
      await server.call('GET /work', { credential: with_ });
    expect(asked).toEqual([false, true, true, false]);
    expect(await server.validOf([credential, pending])).toEqual([pending]);
  });
});

function variables(): Record<string, string | undefined> {
  return {
    OWNED_CONTROL_SOCKET: join(folder, 'socket'),
    OWNED_HOME: folder,
    OWNED_OWNER: first.ownerId,
    OWNED_GENERATION: String(first.epoch),
    INVOCATION_ID: 'ab'.repeat(16),
    CREDENTIALS_DIRECTORY: folder,
  };
}

describe('the environment', () => {
  it('is what the host gave', async () => {
    const credential = newCredential();
    await writeFile(join(folder, 'ownership'), `${credential}\n`);
    const tcp = { OWNED_CONTROL_SOCKET: undefined, OWNED_CONTROL_HOST: '127.0.0.1', OWNED_CONTROL_PORT: '7' };
    const environment = environmentFor({ socket: join(folder, 'socket') }, { credential });
    expect(await readOwnedEnvironment(variables())).toEqual(environment);
    expect(await readOwnedEnvironment({ ...variables(), ...tcp, OWNED_LEASE_MS: '4000' })).toEqual({
      ...environment,
      endpoint: { host: '127.0.0.1', port: 7 },
      lease: { leaseMs: 4_000 },
    });
  });

  it.each([
    ['OWNED_CONTROL_HOST', { OWNED_CONTROL_SOCKET: '' }],
    ['OWNED_CONTROL_PORT', { OWNED_CONTROL_SOCKET: '', OWNED_CONTROL_HOST: '::1' }],
    ['OWNED_CONTROL_PORT', { OWNED_CONTROL_SOCKET: '', OWNED_CONTROL_HOST: '::1', OWNED_CONTROL_PORT: '0x50' }],
    ['OWNED_CONTROL_PORT', { OWNED_CONTROL_PORT: '80' }],
    ['OWNED_HOME', { OWNED_HOME: '' }],
    ['OWNED_HOME', { OWNED_HOME: 'here' }],
    ['OWNED_OWNER', { OWNED_OWNER: '' }],
    ['OWNED_OWNER', { OWNED_OWNER: 'a b' }],
    ['OWNED_GENERATION', { OWNED_GENERATION: '' }],
    ['OWNED_GENERATION', { OWNED_GENERATION: '-1' }],
    ['OWNED_LEASE_MS', { OWNED_LEASE_MS: '5s' }],
    ['OWNED_IDLE_TIMEOUT_MS', { OWNED_IDLE_TIMEOUT_MS: '1.5' }],
    ['OWNED_BUSY_CAP_MS', { OWNED_BUSY_CAP_MS: '0' }],
    ['INVOCATION_ID', { INVOCATION_ID: '' }],
    ['INVOCATION_ID', { INVOCATION_ID: 'x' }],
    ['CREDENTIALS_DIRECTORY', { CREDENTIALS_DIRECTORY: '' }],
    ['CREDENTIALS_DIRECTORY', { CREDENTIALS_DIRECTORY: '/nowhere' }],
  ])('that can not be used is refused by an error that names %s: %j', async (name, change) => {
    await writeFile(join(folder, 'ownership'), newCredential());
    const reading = readOwnedEnvironment({ ...variables(), ...change });
    await expect(reading).rejects.toThrow(OwnedEnvironmentError);
    await expect(reading).rejects.toThrow(name);
    await expect(reading).rejects.toThrow(/set|load/); // the remedy
  });

  it('keeps what was in a bad credential file to itself (G9)', async () => {
    await writeFile(join(folder, 'ownership'), 'hunter2');
    const error: unknown = await readOwnedEnvironment(variables()).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(OwnedEnvironmentError);
    expect(JSON.stringify([String(error), error])).not.toContain('hunter2');
    const given = environmentFor({ socket: '/s' }, { credential: 'hunter2' });
    expect(() => createOwnership({ environment: given })).toThrow(
      /^the credential is not 32 random bytes in base64url$/,
    );
  });

  it.each([
    [{ home: 'here' }, {}, 'home "here"'],
    [{ home: `/${'x'.repeat(4096)}` }, {}, 'absolute path'],
    [{}, { capabilities: ['two words'] }, 'two words'],
    [{}, { capabilities: Array.from({ length: 65 }, (_, i) => `c${i}`) }, 'at most 64'],
  ])('and the options that no caller would accept are refused at once: %#', (given, options, message) => {
    const environment = environmentFor({ socket: '/s' }, given);
    expect(() => createOwnership({ environment, ...options })).toThrow(message);
  });
});

describe('serveOwned', () => {
  const handler: Handler = (_req, res) => res.end();
  const socket = (): { socket: string } => ({ socket: join(folder, 'socket') });

  /** Serves until the test ends; what would end the process is told to `exit`. */
  async function serve(environment: OwnedEnvironment, options: Partial<Parameters<typeof serveOwned>[0]> = {}) {
    const exit = jest.spyOn(process, 'exit');
    const exited = new Promise<unknown>((resolve) => exit.mockImplementation((code) => resolve(code) as never));
    const served = await serveOwned({ environment, handler, ...options });
    cleanUp.push(() => {
      served.ownership.end('shutdown').catch(() => undefined);
      return exited;
    });
    return { ...served, exit, exited, call: caller(environment.endpoint) };
  }

  it('answers where the environment says, and exits with 0 once it was shut down', async () => {
    let saved!: () => void;
    const onEnd = (): Promise<void> => new Promise((resolve) => (saved = resolve));
    const environment = environmentFor(socket());
    const { call, exit, exited, server } = await serve(environment, { onEnd });
    const { credential } = environment;
    expect((await call('GET /work', { credential })).status).toBe(200);
    expect((await call('GET /work')).status).toBe(401);
    expect((await call('POST /v1/shutdown', { credential })).status).toBe(202);
    expect(await call('GET /v1/health')).toMatchObject({ status: 503, body: { error: 'closing' } });
    expect(exit).not.toHaveBeenCalled();
    saved();
    expect(await exited).toBe(0);
    expect(server.listening).toBe(false);
    expect(existsSync(socket().socket)).toBe(false);
  });

  it('is proven, adopted, renewed and shut down over one connection, which it keeps open (G6)', async () => {
    const environment = environmentFor(socket());
    const { server, exited } = await serve(environment);
    let connections = 0;
    server.on('connection', () => connections++);
    const proven = await new ControlClient(environment.endpoint).prove([environment.credential], 20_000);
    cleanUp.push(() => proven.close());
    const next = { ownerId: 'second', epoch: 2000 };
    const { credential } = await proven.adopt(proven.credential, next, 20_000);
    await proven.renew(credential, next, 20_000);
    await proven.shutdown(credential, 20_000);
    expect(await exited).toBe(0);
    expect(connections).toBe(1);
    expect(server.keepAliveTimeout).toBeGreaterThanOrEqual(5_000); // docs/control-server.md
  });

  it('exits with 1, and says why, when its author could not save', async () => {
    const said = jest.spyOn(console, 'error').mockImplementation();
    const error = new Error('disk full');
    const { ownership, exited } = await serve(environmentFor(socket()), { onEnd: () => Promise.reject(error) });
    await expect(ownership.end('shutdown')).rejects.toBe(error);
    expect(await exited).toBe(1);
    expect(said.mock.calls).toEqual([[error]]);
  });

  it.each(['0.0.0.0', '::', '192.0.2.1', 'localhost', '127.0.0.1.example', '::ffff:127.0.0.1', '128.0.0.1'])(
    'refuses to listen on %s',
    async (host) => {
      const serving = serveOwned({ environment: environmentFor({ host, port: 8080 }), handler });
      await expect(serving).rejects.toThrow(/refusing to listen on .*loopback/);
    },
  );

  it.each(['relative', `/${'x'.repeat(107)}`])('refuses to listen on the socket %s', async (path) => {
    await expect(serveOwned({ environment: environmentFor({ socket: path }), handler })).rejects.toThrow(/path/);
  });

  it('listens on a port of a loopback address, and says so when it is taken', async () => {
    const other = createNetServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const endpoint = { host: '127.0.0.1', port: (other.address() as AddressInfo).port };
    await expect(serveOwned({ environment: environmentFor(endpoint), handler })).rejects.toThrow(
      `can't listen on ${JSON.stringify(endpoint)}: listen EADDRINUSE`,
    );
    await new Promise((resolve) => other.close(resolve));
    const { call } = await serve(environmentFor(endpoint));
    expect((await call('GET /v1/health')).status).toBe(200);
  });

  it('takes the place of a dead server whose socket is still there', async () => {
    const dead = createNetServer().listen(join(folder, 'before'));
    await once(dead, 'listening');
    await rename(join(folder, 'before'), socket().socket); // out of reach of what closing it removes
    await new Promise((resolve) => dead.close(resolve));
    const { call } = await serve(environmentFor(socket()));
    expect((await call('GET /v1/health')).status).toBe(200);
  });

  it('leaves the socket of a living server alone (G11)', async () => {
    const living = await serve(environmentFor(socket()));
    await expect(serveOwned({ environment: environmentFor(socket()), handler })).rejects.toThrow('another server does');
    expect((await living.call('GET /v1/health')).status).toBe(200);
  });

  it('leaves a file that is no socket alone (G11)', async () => {
    await writeFile(socket().socket, 'precious');
    await expect(serveOwned({ environment: environmentFor(socket()), handler })).rejects.toThrow('no socket');
    expect(await readFile(socket().socket, 'utf8')).toBe('precious');
  });
});

describe('examples/control-server', () => {
  let server: ChildProcess;
  afterEach(() => void server.kill('SIGKILL'));

  function start(environment: Record<string, string | undefined>): { stderr: () => string } {
    const hook = join(repository, 'test/support/typescript-hook.js');
    const command = ['--require', hook, join(repository, 'examples/control-server/server.js')];
    server = spawn(process.execPath, command, { env: environment, stdio: ['ignore', 'ignore', 'pipe'] });
    let text = '';
    server.stderr!.on('data', (chunk) => (text += String(chunk)));
    return { stderr: () => text };
  }

  it('works visibly, is busy while it does, and ends gracefully at SIGTERM', async () => {
    const credential = newCredential();
    await writeFile(join(folder, 'ownership'), credential);
    start(variables());
    const exit = once(server, 'exit');
    const call = caller({ socket: join(folder, 'socket') });
    await until('the server listens', async () => (await call('GET /v1/health')).status === 200);

    expect(await call('POST /sessions')).toMatchObject({ status: 401 });
    expect(await call('POST /sessions', { credential })).toMatchObject({ status: 201, body: { session: 1 } });
    expect(await call('POST /sessions', { credential })).toMatchObject({ status: 201, body: { session: 2 } });
    const list = await until('both have ticked', async () => {
      const { body } = await call('GET /sessions', { credential });
      return (body.sessions as { ticks: number }[]).every(({ ticks }) => ticks > 0) && body;
    });
    expect(list).toMatchObject({ pid: server.pid, sessions: [{ session: 1 }, { session: 2 }] });
    expect(await call('DELETE /sessions/1', { credential })).toMatchObject({ status: 200, body: { session: 1 } });
    expect(await call('DELETE /sessions/1', { credential })).toMatchObject({ status: 404 });

    server.kill('SIGTERM');
    expect(await exit).toEqual([0, null]);
    const log = readFileSync(join(folder, '2.log'), 'utf8').trim().split('\n');
    expect(log[0]).toMatch(/^starts in process \d+, generation 1000$/);
    expect(log[1]).toBe('1');
    expect(log.at(-1)).toBe('ends, the server ends: signal');
    expect(existsSync(join(folder, 'socket'))).toBe(false);
  });

  it('says what is missing when it is started by hand', async () => {
    const { stderr } = start({});
    expect(await once(server, 'close')).toEqual([1, null]);
    expect(stderr()).toMatch(/^OWNED_GENERATION is not set: .*\n$/);
  });
});

describe('docs/control-server.md', () => {
  const text = readFileSync(join(repository, 'docs/control-server.md'), 'utf8');
  const lines = (name: string): string[] =>
    [...text.matchAll(new RegExp(`^${name} +(\\S.*)$`, 'gm'))].map(([, value]) => value!);

  it('has a test vector of the MAC that is right', () => {
    const [[credential], [hex], [body], [mac]] = [lines('credential'), lines('challenge'), lines('body'), lines('mac')];
    expect(macOf(credential!, hex!, body!)).toBe(mac);
    expect(Object.keys(JSON.parse(body!) as Identity)).toEqual(
      ['protocol', 'serverId', 'endpoint', 'home', 'capabilities', 'leaseMs', 'generation', 'invocation', 'owner'], // prettier-ignore
    );
  });

  it('has examples of the effective lease that are right', () => {
    const number = (cell: string): number | undefined => (/\d/.test(cell) ? Number(cell.replace(/,/g, '')) : undefined);
    const rows = [...text.matchAll(/^\|((?: *(?:-|[\d,]+) *\|){6})$/gm)].map(([, cells]) =>
      cells!.split('|').map(number),
    );
    expect(rows.length).toBeGreaterThan(4);
    for (const [leaseMs, idleTimeoutMs, busyCapMs, ...effective] of rows) {
      const lease = effectiveLease({ leaseMs, idleTimeoutMs, busyCapMs });
      expect([lease.leaseMs, lease.idleTimeoutMs, lease.atMostMs]).toEqual(effective.slice(0, 3));
    }
  });
});
