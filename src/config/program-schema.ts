import { z } from 'zod';
import { effectiveLease } from '../control-server/protocol';
import type { Hardening, HardeningValue, Program } from './config';
import {
  checkEndpoint,
  checkEndpointPlaceholder,
  endpointSchema,
  isEndpointPlaceholder,
  toListen,
} from './endpoint-schema';
import { checkControl, controlSchema, LONGEST_LEASE, toControl } from './control-schema';
import { placeholders, RESOURCE } from './expand';
import { hardeningProperties, readHardeningProperty } from './hardening';
import {
  cores,
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
} from './scalars';
import { scalar, size, whole } from './scalars';

/** Names of programs, and of hosts: they become parts of task queues, file names and workflow ids. */
export const NAME = /^[A-Za-z0-9._-]{1,64}$/;

/** Lease of a program that says none; a control server's is never shorter than what it lives by its own account. */
const DEFAULT_LEASE_MS = 300_000;

/** Variables that are this project's own word to the process, first of all `OWNED_GENERATION`. */
const RESERVED_VARIABLES = 'OWNED_';

/** Signals that ask a process to end. SIGKILL is no request, and the rest would stop it or do nothing. */
const STOP_SIGNALS = ['SIGTERM', 'SIGINT', 'SIGQUIT', 'SIGHUP', 'SIGABRT', 'SIGUSR1', 'SIGUSR2', 'SIGWINCH'] as const;

const SHELL = /(?:^|\/)(?:ba|da|k|mk|z|a)?sh$/;

const parameterName = scalar((input) => {
  const remedy = 'name it with a lower-case letter, then letters, digits and "_"';
  const text = readText(input, remedy);
  if (text instanceof Misfit) return text;
  if (text === RESOURCE) return new Misfit('is taken: "${resource}" is the resource itself', 'choose another name');
  return /^[a-z][A-Za-z0-9_]{0,63}$/.test(text) ? text : new Misfit('is no name of a parameter', remedy);
});

const pattern = scalar((input) => {
  const remedy = "write a regular expression for the whole value, e.g. '[0-9]{1,5}'";
  const text = readText(input, remedy);
  if (text instanceof Misfit) return text;
  try {
    new RegExp(text, 'u'); // alone first: 'a)|(b' is valid only inside the group below, and would undo the anchors
    return new RegExp(`^(?:${text})$`, 'u');
  } catch (error) {
    return new Misfit(`is no regular expression (${(error as Error).message.replace(/^.*: /s, '')})`, remedy);
  }
});

const exec = z.array(z.unknown()).transform((input, context) => {
  const remedy = 'write a list: the absolute path of the executable, then its arguments';
  const file = readPath(input[0]);
  if (file instanceof Misfit) context.addIssue(misfitIssue(file, [0]));
  input.slice(1).forEach((argument, index) => {
    const misfit = readArgument(argument, remedy);
    if (misfit) context.addIssue(misfitIssue(misfit, [index + 1]));
  });
  return input as [string, ...string[]];
});

/** Unlike other texts an argument may hold line breaks: a script of several lines is one. */
function readArgument(input: unknown, remedy: string): Misfit | undefined {
  if (typeof input !== 'string') return new Misfit('is not text', 'put it into quotes');
  if (/[^\P{Cc}\n\t]/u.test(input))
    return new Misfit('has a control character', 'remove it; line breaks and tabs may stay');
  return /\p{Surrogate}/u.test(input) ? new Misfit('is not valid Unicode', remedy) : undefined;
}

const account = matching(
  /^(?:[A-Za-z_][A-Za-z0-9_.-]{0,30}|[0-9]{1,10})$/,
  'write the name or the number of an account',
);

const variableName = scalar((input) => {
  const remedy = 'write a letter or "_", then letters, digits and "_"';
  const text = readText(input, remedy);
  if (text instanceof Misfit) return text;
  if (text.startsWith(RESERVED_VARIABLES))
    return new Misfit(`is reserved: ${RESERVED_VARIABLES}* is set by this project`, 'choose another name');
  return /^[A-Za-z_][A-Za-z0-9_]*$/.test(text) ? text : new Misfit('is no name of a variable', remedy);
});

const variable = scalar((input) => {
  // A number would arrive as YAML reads it, not as it was written: 010, 1e3.
  if (typeof input !== 'string') return new Misfit('is not text', 'put the value into quotes');
  if (/[^\P{Cc}\n\t]/u.test(input))
    return new Misfit('has a control character', 'remove it; line breaks and tabs may stay');
  return /\p{Surrogate}/u.test(input) ? new Misfit('is not valid Unicode', 'write text') : input;
});

const credentialName = matching(/^(?!\.{1,2}$)[A-Za-z0-9._-]{1,255}$/, 'use letters, digits, ".", "_" and "-"');

const hardening: z.ZodType<Hardening> = z.unknown().transform((input, context): Hardening => {
  if (input === 'strict' || input === 'off') return input;
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    const remedy = `write strict or off, or a map of ${hardeningProperties.join(', ')}`;
    context.addIssue(misfitIssue(new Misfit('is neither a known word nor a map of properties', remedy)));
    return z.NEVER;
  }
  const properties: Record<string, HardeningValue> = {};
  for (const [name, value] of Object.entries(input)) {
    const read = readHardeningProperty(name, value);
    if (read instanceof Misfit) context.addIssue(misfitIssue(read, [name]));
    else properties[name] = read;
  }
  return properties;
});

const killMode = scalar((input) => {
  const remedy = 'write control-group (all processes are asked to end) or mixed (the main one is, the rest is killed)';
  if (input === 'control-group' || input === 'mixed') return input;
  if (input !== 'process' && input !== 'none') return new Misfit('is no kill mode that is known here', remedy);
  return new Misfit('leaves processes behind by design, so that a stop could never be proven', remedy);
});

const restart = z.preprocess(
  (input) => (typeof input === 'string' ? { policy: input } : input),
  keys({
    policy: oneOf('no', 'on-failure', 'always'),
    backoff: duration('10ms', '1 day').default(1_000),
    maxBackoff: duration('10ms', '1 day').default(60_000),
    limit: whole(1, 1_000_000).default(5),
    resetAfter: duration('1s', '30 days').default(600_000),
  }).superRefine(({ backoff, maxBackoff }, context) => {
    if (backoff <= maxBackoff) return;
    context.addIssue(misfitIssue(new Misfit('is shorter than backoff', 'make it at least as long'), ['maxBackoff']));
  }),
);

/** A program as `temporal.yaml` has it. */
export const programSchema = keys({
  exec,
  parameters: entries(parameterName, pattern).prefault({}),
  user: account.optional(),
  group: account.optional(),
  workingDirectory: path({ resource: true }).optional(),
  environmentFiles: z.array(path({ resource: true, prefix: '-' })).default([]),
  environment: entries(variableName, variable).prefault({}),
  credentials: entries(credentialName, path({ resource: true })).prefault({}),
  limits: keys({
    memory: size().optional(),
    cpu: cores().optional(),
    tasks: whole(1, 4_194_304).optional(),
  }).prefault({}),
  hardening: hardening.default('strict'),
  stop: keys({
    signal: oneOf(...STOP_SIGNALS).default('SIGTERM'),
    timeout: duration('100ms', '5 min').default(10_000),
    killMode: killMode.default('control-group'),
  }).prefault({}),
  ready: oneOf('exec', 'notify').default('exec'),
  readyTimeout: duration('1s', '1 hour').default(90_000),
  lease: duration('3s', LONGEST_LEASE).optional(),
  restart: restart.prefault('no'),
  endpoint: endpointSchema.optional(),
  control: controlSchema.optional(),
})
  .superRefine(checkPlaceholders, { when: () => true }) // also when something else is wrong: all errors at once
  .superRefine(checkEndpoint, { when: () => true })
  .superRefine(checkControl, { when: () => true });

/** What the arguments ask for must be declared, and what is declared must be asked for. */
function checkPlaceholders(program: unknown, context: z.RefinementCtx<unknown>): void {
  const { exec: command, parameters, endpoint } = Object(program) as Readonly<Record<string, unknown>>;
  if (!Array.isArray(command) || typeof parameters !== 'object' || parameters === null) return;
  const used = new Set<string>();
  command.forEach((argument: unknown, index) => {
    if (index === 0 || typeof argument !== 'string') return;
    for (const name of placeholders(argument)) {
      const misfit = isEndpointPlaceholder(name)
        ? checkEndpointPlaceholder(name, endpoint, JSON.stringify(`\${${name}}`))
        : checkPlaceholder(name, parameters, isScript(command, index));
      if (misfit) context.addIssue(misfitIssue(misfit, ['exec', index]));
      used.add(name);
    }
  });
  if (command.some((argument) => typeof argument !== 'string')) return; // its text may be where one is used
  for (const name of Object.keys(parameters)) {
    if (used.has(name)) continue;
    const remedy = `write "\${${name}}" into an argument of exec, or remove it`;
    const misfit = new Misfit('is used by no argument: whoever fills it would change nothing', remedy);
    context.addIssue(misfitIssue(misfit, ['parameters', name]));
  }
}

function checkPlaceholder(name: string, parameters: object, inScript: boolean): Misfit | undefined {
  const shown = JSON.stringify(`\${${name}}`);
  if (name === RESOURCE) return undefined;
  if (!Object.hasOwn(parameters, name)) {
    const remedy = `declare it under parameters; a shell's own variable is written without braces`;
    return new Misfit('asks for a parameter that is not declared', remedy, shown);
  }
  if (!inScript) return undefined;
  // Starting a workflow must not be a shell on the host (G10), whatever the pattern lets through.
  const remedy = `write "$1" in the script and pass the parameter after it: ["-c", 'run "$1"', sh, ${shown}]`;
  return new Misfit("puts a parameter into a shell's script, where it would be read as code", remedy, shown);
}

/** Whether an argument is what a shell runs: the first word after `-c`, also behind env(1), busybox and the like. */
function isScript(command: readonly unknown[], index: number): boolean {
  const texts = command.map((argument) => (typeof argument === 'string' ? argument : ''));
  const shell = texts.findIndex((text) => SHELL.test(text));
  if (shell < 0) return false;
  const option = texts.findIndex((text, at) => at > shell && /^-[a-z]*c[a-z]*$/.test(text));
  return option >= 0 && index === texts.findIndex((text, at) => at > option && !text.startsWith('-'));
}

/** A checked program in the shape that the rest of the code reads. */
export function toProgram(name: string, checked: z.output<typeof programSchema>): Program {
  const { limits, stop, restart: policy } = checked;
  const control = checked.control && toControl(checked.control);
  return {
    name,
    exec: checked.exec,
    parameters: checked.parameters,
    user: checked.user,
    group: checked.group,
    workingDirectory: checked.workingDirectory,
    environmentFiles: checked.environmentFiles,
    environment: checked.environment,
    credentials: checked.credentials,
    limits: { memoryBytes: limits.memory, cpuCores: limits.cpu, tasks: limits.tasks },
    hardening: checked.hardening,
    stop: { signal: stop.signal, timeoutMs: stop.timeout, killMode: stop.killMode },
    ready: checked.ready,
    readyTimeoutMs: checked.readyTimeout,
    leaseMs: checked.lease ?? Math.max(DEFAULT_LEASE_MS, control ? effectiveLease(control.lease).atMostMs : 0),
    restart: {
      policy: policy.policy,
      backoffMs: policy.backoff,
      maxBackoffMs: policy.maxBackoff,
      limit: policy.limit,
      resetAfterMs: policy.resetAfter,
    },
    ...(checked.endpoint && { endpoint: toListen(checked.endpoint) }),
    ...(control && { control }),
  };
}
