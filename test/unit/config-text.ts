import { ConfigError } from '../../src/config';
import type { Config, ConfigProblem, Program } from '../../src/config';
import { parseConfig } from '../../src/config/load-config';

/** A root worker, and what the environment of a logged-in user looks like. */
export const root = { uid: 0, machineIdFile: '/etc/machine-id' };
export const user = { uid: 1000, machineIdFile: '/etc/machine-id' };
export const userEnv = { HOME: '/home/ada', XDG_RUNTIME_DIR: '/run/user/1000' };

/** Loads a configuration from text; the host has an id, so that no test depends on the machine's. */
export function load(text: string, env: NodeJS.ProcessEnv = {}, machine = root): Config {
  return parseConfig(text, '/etc/temporal.yaml', env, machine);
}

/** The problems of a configuration that must not load. */
export function problemsOf(text: string, env: NodeJS.ProcessEnv = {}, machine = root): readonly ConfigProblem[] {
  return errorOf(text, env, machine).problems;
}

export function errorOf(text: string, env: NodeJS.ProcessEnv = {}, machine = root): ConfigError {
  try {
    load(text, env, machine);
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error(`loaded, though it should not:\n${text}`);
}

/** Text of a configuration with one program called `p`, made of YAML lines such as `lease: 1s`. */
export function programText(...lines: readonly string[]): string {
  const exec = lines.some((line) => line.startsWith('exec:')) ? [] : ['exec: [/bin/true]'];
  return ['host: { id: h }', 'programs:', '  p:', ...[...exec, ...lines].map((line) => `    ${line}`)].join('\n');
}

export function loadProgram(...lines: readonly string[]): Program {
  return load(programText(...lines)).programs.p!;
}
