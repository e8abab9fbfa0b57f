import type { RemainingProcess } from '../contract/facts';
import type { OwnerState, OwnerStatus } from '../contract/owner';

/** What an owner was asked to be, or is. */
export interface Ownership {
  readonly program: string;
  readonly host: string;
  readonly parameters: Readonly<Record<string, string>>;
}

/** Base of all errors of the client; `resource` names what it was about. */
export abstract class OwnershipError extends Error {
  constructor(
    readonly resource: string,
    message: string,
    options?: ErrorOptions,
  ) {
    super(`${resource}: ${message}`, options);
    this.name = new.target.name;
  }
}

/** `own` had no answer in time. The owner may exist: call `own` again, or look with `handle(resource).status()`. */
export class OwnUnconfirmedError extends OwnershipError {
  constructor(resource: string, timeoutMs: number, options?: ErrorOptions) {
    super(
      resource,
      `own() had no answer within ${timeoutMs} ms; the owner may exist. Is a worker for workflows running on this task queue?`,
      options,
    );
  }
}

/** The resource has an owner already, with another program, host or parameters. */
export class OwnershipConflictError extends OwnershipError {
  constructor(
    resource: string,
    readonly requested: Ownership,
    readonly existing: Ownership,
  ) {
    super(
      resource,
      `is owned otherwise: asked for ${JSON.stringify(requested)}, it is ${JSON.stringify(existing)}; stop that owner first`,
    );
  }
}

/** The process is not proven dead yet. The owner goes on stopping it; nobody else may have the resource. */
export class StillRunningError extends OwnershipError {
  constructor(
    resource: string,
    /** As last seen; empty when the host has not answered yet. */
    readonly remaining: readonly RemainingProcess[],
    readonly status: OwnerStatus | undefined,
    waitedMs: number,
  ) {
    const list = remaining.map((p) => `${p.pid} ${p.command} (state ${p.state}, ${p.waitChannel})`).join(', ');
    super(
      resource,
      `is still running after ${waitedMs} ms${list ? `: ${list}` : ''}; its owner goes on stopping it (${status?.next ?? 'no status'})`,
    );
  }
}

/** The owner has had no answer from its host for a while. It waits on; the process may live. */
export class HostUnreachableError extends OwnershipError {
  constructor(
    resource: string,
    readonly status: OwnerStatus,
  ) {
    super(
      resource,
      `host "${status.host}" has not answered since ${new Date(status.hostUnreachableSince ?? 0).toISOString()}: ` +
        `is its worker running, with this host id and on this task queue?`,
    );
  }
}

/** The process won't become ready: it is being stopped, has ended, or its owner has given up. */
export class NotReadyError extends OwnershipError {
  constructor(
    resource: string,
    reason: string,
    readonly status: OwnerStatus | undefined,
  ) {
    super(resource, `is not ready: ${reason}`);
  }
}

/** The resource's program declares neither `endpoint:` nor `control:` in temporal.yaml, or nothing of it runs. */
export class NoEndpointError extends OwnershipError {
  constructor(resource: string, state: OwnerState) {
    super(
      resource,
      `has no endpoint: its program has no endpoint or control section, or none of it runs (state ${state})`,
    );
  }
}

/** The host has no such program, or the parameters do not fit it. Nothing was started. */
export class ProgramRefusedError extends OwnershipError {}

/** The host takes on no more resources (`host.capacity` in its temporal.yaml), or is being drained. Nothing was started. */
export class HostFullError extends OwnershipError {}

/** The owner refused a request; the message says why. */
export class RequestRefusedError extends OwnershipError {}

/** The resource has no open owner, or another one than the handle is for. */
export class NoOwnerError extends OwnershipError {
  constructor(resource: string, options?: ErrorOptions) {
    super(resource, 'has no such owner (any more)', options);
  }
}

/** There is no host of this id: none was ever served, or its id was given back. */
export class NoHostError extends Error {
  override readonly name = 'NoHostError';

  constructor(
    readonly host: string,
    options?: ErrorOptions,
  ) {
    super(`there is no host "${host}": its worker has to have run once, with this host.id`, options);
  }
}

/** Temporal, or the worker that runs the owner, gave no answer in time. Says nothing about the process. */
export class NoAnswerError extends OwnershipError {
  constructor(resource: string, call: string, timeoutMs: number) {
    super(resource, `${call} had no answer within ${timeoutMs} ms; is a worker for workflows running?`);
  }
}
