import type { Socket } from 'node:net';
import { Message, MessageFlag, MessageType, sessionBus, type MessageBus } from 'dbus-next';
import { answeredError, messageOf, UnsentError } from './errors';
import { BUS_NAME } from './names';
import { SystemdError } from './port';

/**
 * Messages without an answer on one connection. The system bus allows 128 and answers LimitsExceeded above; calls that
 * nobody waits for any longer count too, so a stopped PID 1 would soon take up all of them.
 */
const MAX_UNANSWERED = 64;

const LIMITS_EXCEEDED = 'org.freedesktop.DBus.Error.LimitsExceeded';

/** A method call. `label` names it and its unit in messages: `StopUnit db.service`. */
export interface Request {
  readonly label: string;
  readonly destination: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly signature?: string;
  readonly body?: readonly unknown[];
}

/** A signal as it came. The sender is filled in by the bus and can't be forged; all else can. */
export interface Signal {
  readonly sender: string;
  readonly path: string;
  readonly interface: string;
  readonly member: string;
  readonly body: readonly unknown[];
}

/**
 * Called in the order of the stream, before any signal that follows the answer: with the reply, or with `undefined`
 * when the call was answered with an error. Also for an answer that comes after the deadline; never, when none comes.
 */
export type OnAnswer = (reply: readonly unknown[] | undefined) => void;

interface Call {
  readonly request: Request;
  readonly onAnswer: OnAnswer | undefined;
  readonly resolve: (reply: readonly unknown[]) => void;
  readonly reject: (error: SystemdError) => void;
  timer?: NodeJS.Timeout;
}

/**
 * One connection to a message bus, on top of dbus-next's low-level messages alone: every call settles by its deadline,
 * the loss of the connection is told, and it can be ended. dbus-next's own `call()` does none of this: it knows no
 * deadline, and what waits when the bus goes away waits for ever.
 */
export class Connection {
  /** Resolves when Hello was answered; rejects with the reason when the connection is over before. */
  readonly greeted: Promise<void>;
  /** Resolves, with the reason, when the connection is over and its socket is gone. */
  readonly over: Promise<SystemdError>;
  private readonly bus: MessageBus;
  private readonly stream: Socket;
  private readonly queue = new Set<Call>();
  /** By serial. Calls whose deadline has passed stay until they are answered, for {@link MAX_UNANSWERED}. */
  private readonly unanswered = new Map<number, Call>();
  private isGreeted = false;
  private reason: SystemdError | undefined;

  /** Connects to the socket, authenticates as the user of this process (EXTERNAL) and says Hello. */
  constructor(
    private readonly path: string,
    deadline: number,
    private readonly onSignal: (signal: Signal) => void,
  ) {
    this.bus = sessionBus({
      // `unix:path=` would load the native module `usocket` wherever that is installed, and crash on newer Nodes.
      busAddress: `unix:socket=${path}`,
      // The other mechanisms throw outside of any promise when the bus refuses them.
      authMethods: ['EXTERNAL'],
    });
    // dbus-next tells nobody that its stream has ended; the stream itself is the only one to ask.
    this.stream = (this.bus as unknown as { _connection: { stream: Socket } })._connection.stream;
    this.over = new Promise((resolve) => {
      this.stream.on('close', () => resolve(this.end(this.closed())));
    });
    // Stays for as long as the bus object lives: an 'error' without a listener would end the process.
    this.bus.on('error', (error: unknown) => this.end(this.failed(error)));
    this.bus.on('message', (message) => this.receive(message));
    this.greeted = this.greet(deadline);
  }

  /** Sends a call, or queues it behind the unanswered ones. Rejects with {@link UnsentError} if it was never sent. */
  call(request: Request, deadline: number, onAnswer?: OnAnswer): Promise<readonly unknown[]> {
    return new Promise((resolve, reject) => {
      if (this.reason) return reject(new UnsentError(request.label, this.reason.message, { cause: this.reason }));
      const call: Call = { request, onAnswer, resolve, reject };
      // One turn later: a process that was paused finds its timers due and the answers unread in the socket.
      const expire = () => setImmediate(() => this.expire(call));
      call.timer = setTimeout(expire, Math.max(0, deadline - performance.now()));
      this.queue.add(call);
      this.sendQueued();
    });
  }

  /** Whether calls can still be sent. */
  get isOpen(): boolean {
    return this.reason === undefined;
  }

  /**
   * Ends the connection: every call rejects, those that were sent with an unknown outcome. Returns the reason why it
   * ended, which is the first one.
   */
  end(reason: SystemdError): SystemdError {
    if (this.reason) return this.reason;
    this.reason = reason;
    this.stream.destroy();
    for (const call of this.unanswered.values()) {
      const message = `${call.request.label}: sent, but not answered: ${reason.message}`;
      settle(call).reject(new SystemdError('unknown', message, { cause: reason }));
    }
    for (const call of this.queue) {
      settle(call).reject(new UnsentError(call.request.label, reason.message, { cause: reason }));
    }
    this.unanswered.clear();
    this.queue.clear();
    return reason;
  }

  private async greet(deadline: number): Promise<void> {
    const late = () => this.end(new SystemdError('unknown', `the bus at ${this.path} did not answer in time`));
    const timer = setTimeout(late, Math.max(0, deadline - performance.now()));
    const connected = new Promise<void>((resolve) => this.bus.on('connect', resolve));
    const reason = await Promise.race([connected, this.over]);
    clearTimeout(timer);
    if (reason) throw reason;
    this.isGreeted = true;
  }

  private sendQueued(): void {
    for (const call of this.queue) {
      if (this.unanswered.size >= MAX_UNANSWERED || !this.isOpen) return;
      if (!this.stream.writable) return void this.end(this.closed());
      // What is asked in one turn goes out in one piece: each write is a system call, and most calls come in groups.
      if (this.stream.writableCorked === 0) {
        this.stream.cork();
        process.nextTick(() => this.stream.uncork());
      }
      this.queue.delete(call);
      const serial = this.bus.newSerial();
      this.unanswered.set(serial, call);
      try {
        this.bus.send(messageOfCall(call.request, serial));
      } catch (cause) {
        // The values do not fit their signatures; nothing was written.
        this.unanswered.delete(serial);
        const { label } = call.request;
        settle(call).reject(new SystemdError('bad-unit', `${label}: not sent: ${messageOf(cause)}`, { cause }));
        call.onAnswer?.(undefined);
      }
    }
  }

  private receive(message: Message): void {
    if (!this.isGreeted && message.type === MessageType.ERROR) return this.helloRefused(message);
    if (this.reason) return; // read in one piece with what ended the connection
    switch (message.type) {
      case MessageType.SIGNAL:
        return this.onSignal(message);
      case MessageType.METHOD_RETURN:
      case MessageType.ERROR:
        return this.answer(message);
      default: // a call to us, e.g. Peer.Ping, which dbus-next answers
    }
  }

  private answer(message: Message): void {
    const serial = Number(message.replySerial);
    const call = this.unanswered.get(serial);
    if (!call) return; // Hello's
    this.unanswered.delete(serial);
    const { label } = call.request;
    if (message.type === MessageType.METHOD_RETURN) settle(call).resolve(message.body);
    else settle(call).reject(answeredError(label, message.errorName, textOf(message)));
    call.onAnswer?.(message.type === MessageType.METHOD_RETURN ? message.body : undefined);
    // The bus's own limits are never reached with the few rules and calls above: something is wrong, so begin anew.
    if (message.errorName === LIMITS_EXCEEDED && message.sender === BUS_NAME) {
      this.end(answeredError(label, message.errorName, textOf(message)));
    }
    this.sendQueued();
  }

  /** dbus-next says Hello itself, and makes of a refusal (too many connections) a rejection that ends the process. */
  private helloRefused(message: Message): void {
    message.replySerial = '0'; // the answer to nothing: dbus-next drops it
    this.end(answeredError('Hello', message.errorName, textOf(message)));
  }

  private expire(call: Call): void {
    const { label } = call.request;
    if (this.queue.delete(call)) {
      call.reject(new UnsentError(label, `${MAX_UNANSWERED} earlier calls were not answered in time`));
    } else {
      call.reject(new SystemdError('unknown', `${label}: sent, but not answered in time; it may still take effect`));
    }
  }

  private closed(cause?: unknown): SystemdError {
    if (this.isGreeted) return new SystemdError('unknown', `the bus at ${this.path} closed the connection`, { cause });
    return new SystemdError(
      'refused',
      `the bus at ${this.path} closed the connection before it answered Hello. A user's bus accepts that user alone; ` +
        `this process runs as uid ${process.getuid?.()}`,
      { cause },
    );
  }

  private failed(cause: unknown): SystemdError {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === 'EPIPE' || code === 'ECONNRESET') return this.closed(cause);
    const message = `bus at ${this.path}: ${messageOf(cause)}`;
    if (code !== 'EACCES' && !message.includes('authentication'))
      return new SystemdError('unknown', message, { cause });
    const remedy = `the bus must accept uid ${process.getuid?.()}, which this process runs as`;
    return new SystemdError('refused', `${message}; ${remedy}`, { cause });
  }
}

function settle(call: Call): Call {
  clearTimeout(call.timer);
  return call;
}

function messageOfCall(request: Request, serial: number): Message {
  const { destination, path, member, signature = '', body = [] } = request;
  return new Message({
    type: MessageType.METHOD_CALL,
    // A manager that is off the bus must not be "activated": the bus would only wait for a service that can't start.
    flags: MessageFlag.NO_AUTO_START,
    serial,
    destination,
    path,
    interface: request.interface,
    member,
    signature,
    body: [...body],
  });
}

function textOf(message: Message): string {
  const text: unknown = message.body[0];
  return typeof text === 'string' ? text : '';
}
