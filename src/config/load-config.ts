import { resolve } from 'node:path';
import type { Config, Program } from './config';
import { ConfigError, pathText, valueText } from './config-error';
import type { ConfigProblem } from './config-error';
import { readConfigFile, readDocument } from './document';
import { ineffectiveForUser } from './hardening';
import { managerOf, resolveHost, thisMachine } from './host-defaults';
import type { Machine } from './host-defaults';
import { toProgram } from './program-schema';
import { toProblems } from './problems';
import { Misfit } from './scalars';
import { fileSchema } from './schema';

/** The file that is read where none is named, in the current folder. */
export const DEFAULT_CONFIG_FILE = 'temporal.yaml';

/**
 * Loads `temporal.yaml`: checked as a whole, every default filled in. Throws {@link ConfigError} with everything that
 * is wrong at once, and nothing else.
 *
 * Reads files but connects to nothing; the connection's own files are read by `resolveConnection`.
 */
export function loadConfig(
  file: string = DEFAULT_CONFIG_FILE,
  env: NodeJS.ProcessEnv = process.env,
  machine: Machine = thisMachine,
): Config {
  return parseConfig(readConfigFile(file), resolve(file), env, machine);
}

/** {@link loadConfig} for text that was read already; `file` is for messages. */
export function parseConfig(text: string, file: string, env: NodeJS.ProcessEnv, machine: Machine): Config {
  const document = readDocument(text, file);
  const problems: ConfigProblem[] = [...document.problems];
  const report = (path: readonly string[], { message, remedy, shown }: Misfit): void => {
    problems.push({ file, path: pathText(path), value: shown ?? 'nothing', message, remedy, ...document.locate(path) });
  };
  const checked = fileSchema.safeParse(document.data);
  if (!checked.success) problems.push(...toProblems(checked.error.issues, document, file));
  const data = Object(document.data) as { host?: { systemd?: unknown } | null; programs?: unknown };
  if (managerOf(data.host?.systemd, machine) === 'user') reportForUserManager(data.programs, report);
  reportMemory(data, report);
  // Without the host's part nothing of `host` is used, and its defaults need not exist on this machine.
  const hosting = checked.data?.run.includes('host') ?? true;
  const host = checked.data && resolveHost(checked.data.host, env, machine, hosting ? report : () => undefined);
  if (!checked.success || !host || problems.length > 0) throw new ConfigError(problems);

  const { connection, taskQueue, run, programs } = checked.data;
  const loaded = Object.create(null) as Record<string, Program>;
  for (const [name, program] of Object.entries(programs)) loaded[name] = toProgram(name, program);
  return { file, connection, taskQueue, run, host, programs: loaded };
}

/** A host's memory is shared out by the limits of programs: one without would take none of it, and all. */
function reportMemory(
  data: { host?: unknown; programs?: unknown },
  report: (path: readonly string[], misfit: Misfit) => void,
): void {
  const { capacity } = Object(data.host) as { capacity?: unknown };
  if ((Object(capacity) as { memory?: unknown }).memory === undefined) return;
  for (const [name, program] of Object.entries(Object(data.programs) as object)) {
    const { limits } = Object(program) as { limits?: unknown };
    if ((Object(limits) as { memory?: unknown }).memory !== undefined) continue;
    const misfit = new Misfit(
      'is missing: host.capacity.memory is shared out by it',
      'say how much memory it may take',
    );
    report(['programs', name, 'limits', 'memory'], misfit);
  }
}

/** A user's manager has no privileges: what asks for them would fail every start, or be dropped without a word. */
function reportForUserManager(programs: unknown, report: (path: readonly string[], misfit: Misfit) => void): void {
  for (const [name, program] of Object.entries(Object(programs) as object)) {
    const { hardening, ...rest } = Object(program) as { hardening?: unknown; user?: unknown; group?: unknown };
    for (const key of ['user', 'group'] as const) {
      if (rest[key] === undefined) continue;
      const message = "can't be changed by a user's systemd";
      const remedy = "remove it, or run under the system's manager";
      report(['programs', name, key], new Misfit(message, remedy, valueText(rest[key])));
    }
    if (typeof hardening !== 'object' || hardening === null) continue;
    for (const property of Object.keys(hardening)) {
      const own = hardening as Record<string, unknown>;
      const misfit = ineffectiveForUser(property, own);
      if (!misfit) continue;
      report(
        ['programs', name, 'hardening', property],
        new Misfit(misfit.message, misfit.remedy, valueText(own[property])),
      );
    }
  }
}
