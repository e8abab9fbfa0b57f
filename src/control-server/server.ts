import { createServer, type RequestListener, type Server } from 'node:http';
import { readOwnedEnvironment, type OwnedEnvironment } from './environment';
import { listen } from './listen';
import { createOwnership, type Ownership, type OwnershipOptions } from './ownership';

export interface ServeOwnedOptions extends Omit<OwnershipOptions, 'environment'> {
  /** Answers all requests outside of `/v1/`, the authorised ones alone unless `authorize` is false. */
  readonly handler: RequestListener;
  /** Default: {@link readOwnedEnvironment}. */
  readonly environment?: OwnedEnvironment;
}

/** A server that listens and is owned. */
export interface OwnedServer {
  readonly server: Server;
  readonly ownership: Ownership;
}

/**
 * The whole server of a program: listens where the environment says, and resolves once it does. It ends itself, gracefully,
 * when its lease is over, its owner asks for it, or systemd does (SIGTERM): `onEnd`, then the requests that are still open
 * are cut and the process exits, with 0; with 1 if `onEnd` rejects.
 *
 * Rejects with an {@link OwnedEnvironmentError}, or when the address can't be used or is taken.
 */
export async function serveOwned({ handler, ...options }: ServeOwnedOptions): Promise<OwnedServer> {
  const environment = options.environment ?? (await readOwnedEnvironment());
  const ownership = createOwnership({ ...options, environment });
  const server = createServer((req, res) => ownership.middleware(req, res, () => handler(req, res)));
  try {
    await listen(server, environment.endpoint);
  } catch (error) {
    ownership.close();
    throw error;
  }
  const onSignal = (): void => void ownership.end('signal');
  process.once('SIGTERM', onSignal);
  void ownership.ended
    .then(
      () => 0,
      (error: unknown) => {
        console.error(error); // the author's own error: what could not be saved
        return 1;
      },
    )
    .then((code) => {
      server.close(); // removes a unix socket's file
      server.closeAllConnections();
      process.exit(code);
    });
  return { server, ownership };
}
