import type { Client, WorkflowExecutionDescription } from '@temporalio/client';
import { ActivityName, type HoldDetails } from '../contract/activities';
import type { HostDetails } from '../contract/host';

/** What an activity told with its newest heartbeat, and when (epoch ms). */
export type Heartbeat<T> = T & { readonly heartbeatAt: number };

/** The details of the newest heartbeat of an owner's hold. */
export function liveDetails(
  client: Client,
  owner: WorkflowExecutionDescription,
): Promise<Heartbeat<HoldDetails> | undefined> {
  return newestHeartbeat(client, owner, ActivityName.holdOwnership);
}

/** The details of the newest heartbeat of a host. */
export function hostDetails(
  client: Client,
  host: WorkflowExecutionDescription,
): Promise<Heartbeat<HostDetails> | undefined> {
  return newestHeartbeat(client, host, ActivityName.serveHost);
}

/**
 * A workflow can't see the heartbeats of its activities, a description of it carries them. Undefined where there is no such
 * activity, or none that has been heard from yet.
 */
async function newestHeartbeat<T extends object>(
  client: Client,
  { raw }: WorkflowExecutionDescription,
  activity: string,
): Promise<Heartbeat<T> | undefined> {
  const pending = (raw.pendingActivities ?? []).filter((a) => a.activityType?.name === activity);
  const heard = pending.find((a) => a.heartbeatDetails?.payloads?.length);
  if (!heard) return undefined;
  let payloads = heard.heartbeatDetails!.payloads!;
  const { payloadCodecs, payloadConverter } = client.options.loadedDataConverter;
  // A codec wraps what comes before it, so the last one is undone first.
  for (const codec of [...payloadCodecs].reverse()) payloads = await codec.decode(payloads);
  const details = payloadConverter.fromPayload<T>(payloads[0]!);
  const at = heard.lastHeartbeatTime;
  return { ...details, heartbeatAt: Number(at?.seconds ?? 0) * 1000 + Math.floor((at?.nanos ?? 0) / 1e6) };
}
