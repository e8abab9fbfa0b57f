import { isIP } from 'node:net';
import type { z } from 'zod';
import { MAX_SOCKET_PATH } from '../control-server/protocol';
import type { Listen } from './config';
import { expand, placeholders, RESOURCE } from './expand';
import { isMap, keys, Misfit, misfitIssue, readPath, readText, scalar } from './scalars';

/** Where a process listens that says no address. */
export const DEFAULT_ADDRESS = '127.0.0.1';

/** What stands before the names of an endpoint's parts in an argument: a dot is in no parameter's name. */
const ENDPOINT = 'endpoint.';

/** A port, or a range of ports. */
export const port = scalar((input): readonly [first: number, last: number] | Misfit => {
  const remedy = 'write a port from 1 to 65535, or a range with the lower one first, e.g. 7700-7799';
  const text = typeof input === 'number' ? String(input) : readText(input, remedy);
  if (text instanceof Misfit) return text;
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text);
  if (!match) return new Misfit('is neither a port nor a range of ports', remedy);
  const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
  if ([first, last].some((one) => one < 1 || one > 65_535)) return new Misfit('is not between 1 and 65535', remedy);
  return first <= last ? [first, last] : new Misfit('ends before it begins', remedy);
});

/** Path of a unix socket. */
export const socket = scalar((input) => {
  const text = readPath(input, { resource: true });
  // How long a resource is shows only when one is started.
  if (text instanceof Misfit || Buffer.byteLength(expand(text, { resource: '' })) <= MAX_SOCKET_PATH) return text;
  const remedy = `write a shorter path, which also has room for the resource where it names one`;
  return new Misfit(`is longer than the ${MAX_SOCKET_PATH} bytes that a unix socket's path can have`, remedy);
});

const address = scalar((input) => {
  const remedy = `write an address of this host, e.g. ${DEFAULT_ADDRESS}, 0.0.0.0 or ::1`;
  const text = readText(input, remedy);
  if (text instanceof Misfit || isIP(text) !== 0) return text;
  return new Misfit('is no IP address', remedy); // what a name stands for is up to the resolver
});

/** The `endpoint` section of a program. */
export const endpointSchema = keys({
  port: port.optional(),
  socket: socket.optional(),
  host: address.optional(),
})
  .superRefine(checkListen, { when: () => true })
  .superRefine(checkOwnSocket, { when: () => true });

/** A port or a socket; an address belongs to a port. */
export function checkListen(section: unknown, context: z.RefinementCtx<unknown>): void {
  if (!isMap(section)) return;
  const { port: ports, socket: file, host } = section;
  if (ports === undefined && file === undefined) {
    const remedy = 'write "port: 7700-7799", or "socket:" with a path';
    context.addIssue(misfitIssue(new Misfit('is missing, and so is socket', remedy), ['port']));
  }
  if (file === undefined) return;
  if (ports !== undefined)
    context.addIssue(misfitIssue(new Misfit('is there besides port', 'keep one of the two'), ['socket']));
  else if (host !== undefined)
    context.addIssue(misfitIssue(new Misfit('is for a port, and this is a socket', 'remove it'), ['host']));
}

/** Two resources with one socket would take it from each other. */
function checkOwnSocket(section: unknown, context: z.RefinementCtx<unknown>): void {
  if (!isMap(section) || typeof section.socket !== 'string') return;
  if (placeholders(section.socket).includes(RESOURCE)) return;
  const misfit = new Misfit('is the same for every resource', `put "\${${RESOURCE}}" into the path`);
  context.addIssue(misfitIssue(misfit, ['socket']));
}

/** A program can't have both. */
export function checkEndpoint(program: unknown, context: z.RefinementCtx<unknown>): void {
  const { endpoint, control } = Object(program) as Readonly<Record<string, unknown>>;
  if (endpoint === undefined || control === undefined) return;
  const misfit = new Misfit('is there besides control, which says where the server listens', 'keep one of the two');
  context.addIssue(misfitIssue(misfit, ['endpoint']));
}

/** Where a checked section says that a process listens. */
export function toListen(checked: {
  readonly port?: readonly [first: number, last: number];
  readonly socket?: string;
  readonly host?: string;
}): Listen {
  const { port: ports, socket: file, host = DEFAULT_ADDRESS } = checked;
  return file === undefined ? { host, ports: ports! } : { socket: file };
}

/** Whether a placeholder asks for a part of an endpoint. */
export function isEndpointPlaceholder(name: string): boolean {
  return name.startsWith(ENDPOINT);
}

/** What is wrong with a placeholder for a part of an endpoint. */
export function checkEndpointPlaceholder(name: string, endpoint: unknown, shown: string): Misfit | undefined {
  if (!isMap(endpoint)) {
    return new Misfit(
      'asks for an endpoint, which the program does not declare',
      'add endpoint: to the program',
      shown,
    );
  }
  const parts = endpoint.socket === undefined ? ['host', 'port'] : ['socket'];
  if (parts.includes(name.slice(ENDPOINT.length))) return undefined;
  const remedy = `write ${parts.map((part) => `"\${${ENDPOINT}${part}}"`).join(' or ')}`;
  return new Misfit('asks for a part that this endpoint does not have', remedy, shown);
}
