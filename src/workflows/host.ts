import {
  ActivityCancellationType,
  CancellationScope,
  condition,
  isCancellation,
  log,
  makeContinueAsNewFunc,
  proxyActivities,
  setCurrentDetails,
  setHandler,
  upsertMemo,
  workflowInfo,
} from '@temporalio/workflow';
import type { ActivityFunction } from '@temporalio/common';
import { ActivityName, type HostActivities } from '../contract/activities';
import {
  drainUpdate,
  hereSignal,
  hostStatusQuery,
  HOST_WORKFLOW,
  releaseHostSignal,
  undrainUpdate,
  type Drain,
  type DrainRequest,
  type HostClaim,
  type HostReport,
  type HostStatus,
} from '../contract/host';
import { hostTaskQueue } from '../contract/names';
import { oneLine } from './checks';
import { timeoutOf } from './host-calls';

/** What is carried through continue-as-new. */
interface HostData {
  report?: HostReport;
  draining?: Drain;
  unreachableSince?: number;
}

/** The host tells what it holds with each heartbeat; so long without one it counts as unreachable. */
const HEARTBEAT_TIMEOUT = '1 min';

/** A host that can't serve its own workflow, an older one for instance, is asked again this often. */
const AGAIN = '1 min';

/** A new run after so many changes. */
const CHANGES_PER_RUN = 200;

/**
 * A host (`host:<id>`): its being open is the claim on the id, its memo says whose. It knows what the host's worker reports
 * and whether the host is drained, and has one activity open there, whose heartbeats tell what the host holds: no history
 * grows with time. It stays until somebody gives the id back, for a host that is away for a month is still that host.
 */
export async function serveHost(claim: HostClaim): Promise<void> {
  const { host, instance, machineId } = claim;
  const data: HostData = (claim.carried as HostData | undefined) ?? {};
  let released = false;
  let changes = 0;

  const status = (): HostStatus => ({ host, instance, machineId, ...data });
  const changed = (): HostStatus => {
    changes++;
    const { report, draining } = data;
    upsertMemo({ report, draining });
    setCurrentDetails(detailsTable(claim, status()));
    return status();
  };

  setHandler(hostStatusQuery, status, { description: 'What is known of the host.' });
  setHandler(releaseHostSignal, () => void (released = true), {
    description: 'Give the host id back. Only once the machine that it belongs to is gone for good.',
  });
  setHandler(
    hereSignal,
    (report) => {
      // Anybody may send a signal; what the id's instance does not say is not shown as the host's word.
      if (report?.instance !== instance) return log.warn('report dropped: it is not of this instance');
      data.report = report;
      data.unreachableSince = undefined;
      changed();
    },
    { description: 'Used by the host’s worker when it starts, and when its programs have changed.' },
  );
  setHandler(
    drainUpdate,
    (request?: DrainRequest) => {
      const { by, reason } = request ?? {};
      data.draining ??= { by: oneLine(by) || 'unknown', reason: oneLine(reason) || 'no reason given', at: Date.now() };
      return changed();
    },
    {
      description:
        'The host takes on no new resources; what it has goes on, restarts included. {"reason": "…", "by": "…"}',
    },
  );
  setHandler(
    undrainUpdate,
    () => {
      data.draining = undefined;
      return changed();
    },
    { description: 'The host takes on new resources again.' },
  );
  setCurrentDetails(detailsTable(claim, status()));

  while (!released && changes < CHANGES_PER_RUN) {
    const seen = changes;
    const over = (): boolean => released || changes !== seen;
    const outcome = await serve(claim, data, over);
    if (outcome === 'unreachable') data.unreachableSince ??= Date.now();
    else if (outcome === 'here') data.unreachableSince = undefined;
    else if (outcome === 'failed') await condition(over, AGAIN, { summary: 'wait before the host is asked again' });
    setCurrentDetails(detailsTable(claim, status()));
  }
  if (released) return;
  const continueAsNew = makeContinueAsNewFunc<typeof serveHost>({
    workflowType: HOST_WORKFLOW,
    memo: workflowInfo().memo,
  });
  await continueAsNew({ ...claim, carried: data });
}

/** Has the host serve, until there is something new for it to know, or its heartbeats are missed. */
async function serve(
  { host, instance, taskQueue }: HostClaim,
  { draining, unreachableSince }: HostData,
  over: () => boolean,
): Promise<'over' | 'here' | 'unreachable' | 'failed'> {
  const { [ActivityName.serveHost]: activity } = proxyActivities<HostActivities & Record<string, ActivityFunction>>({
    taskQueue: hostTaskQueue(taskQueue, host),
    summary: `serve host ${host}`,
    startToCloseTimeout: '3650 days',
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    retry: { maximumAttempts: 1 },
    cancellationType: ActivityCancellationType.TRY_CANCEL,
  });
  const scope = new CancellationScope();
  let outcome: 'here' | 'unreachable' | 'failed' | undefined;
  const serving = scope
    .run(() => activity({ host, instance, draining: draining?.reason, greet: unreachableSince !== undefined }))
    .then(() => void (outcome = 'here'))
    .catch((error: unknown) => {
      if (!isCancellation(error)) outcome = timeoutOf(error) ? 'unreachable' : 'failed';
    });
  await condition(() => outcome !== undefined || over());
  if (outcome !== undefined) return outcome;
  scope.cancel();
  await serving;
  return 'over';
}

/** The facts of a host, for a person who looks at it in the UI. */
function detailsTable({ taskQueue }: HostClaim, { host, instance, machineId, ...known }: HostStatus): string {
  const { report, draining, unreachableSince } = known;
  const { units = 'any', memoryBytes = 'any' } = report?.capacity ?? {};
  const rows: [string, string | undefined][] = [
    ['host', host],
    ['unreachable since', unreachableSince === undefined ? undefined : new Date(unreachableSince).toISOString()],
    ['draining', draining && `since ${new Date(draining.at).toISOString()}, by ${draining.by}: ${draining.reason}`],
    ['instance', instance],
    ['machine', machineId],
    ['task queue', taskQueue],
    ['boot', report?.bootId],
    ['version', report?.version],
    ['programs', report?.programs.join(', ')],
    ['takes on', report && `${units} units, ${memoryBytes} bytes of memory`],
  ];
  const lines = rows.flatMap(([name, value]) =>
    value === undefined ? [] : [`| ${name} | ${value.replace(/[|\r\n]/g, ' ')} |`],
  );
  return ['| | |', '|---|---|', ...lines].join('\n');
}
