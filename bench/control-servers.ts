import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { OwnerHandle, OwnershipClient, Recovery } from '../src/client';
import type { Program } from '../src/config';
import type { TestHost } from '../test/support/test-host';
import { sessionServer } from '../test/support/control-servers';
import { Samples } from './samples';

/** The example server as a program, with a home on the host. */
export async function benchServer({ stateDirectory }: TestHost): Promise<Program> {
  const home = join(stateDirectory, 'sessions');
  await mkdir(home, { recursive: true });
  return sessionServer('server', home, { leaseMs: 90_000 });
}

/** Control servers: a fresh one, and one that the owner before has left, each from the call until it is ready. */
export class ControlServers {
  readonly fresh = new Samples('(c) fresh control server: own() to ready');
  readonly adopted = new Samples('(c) adopted: own() to ready');
  /** By the clocks of host and server, which are one here. */
  readonly unavailable = new Samples('(c) unasked exit to not available');

  constructor(
    private readonly client: OwnershipClient,
    private readonly host: string,
    private readonly testHost: TestHost,
    /** Ends the owner of a resource without a word to its host. */
    private readonly terminate: (resource: string) => Promise<unknown>,
  ) {}

  /** Owns a server, takes its owner away, and owns it again. Throws where it was not adopted. */
  async round(resource: string): Promise<void> {
    await this.fresh.timeAtRest(() => this.ownReady(resource));
    await this.terminate(resource);
    const { handle, recovery } = await this.adopted.timeAtRest(() => this.ownReady(resource));
    if (!recovery?.adopted) throw new Error(`${resource} was not adopted: ${recovery?.scope} (${recovery?.reason})`);
    await this.exit(handle);
    await handle.result();
  }

  /** Kills the server, and takes from its owner since when it is not available. */
  private async exit(handle: OwnerHandle): Promise<void> {
    const { placement } = await handle.status();
    const killedAt = Date.now();
    await this.testHost.systemctl('kill', '--signal=KILL', placement!.unit);
    for (;;) {
      const { control } = await handle.status().catch(() => ({ control: undefined }));
      if (!control?.available) return this.unavailable.add((control?.since ?? Date.now()) - killedAt);
    }
  }

  private async ownReady(resource: string): Promise<{ readonly handle: OwnerHandle; readonly recovery?: Recovery }> {
    const { handle } = await this.client.own({ resource, program: 'server', host: this.host });
    const { control } = await handle.ready();
    return { handle, recovery: control?.recovery };
  }
}
