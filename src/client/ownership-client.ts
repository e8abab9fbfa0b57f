import { randomUUID } from 'node:crypto';
import {
  isGrpcServiceError,
  WithStartWorkflowOperation,
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  type Client,
} from '@temporalio/client';
import type { Duration, UpdateDefinition } from '@temporalio/common';
import { sameParameters } from '../contract/facts';
import {
  drainUpdate,
  HOST_WORKFLOW,
  undrainUpdate,
  type Drain,
  type DrainRequest,
  type HostClaim,
  type HostDetails,
  type HostMemo,
  type HostReport,
  type HostStatus,
} from '../contract/host';
import { checkResource, hostWorkflowId, ownerWorkflowId, resourceOfWorkflowId } from '../contract/names';
import { ownUpdate, OWNER_WORKFLOW, type OwnAnswer, type OwnInput } from '../contract/owner';
import { within } from './deadline';
import { toMs } from './duration';
import { hostDetails } from './live-details';
import { NoAnswerError, NoHostError, OwnershipConflictError, OwnUnconfirmedError, type Ownership } from './errors';
import { failureTypeOf, OwnerCalls } from './owner-calls';
import { OwnerHandle } from './owner-handle';

export interface OwnershipClientOptions {
  /** Task queue of the owners, as in temporal.yaml. Default `temporal-systemd`. */
  readonly taskQueue?: string;
  /** How long a call may take before it rejects. Default 10 s. */
  readonly timeout?: Duration;
}

/** What is to be owned. Parameters are public: they stand in Temporal and in the process's arguments. */
export interface OwnOptions {
  readonly resource: string;
  /** A program of the host's temporal.yaml. */
  readonly program: string;
  /** Host id. */
  readonly host: string;
  readonly parameters?: Readonly<Record<string, string>>;
}

export interface OwnReturn {
  readonly handle: OwnerHandle;
  /** Whether this call started the owner or joined the one there was. */
  readonly outcome: 'started' | 'joined';
}

/** An open owner as Temporal's list has it; eventually consistent. */
export interface ListedOwner extends Partial<Ownership> {
  readonly resource: string;
  readonly startedAt: Date;
  /** Systemd unit of the generation that was running when the owner last wrote it. */
  readonly unit?: string;
}

/** A host, as its worker and its workflow say it is. */
export interface ListedHost extends Pick<HostClaim, 'host' | 'instance' | 'machineId'> {
  /** What its worker said when it started, or read its programs again; absent before it has. */
  readonly report?: HostReport;
  /** Present while it takes on no new resources. */
  readonly draining?: Drain;
  /** What it holds, as it told last; absent while nothing was heard of it, for more than a minute for instance. */
  readonly live?: HostDetails & { readonly heartbeatAt: number };
}
/** gRPC NOT_FOUND. */
const NOT_FOUND = 5;
const OWN_AGAIN_MS = 50;

/** Owns resources by way of an existing Temporal client. */
export class OwnershipClient {
  private readonly taskQueue: string;
  private readonly timeoutMs: number;

  constructor(
    private readonly client: Client,
    options: OwnershipClientOptions = {},
  ) {
    this.taskQueue = options.taskQueue ?? 'temporal-systemd';
    this.timeoutMs = toMs(options.timeout ?? '10 s');
  }

  /**
   * Makes sure that the resource has an owner, and says whether this call started it (G1). The process may still be on
   * its way: `handle.ready()` waits for it.
   *
   * Throws `InvalidResourceError` for a name that can't be used; rejects with {@link OwnershipConflictError} when there is
   * an owner with another program, host or parameters, and with {@link OwnUnconfirmedError} when no answer came in time.
   */
  async own(options: OwnOptions): Promise<OwnReturn> {
    const { resource, program, host, parameters = {} } = options;
    checkResource(resource);
    const answer = await within(
      this.client,
      this.timeoutMs,
      () => this.startOrJoin({ resource, program, host, parameters, requestId: randomUUID() }),
      () => new OwnUnconfirmedError(resource, this.timeoutMs),
    );
    const existing = { program: answer.program, host: answer.host, parameters: answer.parameters };
    if (!sameOwnership(existing, { program, host, parameters })) {
      throw new OwnershipConflictError(resource, { program, host, parameters }, existing);
    }
    return { handle: this.handle(resource, answer.ownerId), outcome: answer.outcome };
  }

  /** Asks again where the owner that was to be joined has ended while it was asked; the deadline of the call ends this. */
  private async startOrJoin(input: OwnInput): Promise<OwnAnswer> {
    const { resource, program, host, parameters, requestId } = input;
    for (;;) {
      const startWorkflowOperation = new WithStartWorkflowOperation(OWNER_WORKFLOW, {
        workflowId: ownerWorkflowId(resource),
        taskQueue: this.taskQueue,
        args: [input],
        workflowIdConflictPolicy: 'USE_EXISTING',
        memo: { owned: { host, program, parameters } },
        staticSummary: `${resource}: ${program} on ${host}`.slice(0, 190),
      });
      startWorkflowOperation.workflowHandle().catch(() => undefined); // the update's own error is the one that is told
      try {
        return await this.client.workflow.executeUpdateWithStart(ownUpdate, {
          args: [{ requestId }],
          startWorkflowOperation,
        });
      } catch (error) {
        if (!hasEnded(error)) throw error;
        await new Promise((resolve) => setTimeout(resolve, OWN_AGAIN_MS));
      }
    }
  }

  /** A handle on a resource's owner, whoever started it. With `ownerId`, requests reach that owner only. */
  handle(resource: string, ownerId?: string): OwnerHandle {
    return new OwnerHandle(new OwnerCalls(this.client, checkResource(resource), ownerId, this.timeoutMs));
  }

  /** The hosts of this task queue, by Temporal's list, which is eventually consistent. */
  async *hosts(): AsyncIterable<ListedHost> {
    const query = `WorkflowType = '${HOST_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId } of this.client.workflow.list({ query })) {
      const description = await this.client.workflow.getHandle(workflowId).describe();
      const { claim, report, draining } = (description.memo ?? {}) as Partial<HostMemo>;
      if (!claim || claim.taskQueue !== this.taskQueue) continue;
      const { host, instance, machineId } = claim;
      const live = await hostDetails(this.client, description);
      yield {
        ...{ host, instance, machineId },
        ...(report && { report }),
        ...(draining && { draining }),
        ...(live && { live }),
      };
    }
  }

  /**
   * Has a host take on no new resources; what it has goes on there, restarts included. Asked twice, the first one's reason
   * stays. Rejects with {@link NoHostError}.
   */
  drain(host: string, request: DrainRequest = {}): Promise<HostStatus> {
    return this.askHost(drainUpdate, host, request);
  }

  /** Has a host take on new resources again. Rejects with {@link NoHostError}. */
  undrain(host: string, request: DrainRequest = {}): Promise<HostStatus> {
    return this.askHost(undrainUpdate, host, request);
  }

  private async askHost(
    { name }: UpdateDefinition<HostStatus, [DrainRequest?]>,
    host: string,
    request: DrainRequest,
  ): Promise<HostStatus> {
    const handle = this.client.workflow.getHandle(hostWorkflowId(host));
    const args: [DrainRequest] = [{ by: this.client.options.identity, ...request }];
    try {
      return await within(
        this.client,
        this.timeoutMs,
        () => handle.executeUpdate<HostStatus, [DrainRequest]>(name, { args }),
        () => new NoAnswerError(`host ${host}`, name, this.timeoutMs),
      );
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) throw new NoHostError(host, { cause: error });
      throw error;
    }
  }

  /** The open owners of the namespace. */
  async *list(): AsyncIterable<ListedOwner> {
    const query = `WorkflowType = '${OWNER_WORKFLOW}' AND ExecutionStatus = 'Running'`;
    for await (const { workflowId, memo, startTime } of this.client.workflow.list({ query })) {
      const resource = resourceOfWorkflowId(workflowId);
      if (resource === undefined) continue;
      const owned = (memo?.owned ?? {}) as Partial<Ownership> & { readonly unit?: string };
      const { program, host, parameters, unit } = owned;
      yield { resource, program, host, parameters, unit, startedAt: startTime };
    }
  }
}

/** Whether an update came to nothing because its workflow has ended: closed, terminated or reset. */
function hasEnded(error: unknown): boolean {
  if (error instanceof WorkflowNotFoundError) return true;
  if (error instanceof WorkflowUpdateFailedError) return failureTypeOf(error) === 'AcceptedUpdateCompletedWorkflow';
  return isGrpcServiceError(error) && Number(error.code) === NOT_FOUND;
}

function sameOwnership(a: Ownership, b: Ownership): boolean {
  return a.program === b.program && a.host === b.host && sameParameters(a.parameters, b.parameters);
}
