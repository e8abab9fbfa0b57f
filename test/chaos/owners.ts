import { defaultPayloadConverter, type Payload } from '@temporalio/common';
import type { StopAnswer } from '../../src/contract/activities';
import { resourceOfWorkflowId } from '../../src/contract/names';
import { OWNER_WORKFLOW } from '../../src/contract/owner';
import { monotonicNow } from '../../src/host/context';
import type { ProofClaim, Violation } from '../support/oracle';
import type { ChaosScene } from './scene';

/** WorkflowTaskFailedCause of Temporal's API: the code threw, or did not do again what its history says. */
const FAULTS_OF_THE_CODE: Readonly<Record<number, string>> = { 14: 'unhandled failure', 24: 'not deterministic' };

/** What the histories of all owners tell. */
export interface OwnersReport {
  readonly runs: number;
  /** Every proof that an owner was given. */
  readonly proofs: readonly ProofClaim[];
  readonly violations: readonly Violation[];
}

/** Reads every run of every owner: none may be open, have failed, or have had a task that its code could not do. */
export async function readOwners({ server }: ChaosScene): Promise<OwnersReport> {
  const { client, taskQueue } = server;
  const proofs: ProofClaim[] = [];
  const violations: Violation[] = [];
  // From the clock of proofs to that of traces.
  const clocks = Date.now() * 1000 - monotonicNow();
  let runs = 0;
  const query = `TaskQueue = '${taskQueue}' AND WorkflowType = '${OWNER_WORKFLOW}'`;
  for await (const { workflowId, runId, status } of client.workflow.list({ query })) {
    runs++;
    const resource = resourceOfWorkflowId(workflowId) ?? workflowId;
    const { events } = await client.workflow.getHandle(workflowId, runId).fetchHistory();
    const last = events?.at(-1);
    const failed = last?.workflowExecutionFailedEventAttributes?.failure;
    if (failed) violations.push({ resource, what: `its owner failed, run ${runId}`, evidence: [failed.message ?? ''] });
    if (status.name === 'TIMED_OUT')
      violations.push({ resource, what: `its owner timed out, run ${runId}`, evidence: [] });
    for (const event of events ?? []) {
      const task = event.workflowTaskFailedEventAttributes;
      const cause = FAULTS_OF_THE_CODE[Number(task?.cause)];
      if (task && cause !== undefined) {
        const evidence = [cause, task.failure?.message ?? '', task.failure?.stackTrace ?? ''];
        violations.push({ resource, what: `a task of its owner failed, run ${runId}`, evidence });
      }
      const answer = answerIn(event.activityTaskCompletedEventAttributes?.result?.payloads?.[0]);
      if (!answer?.proof) continue;
      const { generation, readAt } = answer.proof;
      proofs.push({ resource, generation, readAt: readAt * 1000 - clocks });
    }
  }
  return { runs, proofs, violations };
}

function answerIn(payload: Payload | null | undefined): Partial<StopAnswer> | undefined {
  return payload ? (defaultPayloadConverter.fromPayload<Partial<StopAnswer> | null>(payload) ?? undefined) : undefined;
}
