import { condition, defineSignal, setCurrentDetails, setHandler } from '@temporalio/workflow';
import type { HostClaim } from '../contract/host';

/**
 * A host's claim on its id (`host:<id>`): its being open is the claim, its memo says whose. It stays until somebody
 * gives the id back, for a host that is away for a month is still that host.
 */
export async function claimHost(claim: HostClaim): Promise<void> {
  let released = false;
  setHandler(defineSignal('release'), () => void (released = true), {
    description: 'Give the host id back. Only once the machine that it belongs to is gone for good.',
  });
  setCurrentDetails(
    [
      '| host | instance | machine | task queue |',
      '|---|---|---|---|',
      `| ${claim.host} | ${claim.instance} | ${claim.machineId} | ${claim.taskQueue} |`,
    ].join('\n'),
  );
  await condition(() => released);
}
