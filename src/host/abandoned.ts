import type { HostContext } from './context';
import type { Findings } from './findings';
import { attributesOf, type Held } from './held';
import { Sparse } from './log';
import type { LeftBehind, OwnerLink, OwnerStanding } from './owner-link';

/** So many owners are asked about at one look, and so many are begun: a lost namespace must not become a storm of calls. */
const AT_ONCE = 20;

/** What an owner is begun with for something that has no records: nothing of that name is ever started. */
const NO_PROGRAM = 'unknown';

/**
 * Finds what runs on the host and has no owner any more: after a terminate, a lost namespace, a deleted run. It is brought to an
 * end by *an owner*, with the same ladder and proof as ever, which also keeps everybody else from the resource meanwhile (G1).
 *
 * Only Temporal's answer that nobody owns it counts: no answer changes nothing (G4). What an owner has left on purpose
 * (`release`) has its lease to be adopted in.
 */
export class Abandoned {
  /** Generations without a hold → since when, or when Temporal was last asked about them; ms of `performance.now()`. */
  private readonly since = new Map<Held, number>();
  private readonly sparse = new Sparse(60_000);
  private asking = false;

  constructor(
    private readonly host: HostContext,
    private readonly link: OwnerLink,
    private readonly findings: Findings,
    /** So long a generation has no hold before anything is done: whoever owns it anew at once adopts it, and is not hindered. */
    private readonly graceMs: number,
  ) {}

  /** One look at all that this worker has. Never rejects. */
  async look(all: Iterable<Held>): Promise<void> {
    const now = performance.now();
    const unheld = new Set<Held>();
    for (const held of all) if (!held.hold) unheld.add(held);
    for (const held of this.since.keys()) if (!unheld.has(held)) this.since.delete(held);
    for (const held of unheld) if (!this.since.has(held)) this.since.set(held, now);
    if (this.asking) return;
    this.asking = true;
    const due = [...this.since].filter(([, since]) => now - since >= this.graceMs).sort(([, a], [, b]) => a - b);
    await Promise.all(due.slice(0, AT_ONCE).map(([held]) => this.lookAt(held)));
    this.asking = false;
  }

  /** Asks Temporal whether somebody owns a generation that nobody holds, and makes it a finding where nobody does. */
  async standing(held: Held): Promise<OwnerStanding> {
    const { resource, placement } = held.launch;
    const owner = await this.link.standing(resource);
    if ((owner === 'completed' || owner === 'gone') && !held.over && !held.hold) {
      const { generation, unit } = placement;
      const found = `nobody holds it, and Temporal says of its owner: ${owner}`;
      this.findings.add({ kind: 'owner-closed', resource, generation, unit, owner, found });
    }
    return owner;
  }

  /** A unit of this host's of which there are no records, and whose owner is gone. */
  async withoutRecords(resource: string): Promise<void> {
    await this.bringToEnd({ resource, program: NO_PROGRAM, parameters: {} }, { resource });
  }

  private async lookAt(held: Held): Promise<void> {
    this.since.set(held, performance.now());
    if ((await this.standing(held)) !== 'gone' || held.over || held.hold) return;
    const { resource, parameters, placement } = held.launch;
    await this.bringToEnd({ resource, program: placement.program, parameters, placement }, attributesOf(held));
  }

  private async bringToEnd(
    left: Omit<LeftBehind, 'host' | 'taskQueue'>,
    about: Record<string, unknown>,
  ): Promise<void> {
    const { hostId, taskQueue } = this.host.identity;
    const outcome = await this.link.bringToEnd({ ...left, host: hostId, taskQueue });
    if (this.sparse.due(left.resource))
      this.host.log.warn('nobody owns it: an owner is begun to stop it', { ...about, outcome });
  }
}
