import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ControlConfig, Program } from '../../src/config';
import { expand } from '../../src/config/expand';
import type { HoldInput } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import type { LeaseRecord } from '../../src/host/generation-files';
import { control, sessionServer, use, type Place } from '../support/control-servers';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { holdInput, owner, script } from '../support/owned-host';
import { PlayedServer } from '../support/played-server';

/** A timer may be that early, in ms, as two clocks have it. */
const EARLY = 50;

/** Shortest period that is renewed for, and how often that is. */
const SHORTEST = { lease: 3000, third: 1000 };

interface Held {
  readonly worker: SuiteHost;
  readonly resource: string;
  readonly placement: Placement;
}

interface Played extends Held {
  readonly server: PlayedServer;
}

interface Serving extends Held {
  readonly place: Place;
}

type Lease = ControlConfig['lease'];

describeOnPrivateHost('a control server’s lease', () => {
  const played: PlayedServer[] = [];
  const started: Held[] = [];
  // Before the suite closes the workers: the next one would go on with what is left, and tell it.
  afterEach(async () => {
    await Promise.all(started.splice(0).map((held) => held.worker.stopUntilProven(held.resource, held.placement)));
    played.splice(0).forEach((server) => server.close());
  });
  const suite = new HostSuite();
  let home: string;
  beforeAll(() => {
    home = join(suite.machine.stateDirectory, '${resource}');
  });

  const homeOf = (resource: string): string => expand(home, { resource });

  const playedProgram = (): Program => script('played', 'exec sleep 9999', { control: control(home) });

  /** Starts a unit whose server the test plays itself, and holds it. */
  async function play(change: Partial<HoldInput> = {}, on?: SuiteHost): Promise<Played> {
    const worker = on ?? (await suite.worker([playedProgram()]));
    const resource = suite.resource();
    const placement = await worker.start(resource, 'played', { recovered: true });
    const held = { worker, resource, placement };
    started.push(held);
    const server = await PlayedServer.open(suite.machine, placement);
    played.push(server);
    await hold(held, 1, change);
    return { ...held, server };
  }

  function hold({ worker, resource, placement }: Held, n: number, change: Partial<HoldInput> = {}): Promise<void> {
    return worker.host.hold(holdInput(resource, placement, change), `token ${n}`, n);
  }

  /** The example server with leases of its own and of systemd. */
  const sessions = (leaseMs: number, lease: Lease, environment = {}): Program =>
    sessionServer('sessions', home, { leaseMs, environment }, { lease });

  /** Starts the example server, and waits until it is healthy. */
  async function serve(program: Program, on?: SuiteHost): Promise<Serving> {
    const worker = on ?? (await suite.worker([program]));
    const resource = suite.resource();
    await mkdir(homeOf(resource), { recursive: true });
    const placement = await worker.start(resource, program.name, { recovered: true });
    const held = { worker, resource, placement };
    started.push(held);
    expect(await worker.host.awaitServer({ resource, owner, placement })).toEqual({ healthy: true });
    const { endpoint, credentialFile } = placement.control!;
    return { ...held, place: { ...endpoint, credentialFile } };
  }

  async function startSession({ place, resource }: Serving): Promise<string> {
    const { body } = await use(suite.machine, place, 'POST', '/sessions');
    return join(homeOf(resource), `${String(body.session)}.log`);
  }

  /** Between the n-th renewal and the next, in ms. */
  const gap = ({ renewals }: PlayedServer, n: number): number => renewals[n]! - renewals[n - 1]!;

  const leaseOf = async ({ resource, placement }: Held): Promise<LeaseRecord> =>
    (await suite.filesOf(resource).generation(placement.generation).lease.read())!;

  const events = ({ worker }: Held): string[] => worker.link.events.map(({ event }) => event.kind);

  it('is renewed over HTTP after an answered heartbeat alone, and systemd’s after that (G4, G7)', async () => {
    const held = await play({ ready: false });
    const { worker, server } = held;
    worker.link.answer = 'unknown';
    await worker.link.heard(3);
    expect(server.renewals).toEqual([]);
    expect((await leaseOf(held)).n).toBe(1);

    worker.link.answer = 'ok';
    server.answer = 'nothing';
    await server.renewal(2);
    expect((await leaseOf(held)).n).toBe(1); // heartbeats alone are not enough

    server.answer = 'renewed';
    await eventually(async () => (await leaseOf(held)).oldest >= 2);
  });

  it('is renewed at a third of what the server reports, whatever is configured, and as it changes (G7)', async () => {
    const { server } = await play();
    server.leaseMs = 6000; // configured: 30 s, and 60 s of systemd's
    await server.renewal(2);
    server.leaseMs = SHORTEST.lease;
    await server.renewal(4);
    expect(gap(server, 1)).toBeGreaterThan(2000 - EARLY);
    expect(gap(server, 3)).toBeGreaterThan(SHORTEST.third - EARLY);
    expect(gap(server, 3)).toBeLessThan(2000 - EARLY);
  });

  it('is renewed as for the shortest period where the server reports none, or nonsense (G7, G8)', async () => {
    const worker = await suite.worker([playedProgram()]);
    for (const reported of [undefined, 0, -60_000, 'soon']) {
      const { server } = await play({}, worker);
      server.leaseMs = reported;
    }
    await Promise.all(played.map((server) => server.renewal(3)));
    for (const server of played) {
      expect(gap(server, 2)).toBeGreaterThan(SHORTEST.third - EARLY);
      expect(gap(server, 2)).toBeLessThan(2 * SHORTEST.third);
    }
  });

  it('is told unavailable where the server gives no answer, and ready once it answers again (G4)', async () => {
    const held = await play();
    const { worker, server } = held;
    server.leaseMs = SHORTEST.lease;
    await eventually(async () => (await leaseOf(held)).n > 1); // it has answered this worker
    server.answer = 'nothing';
    const { reason } = await worker.link.event('unavailable');
    expect(reason).toMatch(/gave no whole answer in \d+ ms$/);
    const before = await leaseOf(held);
    await hold(held, 2, { ready: false });
    await server.renewal(server.renewals.length + 2);
    expect(events(held)).toEqual(['unavailable']); // once, and not with each try
    expect(await leaseOf(held)).toEqual(before);

    server.answer = 'renewed';
    await worker.link.event('ready');
    await hold(held, 3);
    await eventually(async () => (await leaseOf(held)).n > before.n);
    expect(events(held)).toEqual(['unavailable', 'ready']);
  });

  it('that is refused is told once, and renews nothing for an owner that knows (G7)', async () => {
    const held = await play();
    const { worker, server } = held;
    server.answer = 'refused';
    const { reason } = await worker.link.event('refused');
    expect(reason).toMatch(/answered status 409, stale-epoch$/);
    const { n } = await leaseOf(held);
    const renewals = server.renewals.length;
    await hold(held, 2, { lost: true });
    server.answer = 'renewed';
    const beats = worker.link.beats.length;
    await worker.link.heard(beats + 2);
    expect(server.renewals).toHaveLength(renewals);
    expect((await leaseOf(held)).n).toBe(n);
    expect(events(held)).toEqual(['refused']);
  });

  it('is not told refused before the server has ever answered: a stranger may be at its port (G8)', async () => {
    const held = await play({ ready: false });
    held.server.answer = 'refused';
    await held.server.renewal(2);
    await held.worker.link.heard(held.worker.link.beats.length + 1);
    expect(events(held)).toEqual([]);
    expect((await leaseOf(held)).n).toBe(1);
  });

  it('is refused by the server once somebody else has adopted it (G1)', async () => {
    const held = await serve(sessions(60_000, { leaseMs: 30_000 }));
    const other = { ownerId: 'somebody-else', epoch: held.placement.generation + 1 };
    expect((await use(suite.machine, held.place, 'POST', '/v1/adopt', undefined, other)).status).toBe(200);
    await hold(held, 1);
    expect((await held.worker.link.event('refused')).reason).toMatch(/stale-epoch/);
    expect((await leaseOf(held)).n).toBe(1);
  });

  it('that nobody renews ends a server by its own hand, a busy one at its cap and not before (G7)', async () => {
    const lease = { leaseMs: SHORTEST.lease };
    const plain = sessions(60_000, lease);
    const withWork = { ...sessions(60_000, { ...lease, idleTimeoutMs: 500, busyCapMs: 4000 }), name: 'with work' };
    const worker = await suite.worker([plain, withWork]);
    worker.link.answer = 'unknown';
    const logs = [];
    for (const program of [plain, withWork]) {
      const serving = await serve(program, worker);
      logs.push(await startSession(serving));
      await hold(serving, 1);
    }
    await eventually(async () => worker.link.events.length === 2);
    const last = async (log: string): Promise<string | undefined> =>
      (await readFile(log, 'utf8')).trim().split('\n').at(-1);
    expect(await last(logs[0]!)).toBe('ends, the server ends: lease');
    expect(await last(logs[1]!)).toBe('ends, the server ends: busy-cap');
    expect(worker.link.events.map(({ event }) => event.kind)).toEqual(['ended', 'ended']);
  });

  it('that is renewed keeps a busy server beyond its cap (G7)', async () => {
    const held = await serve(
      sessions(60_000, { leaseMs: SHORTEST.lease, idleTimeoutMs: 500, busyCapMs: SHORTEST.lease }),
    );
    await startSession(held);
    await hold(held, 1);
    await held.worker.link.heard(4);
    const { status } = await use(suite.machine, held.place, 'GET', '/sessions');
    expect(status).toBe(200);
    expect(events(held)).toEqual([]);
  });

  it('of systemd ends a server whose event loop hangs, although its owner answers (G7)', async () => {
    const held = await serve(sessions(4000, { leaseMs: SHORTEST.lease }, { SESSION_SERVER_HANG: '1' }));
    await hold(held, 1);
    await held.worker.link.heard(1);
    use(suite.machine, held.place, 'POST', '/hang').catch(() => undefined); // no answer, ever
    await held.worker.link.event('unavailable');
    await hold(held, 2, { ready: false });
    await held.worker.link.event('ended');
    const { exit } = await held.worker.stopUntilProven(held.resource, held.placement);
    expect(exit).toMatchObject({ kind: 'unowned', source: 'lease' });
  });
});
