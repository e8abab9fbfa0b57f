import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import type { Placement } from '../../src/contract/facts';
import { createOwnership, type Ownership } from '../../src/control-server';
import { ControlPath } from '../../src/control-server/protocol';
import type { TestHost } from './test-host';

/**
 * A control server in the test's own process, at the endpoint that was placed for a unit's: it proves who it is as that
 * one would, answers renewals as it is told, and remembers them.
 */
export class PlayedServer {
  /** What renewals are answered with. */
  answer: 'renewed' | 'refused' | 'nothing' = 'renewed';
  /** The period that it reports with them; undefined: none. */
  leaseMs: unknown = 30_000;
  /** When renewals came, whatever was answered, in ms of the monotonic clock. */
  readonly renewals: number[] = [];
  private readonly waiters = new Set<() => void>();

  private constructor(
    private readonly server: Server,
    private readonly ownership: Ownership,
  ) {}

  static async open(
    testHost: Pick<TestHost, 'root'>,
    { control, generation, invocation }: Placement,
    home = control!.home,
  ): Promise<PlayedServer> {
    const { endpoint, credentialFile, startedBy } = control!;
    if (!('port' in endpoint)) throw new Error('only on a port');
    const credential = await readFile(join(testHost.root, credentialFile), 'utf8');
    const first = { ownerId: startedBy, epoch: generation };
    const lease = { leaseMs: 600_000 };
    const environment = { endpoint, home, owner: first, generation, lease, invocation, credential };
    const ownership = createOwnership({ environment, capabilities: ['sessions'] });
    const server = createServer((req, res) => {
      if (req.url !== ControlPath.renew) return ownership.middleware(req, res, () => undefined);
      played.renewals.push(performance.now());
      for (const waiter of played.waiters) waiter();
      played.waiters.clear();
      if (played.answer === 'nothing') return undefined;
      const refused = played.answer === 'refused';
      res.writeHead(refused ? 409 : 200, { 'content-type': 'application/json' });
      return res.end(JSON.stringify(refused ? { error: 'stale-epoch' } : { leaseMs: played.leaseMs ?? null }));
    });
    const played = new PlayedServer(server, ownership);
    server.listen(endpoint);
    await once(server, 'listening');
    return played;
  }

  /** Resolves with the n-th renewal, counted from 1, now or later. */
  async renewal(n: number): Promise<number> {
    while (this.renewals.length < n) await new Promise<void>((resolve) => this.waiters.add(resolve));
    return this.renewals[n - 1]!;
  }

  close(): void {
    this.ownership.close();
    this.server.close();
    this.server.closeAllConnections();
  }
}
