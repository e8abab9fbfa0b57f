import { z } from 'zod';
import { ControlBounds, CREDENTIAL_NAME, effectiveLease, isLoopback, TOKEN } from '../control-server/protocol';
import type { ControlConfig } from './config';
import { checkListen, DEFAULT_ADDRESS, port, socket, toListen } from './endpoint-schema';
import {
  duration,
  durationText,
  flag,
  isMap,
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

const protocol = scalar((input) => {
  return input === 1 ? input : new Misfit('is no version of the ownership protocol', 'write 1, or leave it out');
});

/** No name, `localhost` included: what it stands for is up to the resolver, and the credential crosses this connection. */
const host = scalar((input) => {
  const remedy = `write ${DEFAULT_ADDRESS}, another 127.x.x.x or ::1`;
  const text = readText(input, remedy);
  if (text instanceof Misfit || isLoopback(text)) return text;
  return new Misfit('is no loopback address', remedy);
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
  .superRefine(checkListen, { when: () => true })
  .superRefine(checkLease, { when: () => true });

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

/** A checked section in the shape that the rest of the code reads. */
export function toControl(checked: z.output<typeof controlSchema>): ControlConfig {
  const { recovery: reading, health: asking } = checked;
  return {
    protocol: checked.protocol,
    listen: toListen(checked),
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
