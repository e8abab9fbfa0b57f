import { CancellationScope } from '@temporalio/workflow';
import type { RecoverAnswer, RecoverInput, RecoveryPlan } from '../contract/activities';
import type { RecordReading } from '../contract/control';
import { endpointText } from '../contract/endpoint';
import type { Placement } from '../contract/facts';
import { adoptServer, readEndpoint, reclaimServer, settled } from './host-calls';
import type { Owner } from './owner';

/**
 * Looks for a control server that an earlier owner has left: reads the recorded endpoint, then adopts what answers there or,
 * where the program says that a server does not survive its owner, shuts it down. Returns the placement of an adopted one.
 * Whatever else lives is stopped until proven, or waited for, before another one is started (G2): the start finds out.
 *
 * Rejects with what a call rejected with, and with a cancellation when somebody wants the owner to end.
 */
export async function recoverServer(owner: Owner, plan: RecoveryPlan): Promise<Placement | undefined> {
  const { data, input } = owner;
  const request: RecoverInput = {
    resource: input.resource,
    program: input.program,
    parameters: input.parameters,
    owner: owner.identity,
    epoch: data.generation,
    instance: data.instance,
  };
  const reading = await call<RecordReading>(owner, () => readEndpoint(owner, request));
  owner.note(
    reading.kind === 'found'
      ? `a server is recorded at ${endpointText(reading.endpoint)}`
      : `no server on record: ${reading.kind} (${reading.detail})`,
    plan.survive ? 'adopt the server if it is ours' : 'shut the server down if it is ours',
  );
  const { unresolved } = data;
  data.unresolved = true; // from here on the host may take over a process in this owner's name
  const { recovery, placement } = await call<RecoverAnswer>(owner, () =>
    plan.survive ? adoptServer(owner, request) : reclaimServer(owner, request),
  );
  data.unresolved = unresolved && !placement; // the host has not closed what an earlier start may still bring
  data.plan = undefined;
  data.recovered = true;
  data.recovery = recovery;
  data.waitsForLease = plan.onRefused === 'wait' && recovery.scope === 'own-server';
  owner.note(`${recovery.scope}: ${recovery.reason}`, placement ? 'hold it' : 'start a fresh server');
  return placement;
}

/** One call to the host, taken back when somebody wants the owner to end, or for the next run. */
async function call<R>(owner: Owner, run: () => Promise<R>): Promise<R> {
  const scope = new CancellationScope();
  const answer = scope.run(run);
  if (!(await settled(owner, answer, () => owner.isToEnd || owner.runIsLong))) scope.cancel();
  return answer;
}
