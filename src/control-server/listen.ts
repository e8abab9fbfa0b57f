import { once } from 'node:events';
import { lstat, unlink } from 'node:fs/promises';
import { connect, type Server } from 'node:net';
import { endpointOf } from './form';
import { MAX_SOCKET_PATH, type Endpoint } from './protocol';

/** Throws unless it is an address that only this machine reaches. Not a name: what that means is up to others. */
export function requireLocal(endpoint: Endpoint): void {
  if (!endpointOf(endpoint)) {
    const remedy =
      'use a loopback address (127.0.0.1, ::1) and a port from 1 to 65535, or an absolute path of a socket';
    throw new Error(`refusing to listen on ${JSON.stringify(endpoint)}: ${remedy}`);
  }
  // unix(7): 108 bytes with the final zero; what is longer would be cut
  if ('socket' in endpoint && Buffer.byteLength(endpoint.socket) > MAX_SOCKET_PATH) {
    throw new Error(
      `can't listen on ${JSON.stringify(endpoint.socket)}: use a path of at most ${MAX_SOCKET_PATH} bytes`,
    );
  }
}

/** Resolves once the server listens there, which {@link requireLocal} has been asked about. The socket file that a dead server has left is removed first. */
export async function listen(server: Server, endpoint: Endpoint): Promise<void> {
  if ('socket' in endpoint) await removeStale(endpoint.socket);
  server.listen('socket' in endpoint ? endpoint.socket : endpoint);
  try {
    await once(server, 'listening');
  } catch (cause) {
    throw new Error(`can't listen on ${JSON.stringify(endpoint)}: ${(cause as Error).message}`, { cause });
  }
}

/** Removes a socket that nobody listens on. Anything else stands: somebody's server, or somebody's file. */
async function removeStale(path: string): Promise<void> {
  const found = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (!found) return;
  if (!found.isSocket()) throw new Error(`can't listen on ${path}: it is there, and no socket; use another path`);
  const socket = connect(path);
  const code = await once(socket, 'connect').then(
    () => undefined,
    (error: NodeJS.ErrnoException) => error.code,
  );
  socket.destroy();
  // Refused is the one answer that says so; a full queue, or no permission, is a server that lives.
  if (code === 'ECONNREFUSED') return unlink(path);
  throw new Error(`can't listen on ${path}: another server does; end it, or use another path`);
}
