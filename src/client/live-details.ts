import type { Client, WorkflowExecutionDescription } from '@temporalio/client';
import { ActivityName, type HoldDetails } from '../contract/activities';

/**
 * The details of the newest heartbeat of the owner's hold: a workflow can't see them, a description of it carries them.
 * Undefined where there is no hold, or none that has been heard from yet.
 */
export async function liveDetails(
  client: Client,
  { raw }: WorkflowExecutionDescription,
): Promise<(HoldDetails & { readonly heartbeatAt: number }) | undefined> {
  const holds = (raw.pendingActivities ?? []).filter((a) => a.activityType?.name === ActivityName.holdOwnership);
  const hold = holds.find((a) => a.heartbeatDetails?.payloads?.length);
  if (!hold) return undefined;
  let payloads = hold.heartbeatDetails!.payloads!;
  const { payloadCodecs, payloadConverter } = client.options.loadedDataConverter;
  // A codec wraps what comes before it, so the last one is undone first.
  for (const codec of [...payloadCodecs].reverse()) payloads = await codec.decode(payloads);
  const details = payloadConverter.fromPayload<HoldDetails>(payloads[0]!);
  const at = hold.lastHeartbeatTime;
  return { ...details, heartbeatAt: Number(at?.seconds ?? 0) * 1000 + Math.floor((at?.nanos ?? 0) / 1e6) };
}
