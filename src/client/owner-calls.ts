import {
  WorkflowNotFoundError,
  WorkflowUpdateFailedError,
  type Client,
  type WorkflowExecutionDescription,
  type WorkflowHandle,
} from '@temporalio/client';
import { ApplicationFailure, type SignalDefinition, type UpdateDefinition } from '@temporalio/common';
import { FailureType } from '../contract/failures';
import { ownerWorkflowId } from '../contract/names';
import { statusQuery, type OwnerStatus, type OwnResult, type StopRequest } from '../contract/owner';
import { within } from './deadline';
import { NoAnswerError, NoOwnerError, RequestRefusedError } from './errors';

/** The calls to one resource's owner. Each races a timer, and rejects with an error of this client. */
export class OwnerCalls {
  constructor(
    readonly client: Client,
    readonly resource: string,
    /** First run id of the owner that is meant; absent, whichever owner is there. */
    readonly ownerId: string | undefined,
    readonly timeoutMs: number,
  ) {}

  update<R>(
    { name }: UpdateDefinition<R, [StopRequest?]>,
    request: StopRequest,
    timeoutMs = this.timeoutMs,
  ): Promise<R> {
    const args: [StopRequest] = [{ ...request, ownerId: this.ownerId }];
    return this.call(name, () => this.current.executeUpdate<R, [StopRequest]>(name, { args }), timeoutMs);
  }

  /**
   * As {@link update}, for a request that means the same when it is heard twice: sent again where the run that had it was
   * reset, and the owner lives on in another run that has not heard of it.
   */
  async updateAcrossResets<R>(
    definition: UpdateDefinition<R, [StopRequest?]>,
    request: StopRequest,
    timeoutMs = this.timeoutMs,
  ): Promise<R> {
    const deadline = performance.now() + timeoutMs;
    for (;;) {
      try {
        return await this.update(definition, request, Math.max(1, deadline - performance.now()));
      } catch (error) {
        if (!(error instanceof NoOwnerError) || !(await this.isOpen())) throw error;
      }
    }
  }

  /** Whether the owner that is meant is open. */
  private async isOpen(): Promise<boolean> {
    const found = await this.describe();
    return found.status.name === 'RUNNING' && this.isMeant(found);
  }

  /** Whether what was found under the workflow id is the owner that is meant. */
  private isMeant({ raw }: WorkflowExecutionDescription): boolean {
    return this.ownerId === undefined || raw.workflowExecutionInfo?.firstRunId === this.ownerId;
  }

  signal({ name }: SignalDefinition<[StopRequest?]>, request: StopRequest): Promise<void> {
    return this.call(name, () => this.current.signal(name, { ...request, ownerId: this.ownerId }));
  }

  async status(): Promise<OwnerStatus> {
    const status = await this.call('status', () => this.current.query(statusQuery));
    if (this.ownerId !== undefined && status.ownerId !== this.ownerId) throw new NoOwnerError(this.resource);
    return status;
  }

  describe(): Promise<WorkflowExecutionDescription> {
    return this.call('describe', () => this.current.describe());
  }

  /** The owner's newest run: a reset begins one even after the end, and a report of the former end would be stale. */
  async newestRun(): Promise<string> {
    const found = await this.describe();
    return this.isMeant(found) ? found.runId : this.ownerId!;
  }

  /** What a run, and what it continues as, ends with; waits for as long as it takes. */
  resultOf(runId: string): Promise<OwnResult> {
    return this.client.workflow.getHandle(ownerWorkflowId(this.resource), runId).result() as Promise<OwnResult>;
  }

  /** By workflow id alone: a handle of the first run does not find an owner that has continued as new. */
  private get current(): WorkflowHandle {
    return this.client.workflow.getHandle(ownerWorkflowId(this.resource));
  }

  private async call<R>(name: string, call: () => Promise<R>, timeoutMs = this.timeoutMs): Promise<R> {
    try {
      return await within(this.client, timeoutMs, call, () => new NoAnswerError(this.resource, name, timeoutMs));
    } catch (error) {
      if (error instanceof WorkflowNotFoundError) throw new NoOwnerError(this.resource, { cause: error });
      if (error instanceof WorkflowUpdateFailedError) {
        const type = failureTypeOf(error);
        if (type === 'AcceptedUpdateCompletedWorkflow' || type === FailureType.NotThisOwner) {
          throw new NoOwnerError(this.resource, { cause: error });
        }
        throw new RequestRefusedError(this.resource, error.cause?.message ?? error.message, { cause: error });
      }
      throw error;
    }
  }
}

/** The type of the failure that is the cause of an error, or the cause of its cause. */
export function failureTypeOf(error: Error): string | undefined {
  const { cause } = error;
  if (cause instanceof ApplicationFailure) return cause.type ?? undefined;
  return cause instanceof Error ? failureTypeOf(cause) : undefined;
}
