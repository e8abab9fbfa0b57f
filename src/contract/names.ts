/**
 * Every name that is derived from a resource: workflow ids, task queues, units, slices. One place, because a client,
 * an owner and a host must come to the same name on their own.
 */

/** Longest escaped resource in bytes: with the longest prefix, generation and suffix a unit name stays below 200. */
export const MAX_ESCAPED_RESOURCE = 140;

/** A resource name that can't be used. The message says what is wrong with it and what is allowed. */
export class InvalidResourceError extends Error {
  override readonly name = 'InvalidResourceError';

  constructor(
    readonly resource: unknown,
    reason: string,
  ) {
    super(
      `resource ${JSON.stringify(resource)} ${reason}; a resource is one or more segments of [A-Za-z0-9._-] joined by ` +
        `"/", none of them empty, "." or "..", e.g. "db/tenant-42"`,
    );
  }
}

/** Returns the resource when it can be used, else throws {@link InvalidResourceError}. */
export function checkResource(resource: unknown): string {
  if (typeof resource !== 'string') throw new InvalidResourceError(resource, 'is not a string');
  for (const segment of resource.split('/')) {
    if (segment === '') throw new InvalidResourceError(resource, 'has an empty segment');
    if (segment === '.' || segment === '..') throw new InvalidResourceError(resource, `has a segment "${segment}"`);
    if (!/^[A-Za-z0-9._-]+$/.test(segment))
      throw new InvalidResourceError(resource, 'has a character that is not allowed');
  }
  const length = escapeResource(resource).length;
  if (length > MAX_ESCAPED_RESOURCE) {
    throw new InvalidResourceError(
      resource,
      `is ${length} bytes long once escaped for a unit name (every byte but letters and digits counts three), ` +
        `at most ${MAX_ESCAPED_RESOURCE} fit`,
    );
  }
  return resource;
}

/**
 * A resource as one word of a unit name: letters and digits stay, every other byte becomes `_` and two hex digits.
 *
 * systemd's own escaping turns `/` into `-`, and a dash nests slices (systemd.slice(5)): `db/x` would lie inside the
 * slice of `db`. `_` is escaped too, which makes the mapping injective, and no `\` appears, which would need quoting
 * in shells and in the glob of ListUnitsByPatterns.
 */
export function escapeResource(resource: string): string {
  return resource.replace(/[^A-Za-z0-9]/g, (c) => `_${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

/** The inverse of {@link escapeResource}. */
export function unescapeResource(escaped: string): string {
  return escaped.replace(/_([0-9a-f]{2})/g, (_match, hex: string) => String.fromCharCode(parseInt(hex, 16)));
}

/** Workflow id of the resource's owner (G1: one open workflow per id). */
export function ownerWorkflowId(resource: string): string {
  return `own:${resource}`;
}

/** The resource that an owner's workflow id names, or undefined for another workflow's id. */
export function resourceOfWorkflowId(workflowId: string): string | undefined {
  return workflowId.startsWith('own:') ? workflowId.slice('own:'.length) : undefined;
}

/** Workflow id of a host's claim on its id. */
export function hostWorkflowId(host: string): string {
  return `host:${host}`;
}

/** The queue that one host's worker serves. */
export function hostTaskQueue(taskQueue: string, host: string): string {
  return `${taskQueue}.${host}`;
}

/** The slice that holds everything of one prefix on a host. Its ControlGroupId verifies a cgroup root. */
export function prefixSlice(prefix: string): string {
  return `${prefix}.slice`;
}

/** The resource's own slice: it covers every generation, foreign restart and left-over with one recursive read. */
export function resourceSlice(prefix: string, resource: string): string {
  return `${prefix}-${escapeResource(resource)}.slice`;
}

/** The transient service of one generation. */
export function generationUnit(prefix: string, resource: string, generation: number): string {
  return `${prefix}-${escapeResource(resource)}-g${generation}.service`;
}

/** The n-th lease timer of a unit, and the oneshot it starts. Numbered, so that their names are never used twice. */
export function leaseUnits(unit: string, n: number): { readonly timer: string; readonly oneshot: string } {
  const base = `${unit.replace(/\.service$/, '')}-lease${n}`;
  return { timer: `${base}.timer`, oneshot: `${base}.service` };
}

/** Glob for ListUnitsByPatterns: everything of a prefix, or everything of one resource. */
export function unitPattern(prefix: string, resource?: string): string {
  return resource === undefined ? `${prefix}-*` : `${prefix}-${escapeResource(resource)}-g*`;
}

/** Glob for ListUnitsByPatterns: every lease timer of a unit. */
export function unitLeases(unit: string): string {
  return `${unit.replace(/\.service$/, '')}-lease*.timer`;
}

/** What a unit's name says. `undefined` for names that this project would not have given. */
export type ParsedUnit =
  | { readonly kind: 'generation'; readonly resource: string; readonly generation: number }
  | { readonly kind: 'lease-timer'; readonly unit: string; readonly n: number }
  | { readonly kind: 'lease-oneshot'; readonly unit: string; readonly n: number };

/** Reads a unit's name back; the prefix must match. */
export function parseUnit(prefix: string, name: string): ParsedUnit | undefined {
  const match =
    /^([a-z][a-z0-9]*)-((?:[A-Za-z0-9]|_[0-9a-f]{2})+)-g([1-9][0-9]{0,15})(?:-lease([0-9]+))?\.(service|timer)$/.exec(
      name,
    );
  if (!match || match[1] !== prefix) return undefined;
  const [, , escaped, generation, n, type] = match;
  const resource = unescapeResource(escaped!);
  if (n === undefined) {
    return type === 'service' ? { kind: 'generation', resource, generation: Number(generation) } : undefined;
  }
  const unit = generationUnit(prefix, resource, Number(generation));
  return { kind: type === 'timer' ? 'lease-timer' : 'lease-oneshot', unit, n: Number(n) };
}
