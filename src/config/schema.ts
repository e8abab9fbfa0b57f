import { z } from 'zod';
import {
  duration,
  entries,
  keys,
  matching,
  Misfit,
  misfitIssue,
  oneOf,
  path,
  readPath,
  readText,
  scalar,
  size,
  whole,
} from './scalars';
import { NAME, programSchema } from './program-schema';

/** The form of a bus address that is taken; what separates addresses and options in D-Bus addresses is not. */
export const BUS_PATH = /^unix:path=(\/[^,;%]*)$/;

const address = matching(/^[^\s/]+$/, 'write host:port, e.g. "localhost:7233", without http:// before it');
const word = (what: string): z.ZodType<string> => matching(/^\S{1,200}$/, `write ${what} without spaces`);
const name = matching(NAME, 'use 1 to 64 of A-Z, a-z, 0-9, ".", "_" and "-"');

const bus = scalar((input) => {
  const remedy = 'write auto, system or user, or "unix:path=" with the absolute path of the bus\'s socket';
  const text = readText(input, remedy);
  if (text instanceof Misfit || ['auto', 'system', 'user'].includes(text)) return text;
  const socket = BUS_PATH.exec(text)?.[1];
  return socket !== undefined && !(readPath(socket) instanceof Misfit) ? text : new Misfit('is no bus', remedy);
});

const cgroupRoot = scalar((input) => {
  if (input === 'auto') return input;
  const text = readPath(input);
  return text instanceof Misfit ? new Misfit(text.message, 'write auto, or the mount point of cgroup2') : text;
});

const run = z.array(oneOf('workflows', 'host')).superRefine(
  (parts, context) => {
    const remedy = 'write [workflows, host], [workflows] or [host]';
    if (!Array.isArray(parts)) return;
    if (parts.length === 0) context.addIssue(misfitIssue(new Misfit('names nothing to run', remedy)));
    const words = parts.filter((part) => typeof part === 'string');
    if (new Set(words).size < words.length) context.addIssue(misfitIssue(new Misfit('names one part twice', remedy)));
  },
  { when: () => true },
);

const systemd = keys({
  bus: bus.default('auto'),
  manager: oneOf('system', 'user').optional(),
  cgroupRoot: cgroupRoot.default('auto'),
  unitPrefix: matching(
    /^[a-z][a-z0-9]{0,15}$/,
    'write 1 to 16 lower-case letters and digits, a letter first; no dash, it would nest slices (systemd.slice(5))',
  ).default('own'),
}).superRefine(
  (section, context) => {
    const { bus: given, manager } = Object(section) as { bus?: unknown; manager?: unknown };
    if (manager === undefined || typeof given !== 'string' || given.startsWith('unix:')) return;
    const misfit = new Misfit('is known already from the bus', 'remove it; it is for bus: "unix:path=…" alone');
    context.addIssue(misfitIssue(misfit, ['manager']));
  },
  { when: () => true },
);

/** `temporal.yaml` as it stands in the file. What is absent here gets its default in `resolveHost`. */
export const fileSchema = keys({
  connection: keys({
    address: address.optional(),
    namespace: word('the name of a namespace').optional(),
    profile: word('the name of a profile').optional(),
    tls: keys({
      serverName: word("the name in the server's certificate").optional(),
      serverRootCaFile: path().optional(),
      clientCertFile: path().optional(),
      clientKeyFile: path().optional(),
    }).optional(),
    apiKeyFile: path().optional(),
  }).prefault({}),
  taskQueue: word('the name of a task queue').default('temporal-systemd'),
  run: run.default(['workflows', 'host']),
  host: keys({
    id: name.optional(),
    stateDirectory: path().optional(),
    runDirectory: path().optional(),
    resync: duration('1s', '10 min').default(15_000),
    systemd: systemd.prefault({}),
    capacity: keys({ units: whole(1, 1_000_000).optional(), memory: size().optional() }).prefault({}),
  }).prefault({}),
  programs: entries(name, programSchema).prefault({}),
});

/** The `host` section, checked, without the defaults that depend on the machine. */
export type HostSection = z.output<typeof fileSchema>['host'];
