import { setTimeout as delay } from 'node:timers/promises';
import { Connection, type OnAnswer, type Request, type Signal } from './connection';
import { messageOf, UnsentError } from './errors';
import { BUS_NAME, BUS_PATH, MANAGER_INTERFACE, MANAGER_NAME, MANAGER_PATH, PROPERTIES_INTERFACE } from './names';
import { SystemdError } from './port';

/** Waits between two attempts to connect: doubled from the first to the last, each shortened at random by up to half. */
const RECONNECT_MS = { first: 50, last: 2000 };

/**
 * Few and wide: a rule per unit runs into the bus's limit (512) and each one costs the bus time at every signal.
 * Set by hand, as dbus-next never removes one of its own.
 */
const MATCH_RULES = [
  // First, so that no change of owner is missed once GetNameOwner was asked.
  `type='signal',sender='${BUS_NAME}',interface='${BUS_NAME}',member='NameOwnerChanged',arg0='${MANAGER_NAME}'`,
  ...['JobRemoved', 'UnitRemoved', 'Reloading'].map(
    (member) =>
      `type='signal',sender='${MANAGER_NAME}',interface='${MANAGER_INTERFACE}',path='${MANAGER_PATH}',member='${member}'`,
  ),
  // Of services alone, which every change of state tells on both of its interfaces: each renewal of each lease makes and
  // ends a timer, and what the bus would tell of those is more than of all else.
  `type='signal',sender='${MANAGER_NAME}',interface='${PROPERTIES_INTERFACE}',member='PropertiesChanged',` +
    `path_namespace='${MANAGER_PATH}/unit',arg0='${MANAGER_NAME}.Service'`,
];

/** Told what happens on the bus. None of these may throw: dbus-next would send the exception to the signal's sender. */
export interface BusEvents {
  /** A signal of the manager, and of nobody else. */
  readonly signal: (signal: Signal) => void;
  /** Subscribed to the manager: after each connection and each time that the manager has come (back) to the bus. */
  readonly ready: () => void;
  /** The connection is over: whatever was pending on it is unknown now. A new one is tried until {@link Bus.close}. */
  readonly lost: (reason: SystemdError) => void;
}

/** Where the adapter tells what it does; Temporal's `Logger` and pino's fit. */
export interface BusLog {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
}

interface Waiter {
  readonly label: string;
  readonly resolve: (connection: Connection) => void;
  readonly reject: (error: SystemdError) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * The way to a manager: one connection at a time, renewed for ever, with the manager's signals subscribed. A call waits
 * for it up to its own deadline and is sent once or not at all.
 */
export class Bus {
  /** Why there is no connection; `undefined` before the first failure. */
  failure: SystemdError | undefined;
  private connection: Connection | undefined;
  /** Unique name of the manager, `''` while it is off the bus. Signals from anyone else are forged. */
  private manager = '';
  /** The connection, once the manager's signals are subscribed on it. */
  private subscribed: Connection | undefined;
  private readonly waiters = new Set<Waiter>();
  private readonly closing = new AbortController();
  private readonly finished: Promise<void>;

  constructor(
    private readonly path: string,
    private readonly timeoutMs: number,
    private readonly events: BusEvents,
    private readonly log: BusLog,
  ) {
    this.finished = this.stayConnected();
  }

  /** Calls the manager or the bus. Rejects with a SystemdError by the deadline (`performance.now()`), whatever happens. */
  async call(request: Request, deadline: number, onAnswer?: OnAnswer): Promise<readonly unknown[]> {
    const connection = await this.whenUsable(request.label, deadline);
    return connection.call(request, deadline, onAnswer);
  }

  /** Resolves once calls can be sent. */
  whenUsable(label: string, deadline: number): Promise<Connection> {
    if (this.closing.signal.aborted) return Promise.reject(new UnsentError(label, 'the connection was closed'));
    if (this.subscribed?.isOpen) return Promise.resolve(this.subscribed);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () => {
          this.waiters.delete(waiter);
          const cause = this.failure;
          const why = cause?.message ?? `${MANAGER_NAME} is not on the bus at ${this.path}`;
          reject(new UnsentError(label, why, { cause }));
        },
        Math.max(0, deadline - performance.now()),
      );
      const waiter: Waiter = { label, resolve, reject, timer };
      this.waiters.add(waiter);
    });
  }

  /** Ends the connection for good. */
  async close(): Promise<void> {
    this.closing.abort();
    for (const { label, reject, timer } of this.waiters) {
      clearTimeout(timer);
      reject(new UnsentError(label, 'the connection was closed'));
    }
    this.waiters.clear();
    this.connection?.end(new SystemdError('unknown', 'the connection was closed'));
    await this.finished;
  }

  private async stayConnected(): Promise<void> {
    let failures = 0;
    while (!this.closing.signal.aborted) {
      const started = performance.now();
      const reason = await this.useOneConnection();
      if (this.closing.signal.aborted) return;
      if (reason.message !== this.failure?.message) this.log.warn(`systemd: ${reason.message}; reconnecting`);
      this.failure = reason;
      // Whatever took longer than the longest wait needs none on top; what fails at once waits longer each time.
      if (performance.now() - started > RECONNECT_MS.last) failures = 0;
      const wait = Math.min(RECONNECT_MS.first * 2 ** failures++, RECONNECT_MS.last) * (1 - Math.random() / 2);
      // Rejects only when it is aborted, by close().
      await delay(wait, undefined, { signal: this.closing.signal }).catch(() => undefined);
    }
  }

  /** Connects and subscribes. Resolves with the reason when the connection is over. Never rejects. */
  private async useOneConnection(): Promise<SystemdError> {
    const connection = new Connection(this.path, performance.now() + this.timeoutMs, (signal) => this.receive(signal));
    this.connection = connection;
    // The failure of a step ends the connection, if it is not the end of the connection that made it fail.
    this.subscribe(connection).catch((error: unknown) => connection.end(asSystemdError(error)));
    const reason = await connection.over;
    this.connection = this.subscribed = undefined;
    this.manager = '';
    this.events.lost(reason);
    return reason;
  }

  /** Sets the match rules and finds the manager. */
  private async subscribe(connection: Connection): Promise<void> {
    await connection.greeted;
    const deadline = performance.now() + this.timeoutMs;
    const rules = MATCH_RULES.map((rule) => connection.call(toBus('AddMatch', rule), deadline));
    const owner = connection
      .call(toBus('GetNameOwner', MANAGER_NAME), deadline, (reply) => {
        this.managerIs(connection, reply ? String(reply[0]) : '');
      })
      .catch((error: SystemdError) => {
        // An answer like any other: the manager is off the bus, and NameOwnerChanged will tell when it comes.
        if (error.dbusName !== 'org.freedesktop.DBus.Error.NameHasNoOwner') throw error;
      });
    await Promise.all([...rules, owner]);
  }

  private receive(signal: Signal): void {
    if (signal.sender === BUS_NAME && signal.member === 'NameOwnerChanged') {
      const [name, , owner] = signal.body;
      if (name === MANAGER_NAME && this.connection) this.managerIs(this.connection, String(owner));
    } else if (signal.sender === this.manager) {
      this.events.signal(signal);
    }
  }

  /** The manager has come to the bus or left it; daemon-reexec does one after the other. */
  private managerIs(connection: Connection, owner: string): void {
    if (owner === this.manager) return;
    this.manager = owner;
    this.subscribed = undefined;
    if (owner === '') return;
    this.subscribeToManager(connection).then(
      () => this.managerIsReady(connection, owner),
      (error: unknown) => {
        // Meanwhile the manager may have left again: then its next name is subscribed to.
        if (this.manager === owner) connection.end(asSystemdError(error));
      },
    );
  }

  /** Without Subscribe the manager sends no signals about units (org.freedesktop.systemd1(5)). */
  private async subscribeToManager(connection: Connection): Promise<void> {
    try {
      await connection.call(toManager('Subscribe', 'Subscribe'), performance.now() + this.timeoutMs);
    } catch (error) {
      // Subscriptions outlive a daemon-reexec, so this one may exist.
      if ((error as SystemdError).dbusName !== 'org.freedesktop.systemd1.AlreadySubscribed') throw error;
    }
  }

  private managerIsReady(connection: Connection, owner: string): void {
    if (!connection.isOpen || this.manager !== owner) return; // it was, a moment ago
    if (this.failure) this.log.info(`systemd: connected to the bus at ${this.path}`);
    this.failure = undefined;
    this.subscribed = connection;
    for (const { resolve, timer } of this.waiters) {
      clearTimeout(timer);
      resolve(connection);
    }
    this.waiters.clear();
    this.events.ready();
  }
}

/** A call to the manager's own object; spread it over to address a unit. */
export function toManager(label: string, member: string, signature = '', body: readonly unknown[] = []): Request {
  const to = { destination: MANAGER_NAME, path: MANAGER_PATH, interface: MANAGER_INTERFACE };
  return { label, ...to, member, signature, body };
}

function toBus(member: string, argument: string): Request {
  const label = `${member} ${argument}`;
  return {
    label,
    destination: BUS_NAME,
    path: BUS_PATH,
    interface: BUS_NAME,
    member,
    signature: 's',
    body: [argument],
  };
}

function asSystemdError(error: unknown): SystemdError {
  return error instanceof SystemdError ? error : new SystemdError('unknown', messageOf(error), { cause: error });
}
