import { readFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { CREDENTIAL, CREDENTIAL_NAME, TOKEN } from './protocol';
import type { Endpoint, LeaseSettings, ServerOwner } from './protocol';

/** What the host gives to the process of a control server. */
export interface OwnedEnvironment {
  /** `$OWNED_CONTROL_SOCKET`, or `$OWNED_CONTROL_HOST` and `$OWNED_CONTROL_PORT`. */
  readonly endpoint: Endpoint;
  /** `$OWNED_HOME`: the directory that it works in. */
  readonly home: string;
  /** `$OWNED_OWNER`, with `$OWNED_GENERATION` as the first epoch. */
  readonly owner: ServerOwner;
  /** `$OWNED_GENERATION`. */
  readonly generation: number;
  /** `$OWNED_LEASE_MS`, `$OWNED_IDLE_TIMEOUT_MS` and `$OWNED_BUSY_CAP_MS`, each of which may be absent. */
  readonly lease: LeaseSettings;
  /** `$INVOCATION_ID`, from systemd. */
  readonly invocation: string;
  /** Content of `$CREDENTIALS_DIRECTORY/ownership`. A secret: never log it. */
  readonly credential: string;
}

/** The environment is not what a host gives. The message names the variable and the remedy, and never a credential. */
export class OwnedEnvironmentError extends Error {
  override readonly name = 'OwnedEnvironmentError';
}

/** Reads what the host gave to this process. Rejects with an {@link OwnedEnvironmentError}. */
export async function readOwnedEnvironment(
  variables: Readonly<Record<string, string | undefined>> = process.env,
): Promise<OwnedEnvironment> {
  const generation = wholeNumber('OWNED_GENERATION', required('OWNED_GENERATION'));
  return {
    endpoint: readEndpoint(),
    home: absolute('OWNED_HOME', required('OWNED_HOME')),
    owner: { ownerId: matching('OWNED_OWNER', TOKEN, 'an id such as a Temporal run id'), epoch: generation },
    generation,
    lease: {
      leaseMs: duration('OWNED_LEASE_MS'),
      idleTimeoutMs: duration('OWNED_IDLE_TIMEOUT_MS'),
      busyCapMs: duration('OWNED_BUSY_CAP_MS'),
    },
    invocation: matching('INVOCATION_ID', /^[0-9a-f]{32}$/, '32 hex digits, as systemd sets it'),
    credential: await readCredential(absolute('CREDENTIALS_DIRECTORY', required('CREDENTIALS_DIRECTORY'))),
  };

  function readEndpoint(): Endpoint {
    const socket = variables.OWNED_CONTROL_SOCKET;
    if (!socket) {
      const host = required('OWNED_CONTROL_HOST', ' and OWNED_CONTROL_PORT, or OWNED_CONTROL_SOCKET');
      return { host, port: wholeNumber('OWNED_CONTROL_PORT', required('OWNED_CONTROL_PORT')) };
    }
    for (const other of ['OWNED_CONTROL_HOST', 'OWNED_CONTROL_PORT']) {
      if (variables[other])
        throw new OwnedEnvironmentError(`unset ${other} or OWNED_CONTROL_SOCKET: it is one of them`);
    }
    return { socket };
  }

  function required(name: string, alternative = ''): string {
    const value = variables[name];
    if (value) return value;
    throw new OwnedEnvironmentError(
      `${name} is not set: temporal-systemd sets it for a program with a control server; by hand, set ${name}${alternative}`,
    );
  }

  function matching(name: string, form: RegExp, what: string): string {
    const value = required(name);
    if (form.test(value)) return value;
    throw new OwnedEnvironmentError(`${name} is ${JSON.stringify(value)}: set it to ${what}`);
  }

  function duration(name: string): number | undefined {
    const value = variables[name];
    return value ? wholeNumber(name, value) : undefined;
  }
}

function wholeNumber(name: string, value: string): number {
  const number = Number(value);
  if (/^[0-9]+$/.test(value) && Number.isSafeInteger(number) && number > 0) return number;
  throw new OwnedEnvironmentError(`${name} is ${JSON.stringify(value)}: set it to a whole number above 0`);
}

function absolute(name: string, value: string): string {
  if (isAbsolute(value)) return value;
  throw new OwnedEnvironmentError(`${name} is ${JSON.stringify(value)}: set it to an absolute path`);
}

async function readCredential(directory: string): Promise<string> {
  const file = join(directory, CREDENTIAL_NAME);
  let text: string;
  try {
    text = (await readFile(file, 'utf8')).trim();
  } catch (cause) {
    const remedy = `load it into the unit (LoadCredential=${CREDENTIAL_NAME}:…)`;
    throw new OwnedEnvironmentError(`$CREDENTIALS_DIRECTORY has no readable "${CREDENTIAL_NAME}": ${remedy}`, {
      cause,
    });
  }
  if (CREDENTIAL.test(text)) return text;
  throw new OwnedEnvironmentError(`${file} holds no credential: write 32 random bytes in base64url, and nothing else`);
}
