import { mkdtemp, rm } from 'node:fs/promises';
import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** One message on its way through the proxy. */
export interface BusMessage {
  readonly from: 'client' | 'bus';
  readonly type: 'call' | 'reply' | 'error' | 'signal';
  /** The method or the signal; of an answer, the method that it answers. */
  readonly member: string;
}

/** `drop` loses a message, `hold` keeps it until {@link BusProxy.release}; those behind it pass. */
export type Fate = 'pass' | 'drop' | 'hold';

/** Stands between a client and a real bus, for the faults that a bus itself never shows on demand. */
export interface BusProxy {
  readonly busAddress: string;
  /** Decides about every message from now on, those of the connection's beginning included. */
  rule(decide: (message: BusMessage) => Fate): void;
  /** Resolves at the next message like this. */
  next(like: Partial<BusMessage>): Promise<BusMessage>;
  /** How many messages like this have come, whatever became of them. */
  count(like: Partial<BusMessage>): number;
  /** Sends on what was held, in its order. */
  release(): void;
  /** Breaks all connections, losing what was held. */
  cut(): void;
  end(): Promise<void>;
}

/**
 * Opens a proxy to the bus at `unix:path=PATH`; given as a function, it is asked for each connection. Its socket is in a new
 * folder in `beside`, which a client inside a host has to see as well.
 */
export async function openBusProxy(busAddress: string | (() => string), beside = tmpdir()): Promise<BusProxy> {
  const folder = await mkdtemp(join(beside, 'bus-proxy-'));
  const path = join(folder, 'bus');
  const target = (): string => (typeof busAddress === 'string' ? busAddress : busAddress()).replace(/^unix:path=/, '');
  const proxy = new Proxy_(target, path, folder);
  await new Promise<void>((resolve) => proxy.server.listen(path, resolve));
  return proxy;
}

class Proxy_ implements BusProxy {
  readonly server: Server;
  private decide: (message: BusMessage) => Fate = () => 'pass';
  private readonly seen: BusMessage[] = [];
  private readonly awaited = new Set<{ like: Partial<BusMessage>; resolve: (message: BusMessage) => void }>();
  private held: (() => void)[] = [];
  private readonly sockets = new Set<Socket>();

  constructor(
    private readonly target: () => string,
    private readonly path: string,
    private readonly folder: string,
  ) {
    this.server = createServer((client) => this.connect(client));
  }

  get busAddress(): string {
    return `unix:path=${this.path}`;
  }

  rule(decide: (message: BusMessage) => Fate): void {
    this.decide = decide;
  }

  next(like: Partial<BusMessage>): Promise<BusMessage> {
    return new Promise((resolve) => this.awaited.add({ like, resolve }));
  }

  count(like: Partial<BusMessage>): number {
    return this.seen.filter((message) => matches(message, like)).length;
  }

  release(): void {
    const held = this.held;
    this.held = [];
    for (const send of held) send();
  }

  cut(): void {
    this.held = [];
    for (const socket of this.sockets) socket.destroy();
  }

  async end(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
    await rm(this.folder, { recursive: true });
  }

  private connect(client: Socket): void {
    const bus = createConnection(this.target());
    const calls = new Map<number, string>();
    for (const [socket, peer] of [
      [client, bus],
      [bus, client],
    ] as const) {
      this.sockets.add(socket);
      socket.on('error', () => undefined); // 'close' follows
      socket.on('close', () => {
        this.sockets.delete(socket);
        peer.destroy();
      });
      const from = socket === client ? 'client' : 'bus';
      const frames = new Frames(from === 'client' ? 'BEGIN' : 'OK ');
      socket.on('data', (data) => {
        for (const frame of frames.push(data)) this.pass(frame, from, calls, peer);
      });
    }
  }

  private pass(frame: Buffer, from: BusMessage['from'], calls: Map<number, string>, to: Socket): void {
    const send = (): void => void (to.destroyed || to.write(frame));
    const header = headerOf(frame);
    if (!header) return send(); // a line of the authentication
    if (header.type === 'call' && from === 'client') calls.set(header.serial, header.member);
    const member = header.member || (calls.get(header.replySerial) ?? '');
    const message: BusMessage = { from, type: header.type, member };
    const fate = this.decide(message);
    if (fate === 'pass') send();
    if (fate === 'hold') this.held.push(send);
    this.seen.push(message);
    for (const one of this.awaited) {
      if (matches(message, one.like) && this.awaited.delete(one)) one.resolve(message);
    }
  }
}

function matches(message: BusMessage, like: Partial<BusMessage>): boolean {
  return Object.entries(like).every(([key, value]) => message[key as keyof BusMessage] === value);
}

/** Cuts a stream into lines, up to and including the one that ends the authentication, and then into messages. */
class Frames {
  private rest = Buffer.alloc(0);
  private authenticating = true;

  constructor(private readonly lastLine: string) {}

  *push(data: Buffer): Generator<Buffer> {
    this.rest = Buffer.concat([this.rest, data]);
    for (let length = this.frameLength(); length > 0 && this.rest.length >= length; length = this.frameLength()) {
      const frame = this.rest.subarray(0, length);
      this.rest = this.rest.subarray(length);
      if (this.authenticating && frame.toString('latin1').startsWith(this.lastLine)) this.authenticating = false;
      yield frame;
    }
  }

  private frameLength(): number {
    if (this.authenticating) return this.rest.indexOf('\n') + 1;
    return this.rest.length < 16 ? 0 : 16 + pad(this.rest.readUInt32LE(12), 8) + this.rest.readUInt32LE(4);
  }
}

/** What the proxy needs of a message's header (D-Bus specification, "Message Format"), little endian. */
function headerOf(
  frame: Buffer,
): { type: BusMessage['type']; serial: number; member: string; replySerial: number } | undefined {
  if (frame[0] !== 0x6c) return undefined;
  const type = (['call', 'reply', 'error', 'signal'] as const)[frame[1]! - 1]!;
  const header = { type, serial: frame.readUInt32LE(8), member: '', replySerial: 0 };
  const end = 16 + frame.readUInt32LE(12);
  for (let at = 16; at < end; at = pad(at, 8)) {
    const [code, signature] = [frame[at]!, String.fromCharCode(frame[at + 2]!)];
    at += 4; // the code, and the signature with its length and its NUL
    if (signature === 'g') {
      at += frame[at]! + 2;
    } else {
      const value = frame.readUInt32LE(at);
      if (code === 3) header.member = frame.toString('utf8', at + 4, at + 4 + value);
      if (code === 5) header.replySerial = value;
      at += signature === 'u' ? 4 : 4 + value + 1;
    }
  }
  return header;
}

function pad(length: number, to: number): number {
  return Math.ceil(length / to) * to;
}
