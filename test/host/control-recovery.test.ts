import { chown, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { dirname, join } from 'node:path';
import type { ControlConfig, Program } from '../../src/config';
import { expand } from '../../src/config/expand';
import type { StartAnswer } from '../../src/contract/activities';
import type { RecoveryReason, RecoveryScope } from '../../src/contract/control';
import type { Endpoint } from '../../src/contract/endpoint';
import type { Placement } from '../../src/contract/facts';
import {
  control,
  credentialIn,
  identityOf,
  recoverInput,
  sessionServer,
  use,
  type Place,
} from '../support/control-servers';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, owner, placementOf, script, startInput } from '../support/owned-host';
import { PlayedServer } from '../support/played-server';
import { answer, openRawServer, type Behaviour, type RawServer } from '../support/raw-server';
import { processesOf } from '../support/unit-processes';

/** Nothing of what a stranger says may get anywhere. */
const WORDS = 'words-of-a-stranger';

/** A server that its owner has left, and what it was then. */
interface Left {
  readonly resource: string;
  readonly placement: Placement;
  readonly place: Place;
  readonly credential: string;
  /** As it is recorded. */
  readonly record: string;
  readonly recordFile: string;
  readonly pid: unknown;
  readonly serverId: unknown;
}

describeOnPrivateHost('a control server', () => {
  const strangers: RawServer[] = [];
  const suite = new HostSuite();
  afterEach(() => Promise.all(strangers.splice(0).map((stranger) => stranger.close())));
  let home: string;
  let sessions: Program;
  beforeAll(() => {
    home = join(suite.machine.stateDirectory, '${resource}');
    // Long leases: what is left here is there until the file ends.
    sessions = sessionServer('sessions', home, { leaseMs: 600_000 }, { lease: { leaseMs: 600_000 } });
  });

  /** The program with another `control` section. */
  const withControl = (change: Partial<ControlConfig>, of = sessions): Program => ({
    ...of,
    control: { ...of.control!, ...change },
  });

  /** A program that listens on nothing, for what is decided before it would. */
  const mute = (change: Partial<ControlConfig>): Program =>
    script('sessions', 'exec sleep 9999', { control: control(home, change) });

  /** Ports of this file alone that no other program here has. */
  const ports = (from: number, to = from): ControlConfig['listen'] => {
    const { listen } = control(home);
    if (!('ports' in listen)) throw new Error('ports by default');
    return { host: listen.host, ports: [listen.ports[0] + from, listen.ports[0] + to] };
  };

  const portOf = ({ control: placed }: Placement): number => {
    if (!placed || !('port' in placed.endpoint)) throw new Error('placed without a port');
    return placed.endpoint.port;
  };

  const firstOf = (listen: ControlConfig['listen']): number => ('ports' in listen ? listen.ports[0] : 0);

  async function stranger(behaviour: Behaviour, port?: number): Promise<RawServer> {
    const server = await openRawServer(behaviour, port);
    strangers.push(server);
    return server;
  }

  async function start(worker: SuiteHost, resource = suite.resource()): Promise<StartAnswer & { resource: string }> {
    await mkdir(expand(home, { resource }), { recursive: true });
    return { ...(await worker.host.start(startInput(resource, 'sessions', { recovered: true }))), resource };
  }

  /** Starts a healthy server, of which the next owner knows nothing but its record. */
  async function leave(worker: SuiteHost): Promise<Left> {
    const started = await start(worker);
    const { resource } = started;
    const placement = placementOf(started);
    expect(await worker.host.awaitServer({ resource, owner, placement })).toEqual({ healthy: true });
    const { endpoint, credentialFile } = placement.control!;
    const place = { ...endpoint, credentialFile };
    const recordFile = filesOf(resource, placement).controlRecord;
    const record = await readFile(recordFile, 'utf8');
    const credential = await credentialIn(suite.machine, place);
    const { body } = await use(suite.machine, place, 'GET', '/sessions');
    return { resource, placement, place, credential, record, recordFile, pid: body.pid, serverId: body.serverId };
  }

  function filesOf(
    resource: string,
    { generation }: Placement,
  ): ReturnType<ReturnType<HostSuite['filesOf']>['generation']> {
    return suite.filesOf(resource).generation(generation);
  }

  /** It goes on as it was: same process, same owner, same credential. */
  async function expectUntouched(worker: SuiteHost, left: Left): Promise<void> {
    const { placement, place, credential, pid, serverId } = left;
    expect(await worker.unit(placement.unit, 'InvocationID')).toEqual({ InvocationID: placement.invocation });
    expect(await credentialIn(suite.machine, place)).toBe(credential);
    expect((await use(suite.machine, place, 'GET', '/sessions')).body).toMatchObject({ pid, serverId });
    expect((await identityOf(suite.machine, place)).owner).toEqual({
      ownerId: owner.ownerId,
      epoch: placement.generation,
    });
    expect((await filesOf(left.resource, placement).launch.read())?.owner).toEqual(owner);
  }

  /** What a log or an answer may never have: a credential, a stranger's words (G8, G9). */
  function expectSilence(worker: SuiteHost, answers: unknown, ...secrets: string[]): void {
    const said = JSON.stringify([answers, worker.lines]);
    for (const secret of [WORDS, ...secrets]) expect(said).not.toContain(secret);
  }

  describe('that its owner has left', () => {
    let left: Left;
    beforeAll(async () => {
      left = await leave(await suite.worker([sessions]));
    });

    /** The record with some fields changed. */
    const changed =
      (fields: object) =>
      ({ record, recordFile }: Left): Promise<void> =>
        writeFile(recordFile, JSON.stringify({ ...(JSON.parse(record) as object), ...fields }));
    const text =
      (make: (record: string) => string) =>
      ({ record, recordFile }: Left): Promise<void> =>
        writeFile(recordFile, make(record));

    it.each<[string, (left: Left) => Promise<unknown>, RecoveryReason, contacted: boolean]>([
      ['that is missing', async () => undefined, 'record-missing', false],
      ['that is cut off', text((record) => record.slice(0, -20)), 'record-malformed', false],
      [
        'of 1 MB',
        text((record) => record.replace('{', `{"words":"${WORDS.repeat(60_000)}",`)),
        'record-malformed',
        false,
      ],
      ['that is no JSON', text(() => WORDS), 'record-malformed', false],
      ['of a newer version', changed({ version: 2 }), 'record-malformed', false],
      ['with port 0', changed({ endpoint: { host: '127.0.0.1', port: 0 } }), 'record-malformed', false],
      ['with port 99999', changed({ endpoint: { host: '127.0.0.1', port: 99_999 } }), 'record-malformed', false],
      ['with an address elsewhere', changed({ endpoint: { host: '192.0.2.1', port: 80 } }), 'record-malformed', false],
      ['with another’s credential file', changed({ credentialFile: '/etc/hostname' }), 'record-malformed', false],
      [
        'that is a link',
        async ({ record, recordFile }) => {
          await writeFile(`${recordFile}.real`, record, { mode: 0o600 });
          await symlink('control.json.real', recordFile);
        },
        'record-unreadable',
        false,
      ],
      [
        'that another user has written',
        async (all) => {
          await text((record) => record)(all);
          await chown(all.recordFile, 65_534, 65_534);
        },
        'record-unreadable',
        false,
      ],
      ['of another boot', changed({ bootId: '0'.repeat(32) }), 'record-other-boot', false],
      ['of another unit', changed({ unit: 'own-another-g1.service' }), 'record-other-unit', true],
      ['of another invocation', changed({ invocation: '0'.repeat(32) }), 'record-other-unit', true],
      ['of another home', changed({ home: '/srv/another' }), 'record-other-home', true],
    ])('is not adopted by a record %s, and goes on (G6, G8)', async (_name, spoil, reason, contacted) => {
      const worker = await suite.worker([sessions]);
      const input = recoverInput(left.resource, 'sessions');
      await rm(left.recordFile);
      await spoil(left);
      try {
        const answers = [await worker.host.adoptServer(input), await worker.host.reclaimServer(input)];
        for (const { recovery, placement } of answers) {
          expect(placement).toBeUndefined();
          expect(recovery).toMatchObject({ adopted: false, scope: 'own-server', reason });
          expect(recovery.contactedAt !== undefined).toBe(contacted);
        }
        expectSilence(worker, answers, left.credential);
      } finally {
        await rm(left.recordFile, { force: true });
        await writeFile(left.recordFile, left.record, { mode: 0o600 });
      }
      await expectUntouched(worker, left);
    });

    const json =
      (body: string, headers = {}, status = 200): Behaviour =>
      (socket) =>
        void socket.end(answer(status, body, headers));
    const mac = { 'ownership-mac': '0'.repeat(64) };
    const head = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
    const identity = (fields: object): string => {
      const { endpoint, home, capabilities } = JSON.parse(left.record) as Record<string, unknown>;
      const { generation, invocation } = left.placement;
      const words = { protocol: 1, serverId: WORDS, leaseMs: 60_000, owner: { ownerId: WORDS, epoch: 1 } };
      return JSON.stringify({ ...words, endpoint, home, capabilities, generation, invocation, ...fields });
    };
    /** Passes everything on, in both directions. */
    const relay: Behaviour = (socket: Socket, request) => {
      const real = connect(portOf(left.placement), '127.0.0.1');
      real.on('error', () => socket.destroy());
      real.pipe(socket);
      real.write(request);
    };

    it.each<[string, () => Behaviour, RecoveryReason, RecoveryScope]>([
      [
        'answers 200 with HTML',
        () => json(`<h1>${WORDS}</h1>`, { 'content-type': 'text/html' }),
        'not-the-protocol',
        'foreign-server',
      ],
      ['answers 200 with {} to everything', () => json('{}'), 'not-the-protocol', 'foreign-server'],
      [
        'says it is alive to everything',
        () => json(`{"alive":true,"x":"${WORDS}"}`),
        'not-the-protocol',
        'foreign-server',
      ],
      [
        'speaks no HTTP',
        () => (socket) => void socket.end(`220 ${WORDS} ESMTP\r\n`),
        'not-the-protocol',
        'foreign-server',
      ],
      ['says all that is expected of it', () => json(identity({}), mac), 'challenge-failed', 'foreign-server'],
      [
        'answers a home of 1 MB',
        () => json(identity({ home: `/${WORDS.repeat(60_000)}` }), mac),
        'not-the-protocol',
        'foreign-server',
      ],
      [
        'answers capabilities of 1 MB',
        () => json(identity({ capabilities: Array(60_000).fill(WORDS) }), mac),
        'not-the-protocol',
        'foreign-server',
      ],
      [
        'redirects to the real server',
        () => json(WORDS, { location: `http://127.0.0.1:${portOf(left.placement)}/v1/identity` }, 307),
        'not-the-protocol',
        'foreign-server',
      ],
      [
        'refuses with an error of the protocol',
        () => json(`{"error":"${WORDS}"}`, {}, 409),
        'refused',
        'foreign-server',
      ],
      [
        'streams for ever',
        () => (socket) => {
          socket.write(`${head}\r\n`);
          const more = (): void => void (socket.destroyed || socket.write(WORDS.repeat(100), () => setImmediate(more)));
          more();
        },
        'not-the-protocol',
        'foreign-server',
      ],
      ['passes everything on to the real server', () => relay, 'other-endpoint', 'foreign-server'],
      ['closes the connection', () => (socket) => socket.destroy(), 'unreachable', 'own-server'],
      // Slow is what the own server may be too, and it lives.
      ['hangs before it answers', () => () => undefined, 'timeout', 'own-server'],
      [
        'hangs after the headers',
        () => (socket) => void socket.write(`${head}content-length: 9\r\nx: ${WORDS}\r\n\r\n`),
        'timeout',
        'own-server',
      ],
    ])(
      'is not adopted where somebody else at its place %s, who hears no credential (G6, G9)',
      async (_name, behaviour, reason, scope) => {
        const slow = reason === 'timeout';
        const recovery = { ...sessions.control!.recovery, ...(slow && { timeoutMs: 300 }) };
        const worker = await suite.worker([withControl({ recovery })]);
        const input = recoverInput(left.resource, 'sessions');
        const other = await stranger(behaviour());
        const before = Date.now();
        await changed({ endpoint: other.endpoint })(left);
        try {
          const answers = [await worker.host.adoptServer(input), await worker.host.reclaimServer(input)];
          for (const { recovery, placement } of answers) {
            expect(placement).toBeUndefined();
            expect(recovery).toMatchObject({ adopted: false, scope, reason, endpoint: other.endpoint });
            if (reason === 'unreachable') expect(recovery.contactedAt).toBeUndefined();
            else expect(recovery.contactedAt).toBeGreaterThanOrEqual(before);
          }
          expect(other.requests).toHaveLength(2); // asked once by each, and nothing after that
          expect(other.requests.join('')).not.toMatch(/authorization/i);
          expect(other.requests.join('')).not.toContain(left.credential);
          expectSilence(worker, answers, left.credential);
        } finally {
          await writeFile(left.recordFile, left.record);
        }
        await expectUntouched(worker, left);
      },
    );

    it('is not adopted with a home or capabilities that the program no longer has, nor for other parameters (G6)', async () => {
      const input = recoverInput(left.resource, 'sessions');
      const adoptAs = async (program: Program, change = {}): Promise<object> => {
        const worker = await suite.worker([program]);
        const { recovery } = await worker.host.adoptServer({ ...input, ...change });
        await expectUntouched(worker, left);
        await suite.end(worker);
        return recovery;
      };
      const own = { adopted: false, scope: 'own-server', contactedAt: expect.any(Number) as number };
      expect(await adoptAs(withControl({ capabilities: ['sessions', 'flying'] }))).toMatchObject({
        ...own,
        reason: 'capability-missing',
      });
      expect(await adoptAs(withControl({ home: '/srv/new' }))).toMatchObject({ ...own, reason: 'record-other-home' });
      const parameters = { tier: 'large' };
      expect(await adoptAs({ ...sessions, parameters: { tier: /^large$/ } }, { parameters })).toMatchObject({
        ...own,
        reason: 'record-other-unit',
      });
      expect(await adoptAs({ ...sessions, name: 'renamed' }, { program: 'renamed' })).toMatchObject({
        ...own,
        reason: 'record-other-unit',
      });
    });

    it('is never contacted once its credential is lost, and is still the resource’s own (G6)', async () => {
      const worker = await suite.worker([sessions]);
      const other = await stranger(json('{}'));
      await changed({ endpoint: other.endpoint })(left);
      const file = join(suite.machine.root, left.place.credentialFile);
      try {
        for (const spoil of [() => rm(file), () => writeFile(file, WORDS, { mode: 0o600 })]) {
          await spoil();
          const { recovery } = await worker.host.adoptServer(recoverInput(left.resource, 'sessions'));
          expect(recovery).toEqual({ adopted: false, scope: 'own-server', reason: 'credential-lost' });
          expectSilence(worker, recovery);
        }
        expect(other.connections()).toBe(0);
      } finally {
        await writeFile(file, left.credential, { mode: 0o600 });
        await writeFile(left.recordFile, left.record);
      }
      await expectUntouched(worker, left);
    });

    it('is asked to be recovered before a start does anything, and to be stopped first after that (G2, G5)', async () => {
      const worker = await suite.worker([sessions]);
      const next = startInput(left.resource, 'sessions', { owner: { ...owner, ownerId: 'owner-2' } });
      const loaded = await suite.loaded(left.resource);
      const { instance } = worker.host;
      expect(await worker.host.start(next)).toEqual({
        kind: 'recover',
        instance,
        plan: { survive: true, onRefused: 'stop' },
      });
      expect(await suite.filesOf(left.resource).generations()).toEqual([left.placement.generation]);
      expect(await worker.host.start({ ...next, recovered: true })).toMatchObject({
        kind: 'stop-first',
        living: true,
        instance,
      });
      // Nor is it adopted as a plain program, should the host's configuration have become one.
      await suite.end(worker);
      const { control: _none, ...plain } = sessions;
      const changedWorker = await suite.worker([plain]);
      expect(await changedWorker.host.start({ ...next, generation: Date.now() })).toMatchObject({
        kind: 'stop-first',
        living: true,
      });
      expect(await suite.loaded(left.resource)).toEqual(loaded);
      await expectUntouched(changedWorker, left);
    });
  });

  it('is neither made nor looked for by a start of an owner that has not looked for one (G5)', async () => {
    const worker = await suite.worker([sessions]);
    const resource = suite.resource();
    expect(await worker.host.start(startInput(resource, 'sessions'))).toMatchObject({ kind: 'recover' });
    expect(await suite.filesOf(resource).generations()).toEqual([]);
    expect(await suite.loaded(resource)).toEqual([]);
    const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
    expect(recovery).toEqual({ adopted: false, scope: 'no-server', reason: 'record-missing' });
  });

  it('is adopted with a new credential, and its former owner is out from then on (G1, G6, G9)', async () => {
    const worker = await suite.worker([sessions]);
    const left = await leave(worker);
    const { resource, placement, place, credential } = left;
    const input = recoverInput(resource, 'sessions');
    const before = Date.now();
    const adopted = await worker.host.adoptServer(input);
    expect(adopted).toEqual({
      recovery: {
        adopted: true,
        scope: 'adopted',
        reason: 'adopted',
        endpoint: placement.control!.endpoint,
        contactedAt: expect.any(Number) as number,
        lease: 600_000,
      },
      placement,
    });
    expect(adopted.recovery.contactedAt).toBeGreaterThanOrEqual(before);

    const rotated = await credentialIn(suite.machine, place);
    expect(rotated).not.toBe(credential);
    const facts = await stat(join(suite.machine.root, place.credentialFile));
    expect(facts.mode & 0o777).toBe(0o600);
    expect((await stat(left.recordFile)).mode & 0o777).toBe(0o600);
    expect(await readFile(left.recordFile, 'utf8')).toBe(left.record);
    expect(await filesOf(resource, placement).launch.read()).toMatchObject({ owner: input.owner, epoch: input.epoch });
    const { ownerId } = input.owner;
    expect((await identityOf(suite.machine, place)).owner).toEqual({ ownerId, epoch: input.epoch });
    expect((await use(suite.machine, place, 'GET', '/sessions')).body).toMatchObject({
      pid: left.pid,
      serverId: left.serverId,
    });

    const former = { ownerId: owner.ownerId, epoch: placement.generation };
    expect((await use(suite.machine, place, 'POST', '/v1/renew', credential, former)).status).toBe(401);
    expect((await use(suite.machine, place, 'POST', '/v1/renew', rotated, former)).status).toBe(409);
    expectSilence(worker, adopted, credential, rotated);
  });

  it('is adopted once more by the same owner, and by nobody with a lower epoch (G1, G5)', async () => {
    const worker = await suite.worker([sessions]);
    const { resource, placement, place } = await leave(worker);
    const input = recoverInput(resource, 'sessions');
    await worker.host.adoptServer(input);
    const again = await worker.host.adoptServer(input);
    expect(again).toMatchObject({ recovery: { adopted: true }, placement });
    const [credential, launch, identity] = [
      await credentialIn(suite.machine, place),
      await filesOf(resource, placement).launch.read(),
      await identityOf(suite.machine, place),
    ];

    for (const [ownerId, epoch] of [
      ['owner-3', input.epoch - 1],
      ['owner-3', input.epoch],
      ['owner-2', input.epoch - 1],
    ] as const) {
      const late = await worker.host.adoptServer({ ...input, epoch, owner: { ...owner, ownerId } });
      expect(late).toMatchObject({ recovery: { adopted: false, scope: 'own-server', reason: 'epoch-refused' } });
      expect(late.placement).toBeUndefined();
    }
    expect(await credentialIn(suite.machine, place)).toBe(credential);
    expect(await filesOf(resource, placement).launch.read()).toEqual(launch);
    expect(await identityOf(suite.machine, place)).toEqual(identity);
    expect((await use(suite.machine, place, 'GET', '/sessions')).status).toBe(200);
  });

  it('is adopted after an adoption that was cut off before its credential was kept (G5, G6)', async () => {
    const worker = await suite.worker([sessions]);
    const left = await leave(worker);
    const { resource, placement, place, credential } = left;
    // A worker that dies with the answer in its hand.
    const dead = { ownerId: 'owner-dead', epoch: Date.now() };
    expect((await use(suite.machine, place, 'POST', '/v1/adopt', credential, dead)).status).toBe(200);

    // A disk that takes no more.
    const directory = dirname(place.credentialFile);
    await suite.machine.run(['mount', '--bind', directory, directory]);
    await suite.machine.run(['mount', '-o', 'remount,bind,ro', directory]);
    const unwritten = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
    await suite.machine.run(['umount', directory]);
    expect(unwritten.recovery).toMatchObject({ adopted: false, scope: 'own-server', reason: 'credential-not-written' });
    expect(await credentialIn(suite.machine, place)).toBe(credential);
    expect((await filesOf(resource, placement).launch.read())?.owner).toEqual(owner);

    const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
    expect(recovery).toMatchObject({ adopted: true });
    expect(await credentialIn(suite.machine, place)).not.toBe(credential);
    expect((await use(suite.machine, place, 'GET', '/sessions')).body).toMatchObject({ pid: left.pid });
  });

  describe('that the test plays itself', () => {
    let server: PlayedServer | undefined;
    afterEach(() => server?.close());

    /** Starts a unit, and plays its server until it is healthy. */
    async function play(at: number): Promise<{ worker: SuiteHost; resource: string; placement: Placement }> {
      const recovery = { ...sessions.control!.recovery, timeoutMs: 500 };
      const worker = await suite.worker([mute({ listen: ports(at), recovery })]);
      const started = await start(worker);
      const { resource } = started;
      const placement = placementOf(started);
      server = await PlayedServer.open(suite.machine, placement);
      expect(await worker.host.awaitServer({ resource, owner, placement })).toEqual({ healthy: true });
      return { worker, resource, placement };
    }

    it('is not adopted when it says that it works in another home (G6)', async () => {
      const { worker, resource, placement } = await play(120);
      server!.close();
      server = await PlayedServer.open(suite.machine, placement, '/elsewhere');
      const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
      expect(recovery).toMatchObject({ adopted: false, scope: 'own-server', reason: 'other-home' });
    });

    it('is nobody’s when it gives no answer between its adoption and its first use, and is stopped before another starts (G2, G4)', async () => {
      const { worker, resource, placement } = await play(121);
      server!.answer = 'nothing';
      const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
      expect(recovery).toMatchObject({ adopted: false, scope: 'own-server', reason: 'timeout' });
      expect((await filesOf(resource, placement).launch.read())?.owner).toEqual(owner);
      const next = startInput(resource, 'sessions', { recovered: true, generation: placement.generation + 1 });
      expect(await worker.host.start(next)).toMatchObject({ kind: 'stop-first', living: true });
    });
  });

  it('that is not to survive its owner is shut down by the protocol, and its unit ends by itself (G6)', async () => {
    const worker = await suite.worker([withControl({ survive: false })]);
    const left = await leave(worker);
    const { resource, placement, place } = left;
    expect(await worker.host.start(startInput(resource, 'sessions'))).toMatchObject({
      kind: 'recover',
      plan: { survive: false },
    });
    await use(suite.machine, place, 'POST', '/sessions');
    const reclaimed = await worker.host.reclaimServer(recoverInput(resource, 'sessions'));
    expect(reclaimed).toEqual({
      recovery: {
        adopted: false,
        scope: 'no-server',
        reason: 'reclaimed',
        endpoint: placement.control!.endpoint,
        contactedAt: expect.any(Number) as number,
      },
    });
    await eventually(async () => (await processesOf(suite.machine, resource)).length === 0);
    expect(await readFile(join(expand(home, { resource }), '1.log'), 'utf8')).toMatch(
      /ends, the server ends: shutdown\n$/,
    );
    await worker.stopUntilProven(resource, placement);
    expect(await start(worker, resource)).toMatchObject({ kind: 'started' });
  });

  it('that is gone is unreachable, and whoever has its port since is a stranger (G4, G6)', async () => {
    const worker = await suite.worker([withControl({ recovery: { ...sessions.control!.recovery, timeoutMs: 300 } })]);
    const { resource, placement } = await leave(worker);
    worker.link.completion = 'unknown'; // an owner that is not there: its hold is kept, and with it the record
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await suite.machine.systemctl('kill', '--signal=SIGKILL', placement.unit);
    await eventually(async () => (await processesOf(suite.machine, resource)).length === 0);
    const { endpoint } = placement.control!;
    const adopt = async (): Promise<object> =>
      (await worker.host.adoptServer(recoverInput(resource, 'sessions'))).recovery;
    expect(await adopt()).toEqual({ adopted: false, scope: 'no-server', reason: 'unreachable', endpoint });

    const contacted = { adopted: false, scope: 'foreign-server', endpoint, contactedAt: expect.any(Number) as number };
    let behaviour: Behaviour = (socket) => void socket.end(answer(200, '{}'));
    await stranger((socket, request) => behaviour(socket, request), portOf(placement));
    expect(await adopt()).toEqual({ ...contacted, reason: 'not-the-protocol' });
    behaviour = () => undefined;
    expect(await adopt()).toEqual({ ...contacted, reason: 'timeout' });
  });

  describe('that is started', () => {
    it('listens on the configured port, or on the next free one of the range where a stranger has it (G6)', async () => {
      const listen = ports(100, 102);
      const worker = await suite.worker([withControl({ listen })]);
      const other = await stranger((socket) => void socket.end(answer(200, '{}')), firstOf(listen));
      const { placement, place } = await leave(worker);
      expect(placement.control!.endpoint).toEqual({ host: '127.0.0.1', port: firstOf(listen) + 1 });
      expect(other.connections()).toBe(0);
      expect((await identityOf(suite.machine, place)).endpoint).toEqual(placement.control!.endpoint);
    });

    it('shares its port with no other, also before it listens, and gives it back after proof (G3, G11)', async () => {
      const listen = ports(110, 111);
      const worker = await suite.worker([mute({ listen })]);
      const pair = await Promise.all([start(worker), start(worker)]);
      expect(pair.map((one) => portOf(placementOf(one))).sort()).toEqual([firstOf(listen), firstOf(listen) + 1]);

      const third = await start(worker);
      expect(third).toMatchObject({
        kind: 'blocked',
        reason: expect.stringContaining(`${firstOf(listen)}-${firstOf(listen) + 1}`) as string,
      });
      expect(await suite.filesOf(third.resource).generations()).toEqual([]);
      expect(await suite.loaded(third.resource)).toEqual([]);

      // Nothing listens there yet, so that the next worker has it from the files alone.
      await suite.end(worker);
      const next = await suite.worker([mute({ listen })]);
      expect(await start(next)).toMatchObject({ kind: 'blocked' });

      const [{ resource }] = pair;
      const placement = placementOf(pair[0]);
      await next.stopUntilProven(resource, placement);
      expect(portOf(placementOf(await start(next)))).toBe(portOf(placement));
    });

    it('listens on a unix socket, is healthy and is adopted there (G6)', async () => {
      const directory = join(suite.machine.runDirectory, 's');
      const worker = await suite.worker([withControl({ listen: { socket: `${directory}/\${resource}` } })]);
      await mkdir(join(suite.machine.root, directory, 'test'), { recursive: true });
      const { resource, placement, place, pid } = await leave(worker);
      expect(placement.control!.endpoint).toEqual<Endpoint>({ socket: `${directory}/${resource}` });
      const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
      expect(recovery).toMatchObject({ adopted: true, endpoint: placement.control!.endpoint });
      expect((await use(suite.machine, place, 'GET', '/sessions')).body).toMatchObject({ pid });
    });

    it('is not healthy where a stranger that answers 200 to everything has its port (G6, G8, G9)', async () => {
      const late = { environment: { SESSION_SERVER_START_DELAY_MS: '60000' } };
      const health = { ...sessions.control!.health, withinMs: 400 };
      const worker = await suite.worker([{ ...withControl({ health }), ...late }]);
      const started = await start(worker);
      const { resource } = started;
      const placement = placementOf(started);
      const wait = (): Promise<object> => worker.host.awaitServer({ resource, owner, placement });
      expect(await wait()).toEqual({
        healthy: false,
        reason: expect.stringMatching(/can't be reached.*for 400 ms$/) as string,
      });

      for (const body of ['{}', `{"alive":true,"leaseMs":60000,"x":"${WORDS}"}`]) {
        const other = await stranger((socket) => void socket.end(answer(200, body)), portOf(placement));
        const answered = await wait();
        expect(answered).toEqual({
          healthy: false,
          reason: expect.stringMatching(/another form.*for 400 ms$/) as string,
        });
        expect(other.requests.join('')).not.toMatch(/authorization/i);
        expectSilence(worker, answered);
        await other.close();
      }
      expect(await readFile(filesOf(resource, placement).controlRecord, 'utf8').catch(() => 'none')).toBe('none');
      expect(await worker.unit(placement.unit, 'InvocationID')).toEqual({ InvocationID: placement.invocation });
    });

    it('runs on where its record can’t be written, which is said, and is not started twice (G2)', async () => {
      const worker = await suite.worker([sessions]);
      const started = await start(worker);
      const { resource } = started;
      const placement = placementOf(started);
      await mkdir(filesOf(resource, placement).controlRecord);
      const healthy = await worker.host.awaitServer({ resource, owner, placement });
      expect(healthy).toEqual({ healthy: true, recordFailed: expect.stringContaining('EISDIR') as string });
      const { recovery } = await worker.host.adoptServer(recoverInput(resource, 'sessions'));
      expect(recovery).toEqual({ adopted: false, scope: 'own-server', reason: 'record-unreadable' });
      const again = await start(worker, resource);
      expect(again).toMatchObject({ kind: 'stop-first', living: true });
    });
  });
});
