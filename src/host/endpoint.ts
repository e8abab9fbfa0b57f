import { mkdir, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import type { Listen } from '../config/config';
import { expand } from '../config/expand';
import type { Endpoint } from '../contract/endpoint';
import { escapeResource } from '../contract/names';
import { entriesIfThere, makeDirectory } from './files';

/** No port of a program's range is free. */
export class NoPortError extends Error {
  override readonly name = 'NoPortError';
}

/** A generation, as the one that a port is allocated to. */
export interface PortHolder {
  readonly prefix: string;
  readonly resource: string;
  readonly generation: number;
}

/** In the run directory, beside the directories of the prefixes: a dot is in no prefix. */
const PORTS = '.ports';

/**
 * The ports that are allocated to generations, by all workers of a run directory: one directory for each port, with one
 * empty file that is named like the generation which has it.
 *
 * - A port is taken by renaming a directory with that file to the port's name, which fails where there is one with a file in
 *   it already (rename(2)). So no two generations get the same port, whoever else allocates at the same time.
 * - A generation has its port until it is proven dead: until its own directory has an end, or is gone. Then its file is
 *   removed by its name, which no other generation ever has, and the directory only where it is empty.
 *
 * What other programs of the host listen on is seen by binding it. Between that and the process's own bind a stranger may be
 * faster; then the process fails, as it would with a port of its own choice.
 */
export class Ports {
  private readonly directory: string;

  /** `runDirectory` as seen from here. */
  constructor(private readonly runDirectory: string) {
    this.directory = join(runDirectory, PORTS);
  }

  /** Allocates the first free port of a range. Rejects with {@link NoPortError} where there is none. */
  async allocate(holder: PortHolder, host: string, [first, last]: readonly [number, number]): Promise<number> {
    await makeDirectory(this.directory, 0o711);
    const mine = join(this.directoryOf(nameOf(holder)), 'port');
    await mkdir(mine);
    try {
      await writeFile(join(mine, nameOf(holder)), '', { mode: 0o600 });
      for (let port = first; port <= last; port++) {
        if (!(await this.take(port, mine)) && !((await this.clear(port)) && (await this.take(port, mine)))) continue;
        if (await isFree(host, port)) return port; // not before it is taken: others would see it bound by this very look
        await rename(join(this.directory, String(port)), mine);
      }
    } finally {
      await rm(mine, { recursive: true, force: true }); // gone already where it has become a port's
    }
    throw new NoPortError(`no port of ${first === last ? first : `${first}-${last}`} is free on ${host}`);
  }

  /** Frees the port of a generation that is proven dead, or was never started. */
  async free(holder: PortHolder, endpoint: Endpoint | undefined): Promise<void> {
    if (endpoint && 'port' in endpoint) await this.remove(endpoint.port, nameOf(holder));
  }

  private async take(port: number, mine: string): Promise<boolean> {
    try {
      await rename(mine, join(this.directory, String(port)));
      return true;
    } catch (error) {
      if (isCode(error, 'ENOTEMPTY', 'EEXIST')) return false;
      throw error;
    }
  }

  /** Removes what is left of those that have this port no more; returns whether nobody has it. */
  private async clear(port: number): Promise<boolean> {
    for (const name of (await entriesIfThere(join(this.directory, String(port)))) ?? []) {
      if (await this.lives(name)) return false;
      await this.remove(port, name);
    }
    return true;
  }

  private async lives(name: string): Promise<boolean> {
    if (name.split('.').length !== 3) return true; // not of this project: whoever made it may mean it
    const entries = await entriesIfThere(this.directoryOf(name));
    return entries !== undefined && !entries.includes('end.json');
  }

  /** The directory of the generation that a file is named like. */
  private directoryOf(name: string): string {
    return join(this.runDirectory, ...name.split('.'));
  }

  private async remove(port: number, name: string): Promise<void> {
    const directory = join(this.directory, String(port));
    await rm(join(directory, name), { force: true });
    try {
      await rmdir(directory);
    } catch (error) {
      if (!isCode(error, 'ENOTEMPTY', 'EEXIST', 'ENOENT')) throw error; // another generation has the port by now
    }
  }
}

/** Chooses where the process of a generation listens. Rejects with {@link NoPortError}. */
export async function allocateEndpoint(
  listen: Listen,
  values: Readonly<Record<string, string>>,
  ports: Ports,
  holder: PortHolder,
): Promise<Endpoint> {
  if ('socket' in listen) return { socket: expand(listen.socket, values) };
  return { host: listen.host, port: await ports.allocate(holder, listen.host, listen.ports) };
}

/** What the arguments of a program with an endpoint are filled with. */
export function endpointValues(endpoint: Endpoint): Readonly<Record<string, string>> {
  if ('socket' in endpoint) return { 'endpoint.socket': endpoint.socket };
  return { 'endpoint.host': endpoint.host, 'endpoint.port': String(endpoint.port) };
}

/** Variables that tell a program where to listen. */
export function endpointEnvironment(endpoint: Endpoint): Readonly<Record<string, string>> {
  if ('socket' in endpoint) return { OWNED_ENDPOINT_SOCKET: endpoint.socket };
  return { OWNED_ENDPOINT_HOST: endpoint.host, OWNED_ENDPOINT_PORT: String(endpoint.port) };
}

function nameOf({ prefix, resource, generation }: PortHolder): string {
  return `${prefix}.${escapeResource(resource)}.g${generation}`;
}

function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return codes.includes((error as NodeJS.ErrnoException).code ?? '');
}

/** Whether nobody listens there, and this host has the address. */
function isFree(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve(true)));
  });
}
