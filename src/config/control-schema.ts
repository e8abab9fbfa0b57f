import { z } from 'zod';
import {
  ControlBounds,
  CREDENTIAL_NAME,
  effectiveLease,
  isLoopback,
  MAX_SOCKET_PATH,
  TOKEN,
} from '../control-server/protocol';
import type { ControlConfig } from './config';
import { expand } from './expand';
import {
  duration,
  durationText,
  flag,
  keys,
  matching,
  Misfit,
  misfitIssue,
  oneOf,
  readPath,
  readText,
  scalar,
  whole,
} from './scalars';

/** The longest lease there is, of a program and of a control server. */
export const LONGEST_LEASE = '7 days';
const LONGEST_LEASE_MS = 7 * 86_400_000;

const DEFAULT_HOST = '127.0.0.1';

const protocol = scalar((input) => {
  return input === 1 ? input : new Misfit('is no version of the ownership protocol', 'write 1, or leave it out');
});

const port = scalar((input): readonly [first: number, last: number] | Misfit => {
  const remedy = 'write a port from 1 to 65535, or a range with the lower one first, e.g. 7700-7799';
  const text = typeof input === 'number' ? String(input) : readText(input, remedy);
  if (text instanceof Misfit) return text;
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text);
  if (!match) return new Misfit('is neither a port nor a range of ports', remedy);
  const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
  if ([first, last].some((one) => one < 1 || one > 65_535)) return new Misfit('is not between 1 and 65535', remedy);
  return first <= last ? [first, last] : new Misfit('ends before it begins', remedy);
});

/** No name, `localhost` included: what it stands for is up to the resolver, and the credential crosses this connection. */
const host = scalar((input) => {
  const remedy = `write ${DEFAULT_HOST}, another 127.x.x.x or ::1`;
  const text = readText(input, remedy);
  if (text instanceof Misfit || isLoopback(text)) return text;
  return new Misfit('is no loopback address', remedy);
});

const socket = scalar((input) => {
  const text = readPath(input, { resource: true });
  // How long a resource is shows only when one is started.
  if (text instanceof Misfit || Buffer.byteLength(expand(text, { resource: '' })) <= MAX_SOCKET_PATH) return text;
  const remedy = `write a shorter path, which also has room for the resource where it names one`;
  return new Misfit(`is longer than the ${MAX_SOCKET_PATH} bytes that a unix socket's path can have`, remedy);
});

/** Writable for the server, whatever its hardening says of everything else. */
const home = scalar((input) => {
  const text = readPath(input, { resource: true });
  return text === '/' ? new Misfit('is the whole file system', 'name the directory that the server works in') : text;
});

const capabilities = z
  .array(matching(TOKEN, 'use 1 to 64 of A-Z, a-z, 0-9, ".", "_", ":" and "-", a letter or digit first'))
  .superRefine(
    (names: unknown, context) => {
      if (!Array.isArray(names)) return;
      const most = ControlBounds.capabilities;
      if (names.length > most)
        context.addIssue(misfitIssue(new Misfit(`has more than the ${most} that a server may name`, 'shorten it')));
      names.forEach((name: unknown, index) => {
        if (typeof name !== 'string' || names.indexOf(name) === index) return;
        context.addIssue(misfitIssue(new Misfit('is there twice', 'keep one of the two'), [index]));
      });
    },
    { when: () => true },
  );

const lease = (): z.ZodType<number> => duration('3s', LONGEST_LEASE);

/** A record that is read and a server that is asked for as long as these allow stay within the 2 minutes of an activity. */
const recovery = keys({
  readTimeout: duration('10ms', '5s').default(1_000),
  readRetries: whole(0, 5).default(2),
  timeout: duration('10ms', '1 min').default(5_000),
});

const health = keys({
  interval: duration('10ms', '1 min').default(250),
  timeout: duration('10ms', '1 min').default(1_000),
  within: duration('100ms', '10 min').default(10_000),
}).superRefine(
  (section: unknown, context) => {
    const given = Object(section) as Readonly<Record<string, unknown>>;
    for (const key of ['interval', 'timeout']) {
      const [ms, within] = [given[key], given.within];
      if (typeof ms !== 'number' || typeof within !== 'number' || ms <= within) continue;
      const remedy = `write at most "${durationText(within)}", or raise within`;
      context.addIssue(misfitIssue(new Misfit(`is longer than within, ${durationText(within)}`, remedy), [key]));
    }
  },
  { when: () => true },
);

/** The `control` section of a program. */
export const controlSchema = keys({
  protocol: protocol.default(1),
  port: port.optional(),
  socket: socket.optional(),
  host: host.optional(),
  home,
  capabilities: capabilities.default([]),
  survive: flag().default(true),
  onRefused: oneOf('stop', 'wait').default('stop'),
  onCancel: oneOf('stop', 'stop-if-started', 'leave').default('stop'),
  lease: lease().optional(),
  idleTimeout: duration('1s', LONGEST_LEASE).optional(),
  busyCap: lease().optional(),
  recovery: recovery.prefault({}),
  health: health.prefault({}),
  requireHealthy: flag().default(false),
})
  .superRefine(checkEndpoint, { when: () => true })
  .superRefine(checkLease, { when: () => true });

/** A port or a socket; an address belongs to a port. */
function checkEndpoint(section: unknown, context: z.RefinementCtx<unknown>): void {
  if (!isMap(section)) return;
  const { port: ports, socket: file, host: address } = section;
  if (ports === undefined && file === undefined) {
    const remedy = 'write "port: 7700-7799", or "socket:" with a path';
    context.addIssue(misfitIssue(new Misfit('is missing, and so is socket', remedy), ['port']));
  }
  if (file === undefined) return;
  if (ports !== undefined)
    context.addIssue(misfitIssue(new Misfit('is there besides port', 'keep one of the two'), ['socket']));
  else if (address !== undefined)
    context.addIssue(misfitIssue(new Misfit('is for a port, and this is a socket', 'remove it'), ['host']));
}

function checkLease(section: unknown, context: z.RefinementCtx<unknown>): void {
  if (!isMap(section)) return;
  if (section.busyCap !== undefined && section.idleTimeout === undefined) {
    const misfit = new Misfit('has no effect without idleTimeout', 'add idleTimeout, or remove it');
    context.addIssue(misfitIssue(misfit, ['busyCap']));
  }
  const atMostMs = livesAtMostMs(section);
  if (atMostMs === undefined || atMostMs <= LONGEST_LEASE_MS) return;
  // Only what it is by default gets this long.
  const message = `is missing: a busy server would live ${durationText(atMostMs)} without a renewal, longer than ${LONGEST_LEASE}`;
  context.addIssue(misfitIssue(new Misfit(message, `add it, with at most "${LONGEST_LEASE}"`), ['busyCap']));
}

/** What a program with a `control` section may not have besides it; also of one in which something else is wrong. */
export function checkControl(program: unknown, context: z.RefinementCtx<unknown>): void {
  const { control, ready, credentials, lease: written } = Object(program) as Readonly<Record<string, unknown>>;
  if (!isMap(control)) return;
  if (ready === 'notify') {
    const remedy = 'remove it; see control.health and control.requireHealthy';
    context.addIssue(
      misfitIssue(new Misfit("is not for a control server: it is ready once it's healthy", remedy), ['ready']),
    );
  }
  if (isMap(credentials) && Object.hasOwn(credentials, CREDENTIAL_NAME)) {
    const message = 'is reserved in a control server, for the credential that its host makes';
    context.addIssue(misfitIssue(new Misfit(message, 'choose another name'), ['credentials', CREDENTIAL_NAME]));
  }
  const atMostMs = livesAtMostMs(control);
  if (typeof written !== 'number' || atMostMs === undefined || atMostMs > LONGEST_LEASE_MS) return;
  if (written >= atMostMs) return;
  const atMost = durationText(atMostMs);
  const message = `is shorter than the ${atMost} that the server may live without a renewal by its control section`;
  const remedy = `write at least "${atMost}", leave it out, or shorten control.lease, control.idleTimeout or control.busyCap`;
  context.addIssue(misfitIssue(new Misfit(message, remedy), ['lease']));
}

/** How long a server may live without a renewal by its own account; undefined where a setting of it can't be used. */
function livesAtMostMs(section: Readonly<Record<string, unknown>>): number | undefined {
  const settings = [section.lease, section.idleTimeout, section.busyCap];
  if (!settings.every((one) => one === undefined || typeof one === 'number')) return undefined;
  const [leaseMs, idleTimeoutMs, busyCapMs] = settings;
  return effectiveLease({ leaseMs, idleTimeoutMs, busyCapMs }).atMostMs;
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A checked section in the shape that the rest of the code reads. */
export function toControl(checked: z.output<typeof controlSchema>): ControlConfig {
  const { port: ports, socket: file, recovery: reading, health: asking } = checked;
  return {
    protocol: checked.protocol,
    listen: file === undefined ? { host: checked.host ?? DEFAULT_HOST, ports: ports! } : { socket: file },
    home: checked.home,
    capabilities: checked.capabilities,
    survive: checked.survive,
    onRefused: checked.onRefused,
    onCancel: checked.onCancel,
    lease: { leaseMs: checked.lease, idleTimeoutMs: checked.idleTimeout, busyCapMs: checked.busyCap },
    recovery: {
      readTimeoutMs: reading.readTimeout,
      readRetries: reading.readRetries,
      timeoutMs: reading.timeout,
    },
    health: {
      intervalMs: asking.interval,
      timeoutMs: asking.timeout,
      withinMs: asking.within,
      require: checked.requireHealthy,
    },
  };
}
