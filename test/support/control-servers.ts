import { readFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import type { ControlConfig, Program } from '../../src/config';
import type { OwnerHandle, OwnedEndpoint } from '../../src/client';
import type { RecoverInput } from '../../src/contract/activities';
import type { Endpoint } from '../../src/contract/endpoint';
import type { Placement } from '../../src/contract/facts';
import { owner, program } from './owned-host';
import type { Scene } from './scene';
import type { TestHost } from './test-host';

const repository = join(__dirname, '../..');

/** The example server, from the sources. */
const example: Program['exec'] = [
  process.execPath,
  '--require',
  join(repository, 'test/support/typescript-hook.js'),
  join(repository, 'examples/control-server/server.js'),
];

/** The `control` section with every default, and a range of ports that no other test file has. */
export function control(home: string, change: Partial<ControlConfig> = {}): ControlConfig {
  return {
    protocol: 1,
    listen: { host: '127.0.0.1', ports: portsOf(process.env.JEST_WORKER_ID) },
    home,
    capabilities: ['sessions'],
    survive: true,
    onRefused: 'stop',
    onCancel: 'stop',
    lease: { leaseMs: 30_000 },
    recovery: { readTimeoutMs: 1_000, readRetries: 2, timeoutMs: 5_000 },
    health: { intervalMs: 50, timeoutMs: 1_000, withinMs: 10_000, require: false },
    ...change,
  };
}

function portsOf(worker = '1'): readonly [number, number] {
  const first = 20_000 + Number(worker) * 200;
  return [first, first + 199];
}

/** The example server, as a program. */
export function sessionServer(
  name: string,
  home: string,
  change: Partial<Program> = {},
  section: Partial<ControlConfig> = {},
): Program {
  return program(name, example, { control: control(home, section), ...change });
}

/** The same in words of `temporal.yaml`, for a worker process. */
export function writtenServer(home: string, lease: string): unknown {
  const { listen } = control(home);
  if (!('ports' in listen)) throw new Error('ports by default');
  const section = { port: listen.ports.join('-'), home, capabilities: ['sessions'], lease };
  return { exec: example, hardening: 'off', control: section };
}

/** What the next owner asks with for what an earlier one has left. */
export function recoverInput(resource: string, program: string, change: Partial<RecoverInput> = {}): RecoverInput {
  const next = { ...owner, ownerId: 'owner-2' };
  return { resource, program, parameters: {}, owner: next, epoch: Date.now(), ...change };
}

/** What a server answers to its users. */
export interface Reply {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

/** Where a server is, and what opens it. */
export type Place = Endpoint & { readonly credentialFile: string };

/** Someone on the server's host who uses it, with the credential as it is in its file now or with another one. */
export async function use(
  testHost: Pick<TestHost, 'root'>,
  endpoint: Place,
  method: string,
  path: string,
  credential?: string,
  sent?: object,
): Promise<Reply> {
  const bearer = credential ?? (await credentialIn(testHost, endpoint));
  const where = 'socket' in endpoint ? { socketPath: join(testHost.root, endpoint.socket) } : endpoint;
  return new Promise((resolve, reject) => {
    const call = request({ ...where, method, path, agent: false, headers: { authorization: `Bearer ${bearer}` } });
    call.on('error', reject);
    call.on('response', (response) => {
      let text = '';
      response.on('data', (chunk) => (text += String(chunk)));
      response.on('end', () => {
        resolve({ status: response.statusCode ?? 0, body: JSON.parse(text) as Record<string, unknown> });
      });
      response.on('error', reject);
    });
    call.end(sent && JSON.stringify(sent));
  });
}

export function credentialIn(
  { root }: Pick<TestHost, 'root'>,
  { credentialFile }: Pick<Place, 'credentialFile'>,
): Promise<string> {
  return readFile(join(root, credentialFile), 'utf8');
}

/** What a server says of itself: who owns it, and which process it is. */
export async function identityOf(testHost: Pick<TestHost, 'root'>, place: Place): Promise<Reply['body']> {
  return (await use(testHost, place, 'GET', `/v1/identity?challenge=${'0'.repeat(64)}`)).body;
}

/** A server that serves, and what it is now. */
export interface Serving {
  readonly handle: OwnerHandle;
  readonly endpoint: OwnedEndpoint & Place;
  readonly placement: Placement;
  /** Its process, as its host numbers it, and its own random id: the same server is who has both. */
  readonly self: { readonly pid: unknown; readonly serverId: unknown };
  readonly credential: string;
  /** Whom it takes for its owner. */
  readonly owner: { readonly ownerId: string; readonly epoch: number };
}

/** Owns a resource, and resolves once its server can be used. */
export async function own(scene: Scene, name: string, program: string, hostId?: string): Promise<Serving> {
  const { handle } = await scene.own(name, program, {}, hostId);
  return serving(scene, handle);
}

/** What serves for an owner, once it does. */
export async function serving({ testHost }: Scene, handle: OwnerHandle): Promise<Serving> {
  const placement = await handle.ready();
  const endpoint = (await handle.endpoint()) as OwnedEndpoint & Place; // of a control server
  const credential = await credentialIn(testHost, endpoint);
  const { body } = await use(testHost, endpoint, 'GET', '/sessions');
  const self = { pid: body.pid, serverId: body.serverId };
  const { owner: known } = await identityOf(testHost, endpoint);
  return { handle, endpoint, placement, self, credential, owner: known as Serving['owner'] };
}
