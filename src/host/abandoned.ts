import type { HostContext } from './context';
import { attributesOf, type Held } from './keeper';
import { Sparse } from './log';
import type { OwnerLink } from './owner-link';

/** So many owners are asked about at one look, and so many are begun: a lost namespace must not become a storm of calls. */
const AT_ONCE = 20;

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
    /** So long a generation has no hold before anybody is asked: whoever owns it anew at once adopts it, and is not hindered. */
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
    await Promise.all(due.slice(0, AT_ONCE).map(([held]) => this.ask(held)));
    this.asking = false;
  }

  private async ask(held: Held): Promise<void> {
    const { owner, resource, parameters, placement } = held.launch;
    this.since.set(held, performance.now());
    const standing = await this.link.standing(owner);
    if (standing !== 'gone' || held.hold) return;
    const outcome = await this.link.bringToEnd({ owner, resource, parameters, placement });
    if (this.sparse.due(placement.unit))
      this.host.log.warn('nobody owns it: an owner is begun to stop it', { ...attributesOf(held), outcome });
  }
}
