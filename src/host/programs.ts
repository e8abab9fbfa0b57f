import { createHash } from 'node:crypto';
import type { Listen, Program } from '../config/config';
import { expand } from '../config/expand';
import { checkParameters } from '../config/programs';
import type { StartInput } from '../contract/activities';
import type { ProgramState } from '../contract/facts';
import { MAX_SOCKET_PATH } from '../control-server/protocol';
import type { LaunchRecord } from './generation-files';

/** The host has no such program, or the request does not fit it. Trying again can't help until temporal.yaml changes. */
export class ProgramRefusedError extends Error {
  override readonly name = 'ProgramRefusedError';
}

/** What a request says of the program that it is for. */
export type ProgramRequest = Pick<StartInput, 'resource' | 'program' | 'parameters'>;

/** The programs of this host's `temporal.yaml`, as it was read last (G10). What runs keeps the definition that it was started with. */
export class Programs {
  private byName: Readonly<Record<string, Program>> = {};
  private fingerprints: ReadonlyMap<string, string> = new Map();

  constructor(programs: Readonly<Record<string, Program>>) {
    this.replace(programs);
  }

  /** Takes the place of all that were there; returns the names of those that are new, other, or gone. */
  replace(programs: Readonly<Record<string, Program>>): readonly string[] {
    const former = this.fingerprints;
    this.byName = programs;
    this.fingerprints = new Map(Object.entries(programs).map(([name, program]) => [name, fingerprintOf(program)]));
    return [...new Set([...former.keys(), ...this.fingerprints.keys()])].filter(
      (name) => former.get(name) !== this.fingerprints.get(name),
    );
  }

  /** The program that is asked for. Throws {@link ProgramRefusedError} where there is none, or the request does not fit it. */
  find(request: ProgramRequest): Program {
    const program = Object.hasOwn(this.byName, request.program) ? this.byName[request.program] : undefined;
    if (!program) {
      const known = Object.keys(this.byName).join(', ') || 'none';
      throw new ProgramRefusedError(
        `no program "${request.program}" on this host (it has: ${known}); add it to temporal.yaml`,
      );
    }
    checkRequest(program, request);
    return program;
  }

  /** Stands for the definition of a program: the launch record keeps it, to tell later whether the file says something else. */
  fingerprint(program: Program): string {
    return fingerprintOf(program);
  }

  /** What has become of the definition that a process was started with. */
  stateOf({ definition, placement }: LaunchRecord): ProgramState {
    const now = this.fingerprints.get(placement.program);
    if (now === undefined) return 'removed';
    return definition === undefined || definition === now ? 'current' : 'changed';
  }
}

/** Where the processes of a program listen, control server or not. */
export function listenOf({ control, endpoint }: Program): Listen | undefined {
  return control?.listen ?? endpoint;
}

/** What the templates of a program are filled with. */
export function valuesOf({ parameters, resource }: ProgramRequest): Readonly<Record<string, string>> {
  return { ...parameters, resource };
}

function checkRequest(program: Program, request: ProgramRequest): void {
  const problems = checkParameters(program, request.parameters);
  if (problems.length > 0) {
    const text = problems.map((p) => `parameter ${p.parameter} ${p.value} ${p.message} (${p.remedy})`).join('; ');
    throw new ProgramRefusedError(`program "${program.name}": ${text}`);
  }
  const listen = listenOf(program);
  const socket = listen && 'socket' in listen ? expand(listen.socket, valuesOf(request)) : '';
  if (Buffer.byteLength(socket) > MAX_SOCKET_PATH) {
    throw new ProgramRefusedError(
      `program "${program.name}": its socket ${socket} is longer than the ${MAX_SOCKET_PATH} bytes of unix(7); ` +
        'give the socket a shorter path, or the resource a shorter name',
    );
  }
}

/** The same for the same definition, in whatever order its keys stand in the file. */
function fingerprintOf(program: Program): string {
  const text = JSON.stringify(program, (_key, value: unknown) => {
    if (value instanceof RegExp) return value.source;
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
  return createHash('sha256').update(text).digest('hex').slice(0, 32);
}
