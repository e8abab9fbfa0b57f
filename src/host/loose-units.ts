import { parseUnit } from '../contract/names';
import type { UnitListing } from '../systemd/port';
import type { Abandoned } from './abandoned';
import { filesOf, type HostContext } from './context';
import type { Finding, Findings } from './findings';
import { messageOf, Sparse } from './log';
import type { OwnerLink } from './owner-link';
import { isOwn } from './unit';

/** A loaded service with a name of this host's, and no files of it. */
export type LooseUnit = Finding & {
  readonly kind: 'unit-without-files' | 'unit-stranger';
  readonly generation: number;
  readonly unit: string;
};

/** Finds units that somebody makes by hand, or loses the files of. What was there before the worker, `resume.ts` finds. */
export class LooseUnits {
  private readonly sparse = new Sparse(60_000);
  private looking = false;

  constructor(
    private readonly host: HostContext,
    private readonly link: OwnerLink,
    private readonly findings: Findings,
    private readonly abandoned: Abandoned,
  ) {}

  /** One look at all loaded units of the prefix. Never rejects. */
  async look(units: readonly UnitListing[], isHeld: (unit: string) => boolean): Promise<void> {
    this.findings.keepLoaded(new Set(units.map(({ name }) => name)));
    if (this.looking) return;
    this.looking = true;
    for (const unit of units) {
      if (isHeld(unit.name) || this.isKnown(unit.name)) continue;
      for (const found of await this.read(unit)) await this.add(found);
    }
    this.looking = false;
  }

  /** What is to be said of a loaded unit that this worker does not have; nothing where there are files of it. Never rejects. */
  async read({ name, activeState, subState }: UnitListing): Promise<readonly LooseUnit[]> {
    const parsed = parseUnit(this.host.prefix, name);
    if (parsed?.kind !== 'generation') return [];
    const { resource, generation } = parsed;
    const subject = { resource, generation, unit: name };
    const state = `${activeState} (${subState})`;
    try {
      const files = filesOf(this.host, this.host.prefix, resource).generation(generation);
      if ((await files.names()).length > 0) return []; // another worker process has just made them, or it is proven
      const unit = await this.host.systemd.unitProperties(name, ['LogExtraFields']);
      if (!unit) return []; // unloaded since
      const own = isOwn(unit, resource, generation, { ...this.host.identity, workflowId: '', ownerId: '' });
      return [
        own
          ? { ...subject, kind: 'unit-without-files', found: `${state}, and there are no files of it` }
          : { ...subject, kind: 'unit-stranger', found: `${state}, without the marks of this host's owners` },
      ];
    } catch (error) {
      if (this.sparse.due(name))
        this.host.log.warn('a unit without files could not be looked at', { ...subject, error: messageOf(error) });
      return [];
    }
  }

  private async add(found: LooseUnit): Promise<void> {
    if (found.kind === 'unit-stranger') return this.findings.add(found);
    const owner = await this.link.standing(found.resource);
    this.findings.add({ ...found, owner });
    if (owner === 'gone') await this.abandoned.withoutRecords(found.resource);
  }

  /** Found already; one whose owner could not be asked for is asked for again. */
  private isKnown(name: string): boolean {
    return this.findings.list.some(({ unit, owner }) => unit === name && owner !== 'unknown');
  }
}
