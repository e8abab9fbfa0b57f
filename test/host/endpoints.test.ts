import { mkdtemp, mkdir, readdir, rm, writeFile } from 'node:fs/promises';
import { connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import type { Program } from '../../src/config';
import type { Endpoint } from '../../src/contract/endpoint';
import type { Placement } from '../../src/contract/facts';
import { NoPortError, Ports, type PortHolder } from '../../src/host/endpoint';
import { describeOnPrivateHost, eventually, HostSuite, type SuiteHost } from '../support/host-suite';
import { placementOf, program, startInput } from '../support/owned-host';

/** A range of ports that no other test file has, nor the kernel for outgoing connections. */
const FIRST = 24_000 + Number(process.env.JEST_WORKER_ID ?? 1) * 200;

/** Listens where its environment says, and answers with its arguments. */
const LISTENS = `
  const { OWNED_ENDPOINT_HOST: host, OWNED_ENDPOINT_PORT: port, OWNED_ENDPOINT_SOCKET: path } = process.env;
  require('node:net').createServer((socket) => socket.end(process.argv.slice(1).join(' '))).listen(path ? { path } : { host, port });
`;

const listening: Server[] = [];
/** A stranger that has a port already. */
async function stranger(port: number): Promise<void> {
  const server = createServer().listen(port, '127.0.0.1');
  listening.push(server);
  await new Promise((resolve) => server.once('listening', resolve));
}
afterEach(async () => {
  for (const server of listening.splice(0)) await new Promise((resolve) => server.close(resolve));
});

describeOnPrivateHost('a process with an endpoint', () => {
  const suite = new HostSuite();

  const node = (endpoint: Program['endpoint'], args: readonly string[] = [], change: Partial<Program> = {}): Program =>
    program('listens', [process.execPath, '-e', LISTENS, ...args], { endpoint, ...change });
  const onPorts = (from: number, to = from): NonNullable<Program['endpoint']> => {
    return { host: '127.0.0.1', ports: [FIRST + from, FIRST + to] };
  };
  /** Holds an endpoint and listens nowhere. */
  const mute = (endpoint: Program['endpoint']): Program => program('mute', ['/bin/sleep', '1000'], { endpoint });
  const portOf = ({ endpoint }: Placement): number => (endpoint && 'port' in endpoint ? endpoint.port : 0);
  /** Its first words, once it listens. */
  const hear = async (where: Endpoint): Promise<string> => {
    let text = '';
    await eventually(
      () =>
        new Promise((resolve) => {
          text = '';
          const socket = connect('socket' in where ? { path: join(suite.machine.root, where.socket) } : where);
          socket.on('data', (data) => (text += String(data)));
          socket.on('error', () => resolve(false));
          socket.on('close', (failed) => resolve(!failed));
        }),
    );
    return text;
  };
  const start = async (worker: SuiteHost, name: string): Promise<{ resource: string; placement: Placement }> => {
    const resource = suite.resource();
    return { resource, placement: await worker.start(resource, name) };
  };

  it('is told by environment and arguments where to listen, and its placement says so', async () => {
    const worker = await suite.worker([node(onPorts(0, 5), ['${resource}', '${endpoint.host}:${endpoint.port}'])]);
    const { resource, placement } = await start(worker, 'listens');
    expect(placement.endpoint).toEqual({ host: '127.0.0.1', port: FIRST });
    expect(await hear(placement.endpoint!)).toBe(`${resource} 127.0.0.1:${FIRST}`);
    await worker.stopUntilProven(resource, placement);
  });

  it('makes its socket where that is, also with all file systems read-only for it', async () => {
    const directory = join(suite.machine.runDirectory, 's');
    await mkdir(join(suite.machine.root, directory, 'test'), { recursive: true });
    const endpoint = { socket: `${directory}/\${resource}` };
    const worker = await suite.worker([node(endpoint, ['${endpoint.socket}'], { hardening: 'strict' })]);
    const { resource, placement } = await start(worker, 'listens');
    const socket = `${directory}/${resource}`;
    expect(placement.endpoint).toEqual({ socket });
    expect(await hear({ socket })).toBe(socket);
    await worker.stopUntilProven(resource, placement);
  });

  it('is refused where the resource makes its socket longer than a socket’s path can be', async () => {
    const worker = await suite.worker([mute({ socket: `/run/${'x'.repeat(80)}/\${resource}` })]);
    const starting = worker.host.start(startInput(`test/${'r'.repeat(30)}`, 'mute'));
    await expect(starting).rejects.toThrow(/longer than the 107 bytes.*shorter/);
  });

  it('gets the next port where a stranger listens, and nothing is started where none is left (G5, G11)', async () => {
    await stranger(FIRST + 10);
    const worker = await suite.worker([mute(onPorts(10, 11))]);
    const first = await start(worker, 'mute');
    expect(portOf(first.placement)).toBe(FIRST + 11);

    const none = suite.resource();
    expect(await worker.host.start(startInput(none, 'mute'))).toMatchObject({
      kind: 'blocked',
      reason: expect.stringContaining(`no port of ${FIRST + 10}-${FIRST + 11} is free`) as string,
    });
    expect(await suite.filesOf(none).generations()).toEqual([]);
    expect(await suite.loaded(none)).toEqual([]);
    await worker.stopUntilProven(first.resource, first.placement);
  });

  it('has a port that no other gets, from whichever worker of the host, until it is proven dead (G3, G11)', async () => {
    const endpoint = onPorts(20, 29); // not one more than they need
    const [one, other] = [await suite.worker([mute(endpoint)]), await suite.worker([mute(endpoint)])];
    const workers = Array.from({ length: 8 }, (_, n) => (n % 2 === 0 ? one : other));
    const started = await Promise.all(workers.map((worker) => start(worker, 'mute')));
    const ports = started.map(({ placement }) => portOf(placement));
    expect(new Set(ports).size).toBe(8);
    await suite.end(one);
    await suite.end(other);

    const worker = await suite.worker([mute(endpoint)]); // nothing listens: it has to know from the files
    const more = [await start(worker, 'mute'), await start(worker, 'mute')];
    expect(new Set([...ports, ...more.map(({ placement }) => portOf(placement))]).size).toBe(10);

    const { resource, placement } = started[3]!;
    await worker.stopUntilProven(resource, placement);
    expect(portOf(placementOf(await worker.host.start(startInput(resource, 'mute'))))).toBe(portOf(placement));
  });

  it('leaves nothing of its port behind', async () => {
    const worker = await suite.worker([mute(onPorts(40))]);
    const { resource, placement } = await start(worker, 'mute');
    const { root, runDirectory } = suite.machine;
    const ofPort = async (): Promise<readonly string[]> =>
      (await readdir(join(root, runDirectory, '.ports'))).filter((name) => name === String(FIRST + 40));
    expect(await ofPort()).toHaveLength(1);
    await worker.stopUntilProven(resource, placement);
    await eventually(async () => (await ofPort()).length === 0);
  });
});

describe('ports that two workers allocate at the same time', () => {
  let run: string;
  beforeEach(async () => void (run = await mkdtemp('/var/tmp/ports-')));
  afterEach(() => rm(run, { recursive: true }));

  /** A generation whose directory there is. */
  const living = async (resource: string): Promise<PortHolder> => {
    await mkdir(join(run, 'own', resource, 'g7'), { recursive: true });
    return { prefix: 'own', resource, generation: 7 };
  };

  it('are never the same (G11)', async () => {
    const range = [FIRST + 100, FIRST + 107] as const; // not one more than they need
    const workers = Array.from({ length: 4 }, () => new Ports(run));
    for (let round = 0; round < 20; round++) {
      const given = await Promise.all(
        workers.flatMap((ports, w) =>
          ['a', 'b'].map(async (name) => {
            const holder = await living(`${name}${w}x${round}`);
            return [holder, await ports.allocate(holder, '127.0.0.1', range)] as const;
          }),
        ),
      );
      expect(new Set(given.map(([, port]) => port)).size).toBe(8);
      for (const [holder, port] of given) await workers[0]!.free(holder, { host: '', port });
    }
    expect(await readdir(join(run, '.ports'))).toEqual([]);
  });

  it('are had by a generation until its directory has an end or is gone, and no longer (G3)', async () => {
    const ports = new Ports(run);
    const only = [FIRST + 150, FIRST + 150] as const;
    const first = await living('first');
    expect(await ports.allocate(first, '127.0.0.1', only)).toBe(only[0]);
    const second = await living('second');
    await expect(new Ports(run).allocate(second, '127.0.0.1', only)).rejects.toBeInstanceOf(NoPortError);

    await writeFile(join(run, 'own', 'first', 'g7', 'end.json'), '{}');
    expect(await ports.allocate(second, '127.0.0.1', only)).toBe(only[0]);
    await rm(join(run, 'own', 'second'), { recursive: true });
    expect(await ports.allocate(await living('third'), '127.0.0.1', only)).toBe(only[0]);
    expect(await readdir(join(run, '.ports', String(only[0])))).toEqual(['own.third.g7']);
    expect(await readdir(join(run, '.ports'))).toHaveLength(1);
  });
});
