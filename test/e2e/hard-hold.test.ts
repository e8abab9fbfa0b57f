import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  NoOwnerError,
  NotReadyError,
  OwnershipClient,
  RequestRefusedError,
  type LiveStatus,
  type OwnerHandle,
  type OwnReturn,
} from '../../src/client';
import type { Program } from '../../src/config';
import { program } from '../support/owned-host';
import { Scene } from '../support/scene';
import { openTestHost } from '../support/test-host';
import { until } from '../support/until';
import { runCli, writeConfig, type CliProcess } from '../support/worker-process';

/** The host of the worker processes; the worker of this process has another one, beside it on the same manager. */
const PROCESSES = 'h3';

/**
 * Says in its resource's file, in the folder `$0`, when it begins, and which earlier process of the resource lives then
 * (G2). Goes on with `text`.
 */
const witness = (text: string): string => `file="$0/witness-$(echo "$OWNED_RESOURCE" | tr / _)"; touch "$file"
  for pid in $(cut -d ' ' -f 2 "$file"); do ! kill -0 $pid 2>/dev/null || echo "beside $pid" >> "$file"; done
  echo "$OWNED_GENERATION $$" >> "$file"
  ${text}`;

describe('a hold in hard times', () => {
  let scene: Scene;
  let folder: string;
  let config: string;
  const processes = new Set<CliProcess>();
  /** Runs beside all the other tests of this file, on a host of its own that is left alone. */
  let slowRun: Promise<{ readonly handle: OwnerHandle; readonly waiting: LiveStatus; readonly unit: string }>;

  beforeAll(async () => {
    const testHost = await openTestHost();
    folder = testHost.stateDirectory;
    const shell = (text: string): [string, ...string[]] => ['/bin/sh', '-c', witness(text), folder];
    const here = (name: string, text: string, change: Partial<Program> = {}): Program =>
      program(name, shell(text), { leaseMs: 3000, ...change });
    // Of short sleeps: the SIGTERM to all may reach what the trap begins as well.
    const lingering = `trap 'for i in $(seq 40); do sleep 0.1; done; exit 0' TERM; while :; do sleep 0.1; done`;
    const slow = 'sleep 30; systemd-notify --ready; exec sleep 1000';
    scene = await Scene.open(
      [
        here('sleeper', 'exec sleep 1000', { leaseMs: 60_000 }),
        here('lingers', lingering, {
          stop: { signal: 'SIGTERM', timeoutMs: 10_000, killMode: 'control-group' },
        }),
        here('slow', slow, {
          ready: 'notify',
          stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
        }),
      ],
      { testHost },
    );
    const there = (lease: string, restart: unknown = 'no'): unknown => ({
      exec: shell('exec sleep 1000'),
      hardening: 'off',
      lease,
      restart,
    });
    config = await writeConfig(
      { server: scene.server, testHost, hostId: scene.hostId(PROCESSES) },
      {
        once: there('6s'),
        again: there('6s', { policy: 'always', backoff: '50ms' }),
        patient: there('30s'),
        pair: there('15s'),
      },
      { run: ['host'], prefix: `${testHost.unitPrefix}p` },
    );
    await scene.startWorker({
      run: ['host'],
      hostId: 'h2',
      stateDirectory: `${folder}/other`,
      unitPrefix: `${testHost.unitPrefix}b`,
    });
    slowRun = becomeReady();
    slowRun.catch(() => undefined); // awaited in its own test
  });
  afterEach(async () => {
    for (const worker of processes) {
      worker.kill('SIGKILL');
      worker.kill('SIGCONT'); // for the nsenter of a paused one
    }
    await Promise.all([...processes].map(({ ended }) => ended));
    processes.clear();
  });
  afterAll(async () => {
    await slowRun?.catch(() => undefined);
    await scene?.end();
  });

  /** A worker process for the host, as it would run there. */
  async function startWorker(): Promise<CliProcess> {
    const worker = runCli(scene.testHost, ['--config', config, 'worker']);
    processes.add(worker);
    await worker.line('serving the host');
    return worker;
  }

  /** Owns on the host of the worker processes; resolves to the unit once its owner holds it. */
  async function held(name: string, programName: string): Promise<{ handle: OwnerHandle; unit: string; pid: number }> {
    const { handle } = await scene.own(name, programName, {}, PROCESSES);
    const { unit } = await handle.ready();
    await scene.status(name, 'is held', ({ live }) => live !== undefined);
    return { handle, unit, pid: await scene.mainPid(unit) };
  }

  const over = (unit: string): Promise<true> =>
    until(`systemd has ended ${unit}`, async () => (await scene.mainPid(unit)) === 0 || undefined);

  const unreachable = (name: string): Promise<LiveStatus> =>
    scene.status(name, 'misses its host', ({ hostUnreachableSince }) => hostUnreachableSince !== undefined);

  /** What the processes of a resource have written, one line for each: all of them alone. */
  async function begun(name: string): Promise<readonly string[]> {
    const file = join(folder, `witness-${scene.resource(name).replaceAll('/', '_')}`);
    const lines = (await readFile(file, 'utf8')).trim().split('\n');
    expect(lines.filter((line) => line.startsWith('beside'))).toEqual([]);
    return lines;
  }

  async function becomeReady(): ReturnType<() => typeof slowRun> {
    const { handle } = await scene.own('slow', 'slow', {}, 'h2');
    const ready = handle.ready();
    const first = await scene.status('slow', 'has a lease', ({ live }) => live !== undefined);
    const waiting = await scene.status(
      'slow',
      'has lived for several leases',
      ({ live, ready: isReady }) => isReady || (live?.leaseUntil ?? 0) > first.live!.leaseUntil + 12_000,
    );
    return { handle, waiting, unit: (await ready).unit };
  }

  it('whose worker process is paused beyond the lease is over, and its owner learns it once that wakes up (G2, G7)', async () => {
    const worker = await startWorker();
    const [once, again] = await Promise.all([held('once', 'once'), held('again', 'again')]);
    worker.kill('SIGSTOP');
    await Promise.all([over(once.unit), over(again.unit)]);
    // Its owner can't know, and does not say that it does (G4).
    expect((await unreachable('once')).state).toBe('running');
    worker.kill('SIGCONT');

    expect(await once.handle.result()).toMatchObject({
      end: 'exited',
      exit: { wording: 'unowned', kind: 'unowned' },
      proof: { by: 'empty' },
    });
    const next = await scene.status('again', 'runs again', (s) => s.state === 'running' && s.restarts === 1);
    expect(next.lastExit).toMatchObject({ wording: 'unowned' });
    // Whatever the worker had still to do when it was paused is done by the end of another lease.
    const since = Date.now();
    const later = await scene.status('again', 'is renewed', ({ live }) => (live?.leaseUntil ?? 0) > since + 12_000);
    expect(later).toMatchObject({ state: 'running', restarts: 1, placement: next.placement });
    expect(await scene.living('again')).toEqual([next.placement!.unit]);
    expect(await begun('again')).toHaveLength(2);
    await again.handle.stop();
  });

  it('whose worker process is paused for less than the lease goes on with the same process (G7)', async () => {
    const worker = await startWorker();
    const { handle, unit, pid } = await held('patient', 'patient');
    worker.kill('SIGSTOP');
    await unreachable('patient'); // two thirds of the lease, in which nothing was heard of it
    worker.kill('SIGCONT');

    const since = Date.now();
    const status = await scene.status('patient', 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since);
    expect(status).toMatchObject({ state: 'running', restarts: 0, placement: { unit } });
    // Past the end of the lease that it had before.
    await scene.status('patient', 'lives on', ({ live }) => (live?.heartbeatAt ?? 0) > since + 10_000);
    expect(await scene.mainPid(unit)).toBe(pid);
    expect(await begun('patient')).toHaveLength(1);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', exit: { wording: 'signal 15' } });
  });

  it('that another worker process has taken over is not harmed by the paused one when it wakes up (G2, G11)', async () => {
    const paused = await startWorker();
    const { handle, unit } = await held('taken-over', 'again');
    paused.kill('SIGSTOP');
    await over(unit);
    await startWorker();
    // What the paused one's connection has taken from the queue since is lost until it times out, or done when it wakes up,
    // beside what the other one does.
    await scene.status('taken-over', 'is known to be over', (s) => s.state !== 'running' || s.restarts > 0);
    paused.kill('SIGCONT');

    const next = await scene.status('taken-over', 'runs again', (s) => s.state === 'running' && s.live !== undefined);
    const since = Date.now();
    const later = await scene.status(
      'taken-over',
      'is renewed',
      ({ live }) => (live?.leaseUntil ?? 0) > since + 12_000,
    );
    expect(later).toMatchObject({ state: 'running', restarts: next.restarts, placement: next.placement });
    expect(await scene.living('taken-over')).toEqual([next.placement!.unit]);
    expect((await begun('taken-over')).at(-1)).toContain(`${next.placement!.generation} `);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it('is shared by two worker processes of one host: one process for each resource, whoever is asked (G2, G5)', async () => {
    const workers = await Promise.all([startWorker(), startWorker()]);
    const names: string[] = [];
    const bothHaveStarted = (): boolean => workers.every(({ lines }) => lines.some(({ msg }) => msg === 'started'));
    while (!bothHaveStarted()) {
      const more = Array.from({ length: 8 }, (_, i) => `pair-${names.length + i}`);
      names.push(...more);
      await Promise.all(more.map((name) => held(name, 'pair')));
    }
    const handles = names.map((name) => scene.client.handle(scene.resource(name)));
    await Promise.all(handles.map((handle) => handle.restart()));
    const units = await Promise.all(
      names.map(async (name) => {
        const { placement } = await scene.status(name, 'runs again', (s) => s.state === 'running' && s.restarts === 1);
        return placement!.unit;
      }),
    );
    expect(await Promise.all(names.map((name) => scene.living(name)))).toEqual(units.map((unit) => [unit]));

    workers[0].kill('SIGKILL');
    const since = Date.now();
    // Past the end of every lease that the dead one had renewed: the other one has them all now.
    await Promise.all(
      names.map((name) => scene.status(name, 'is renewed', ({ live }) => (live?.heartbeatAt ?? 0) > since + 15_000)),
    );
    for (const [i, name] of names.entries()) {
      expect(await scene.living(name)).toEqual([units[i]]);
      expect(await begun(name)).toHaveLength(2);
    }
    for (const result of await Promise.all(handles.map((handle) => handle.stop())))
      expect(result).toMatchObject({ end: 'stopped', restarts: 1, proof: { by: 'empty' } });
  });

  it('that was terminated ends by its lease under the next owner’s eyes, which starts another after it (G2, G3)', async () => {
    const first = await scene.own('lingers', 'lingers');
    const placement = await first.handle.ready();
    await scene.status('lingers', 'is held', ({ live }) => live !== undefined);
    await scene.workflow('lingers').terminate('for the test');
    const state = async (): Promise<string> =>
      (await scene.testHost.systemctl('show', '--property=ActiveState', '--value', placement.unit)).trim();
    await until('its lease is over', async () => (await state()) === 'deactivating');

    const second = await scene.own('lingers', 'lingers');
    expect(second.outcome).toBe('started');
    const next = await second.handle.ready();
    expect(next.generation).toBeGreaterThan(placement.generation);
    expect(await scene.living('lingers')).toEqual([next.unit]);
    expect(await begun('lingers')).toHaveLength(2);
    expect(await second.handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it('answers every one of a thousand requests, or says why not, and lives on until it is told to stop (G1, G3)', async () => {
    // The server lets one question about the status wait for a busy owner; the others come again, later and later.
    const { client: connected, taskQueue } = scene.server;
    const client = new OwnershipClient(connected, { taskQueue, timeout: '1 min' });
    const own = (): Promise<OwnReturn> =>
      client.own({ resource: scene.resource('busy'), program: 'sleeper', host: scene.hostId(), parameters: {} });
    const former = (await own()).handle;
    await former.ready();
    const report = await former.stop();
    const { handle } = await own();
    await handle.ready();

    const refused = (type: new (...args: never[]) => Error, ask: Promise<unknown>): Promise<void> =>
      expect(ask).rejects.toBeInstanceOf(type);
    const requests: (() => Promise<unknown>)[] = [
      () => handle.restart({ reason: 'one of many' }),
      async () => expect((await handle.ready()).program).toBe('sleeper'),
      async () => expect((await handle.status()).ownerId).toBe(handle.ownerId),
      async () => expect((await own()).outcome).toBe('joined'),
      // What is meant for an owner that has ended gets that one's answer.
      async () => expect(await former.stop()).toEqual(report),
      () => refused(NoOwnerError, former.restart()),
      () => refused(NoOwnerError, former.release()),
      () => former.requestStop(),
      () => refused(RequestRefusedError, handle.restart({ reason: 5 as unknown as string })),
      () => refused(RequestRefusedError, handle.stop({ by: {} as unknown as string })),
    ];
    let answered = 0;
    // Ten callers with a hundred requests each, none of them in step with another.
    await Promise.all(
      Array.from({ length: 10 }, async (_, caller) => {
        for (let n = 0; n < 100; n++, answered++) await requests[(caller + n) % requests.length]!();
      }),
    );
    expect(answered).toBe(1000);

    const { placement } = await scene.status('busy', 'runs', (s) => s.state === 'running' && s.asked === undefined);
    expect(await scene.living('busy')).toEqual([placement!.unit]);
    const late = [handle.ready(), handle.restart(), handle.status(), own()];
    const stopped = handle.stop({ reason: 'enough' });
    for (const outcome of await Promise.allSettled(late)) {
      if (outcome.status === 'fulfilled') continue;
      const types = [NotReadyError, NoOwnerError, RequestRefusedError];
      expect(types.some((type) => outcome.reason instanceof type)).toBe(true);
    }
    expect(await stopped).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
    expect(await scene.living('busy')).toEqual([]);
    await begun('busy');
  });

  it('is renewed for a program that is ready after ten leases, which is the answer to those who wait (G7)', async () => {
    const { handle, waiting, unit } = await slowRun;
    expect(waiting).toMatchObject({ state: 'running', ready: false, restarts: 0 });
    expect(await handle.status()).toMatchObject({ state: 'running', ready: true, restarts: 0, placement: { unit } });
    expect(await begun('slow')).toHaveLength(1);
    expect(await handle.stop()).toMatchObject({ end: 'stopped', proof: { by: 'empty' } });
  });

  it('replays every history of this file', async () => {
    expect(await scene.replay()).toBeGreaterThan(10);
  });
});
