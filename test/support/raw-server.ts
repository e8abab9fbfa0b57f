import { once } from 'node:events';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import type { Endpoint } from '../../src/control-server/protocol';

/** What a server does with a request, which it gets whole, as it came over the wire. */
export type Behaviour = (socket: Socket, request: string) => void;

/** A server that may answer anything. */
export interface RawServer {
  readonly endpoint: Endpoint;
  readonly port: number;
  /** Every request so far, raw. */
  readonly requests: readonly string[];
  /** Every byte so far, those of half a request too. */
  received(): string;
  /** Connections so far, those without a request too. */
  connections(): number;
  /** Resolves once every connection that is open now is closed. */
  idle(): Promise<void>;
  close(): Promise<void>;
}

/** Listens on a loopback port, one of its own unless it is given, or on the path of a socket. */
export async function openRawServer(behaviour: Behaviour, where: string | number = 0): Promise<RawServer> {
  const socket = typeof where === 'string' ? where : undefined;
  const requests: string[] = [];
  const open = new Set<Socket>();
  let connections = 0;
  let received = '';
  const server = createServer((connection) => {
    connections++;
    open.add(connection);
    connection.on('close', () => open.delete(connection));
    connection.on('error', () => undefined); // the client hangs up on what it has seen enough of
    let request = '';
    connection.setEncoding('latin1').on('data', (chunk) => {
      request += String(chunk);
      received += String(chunk);
      const [head, body] = request.split('\r\n\r\n', 2);
      if (body === undefined || body.length < Number(/^content-length: (\d+)$/im.exec(head!)?.[1] ?? 0)) return;
      const whole = request;
      request = ''; // the next one on this connection
      requests.push(whole);
      behaviour(connection, whole);
    });
  });
  server.listen(typeof where === 'string' ? { path: where } : { host: '127.0.0.1', port: where });
  await once(server, 'listening');
  const port = socket === undefined ? (server.address() as AddressInfo).port : 0;
  return {
    endpoint: socket === undefined ? { host: '127.0.0.1', port } : { socket },
    port,
    requests,
    received: () => received,
    connections: () => connections,
    idle: async () => {
      const closed = [...open].map((connection) => new Promise((resolve) => connection.once('close', resolve)));
      await Promise.all(closed);
    },
    close: async () => {
      for (const connection of open) connection.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** An HTTP answer, with its length. */
export function answer(status: number, body: string | Buffer, headers: Readonly<Record<string, string>> = {}): Buffer {
  const all = { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(body)), ...headers };
  const head = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.concat([Buffer.from(`HTTP/1.1 ${status} x\r\n${head.join('')}\r\n`), Buffer.from(body)]);
}
