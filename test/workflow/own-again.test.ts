import { Worker } from '@temporalio/worker';
import { OwnershipClient } from '../../src/client';
import { ownerWorkflowId } from '../../src/contract/names';
import { workflowBundle } from '../support/running-worker';
import { openTemporalServer, type TemporalServer } from '../support/temporal-server';
import { until } from '../support/until';

describe('own', () => {
  let server: TemporalServer;
  beforeAll(async () => void (server = await openTemporalServer()));
  afterAll(() => server?.stop());

  it('that was about to join an owner which ended meanwhile has another one (G1)', async () => {
    const { taskQueue, namespace, nativeConnection: connection } = server;
    const resource = `again/${taskQueue}`;
    const client = new OwnershipClient(server.client, { taskQueue, timeout: '1 min' });
    const workflow = server.client.workflow.getHandle(ownerWorkflowId(resource));
    // There is no worker yet, so the request waits for its answer.
    const owning = client.own({ resource, program: 'any', host: 'none' });
    const first = await until('an owner was started', async () => (await workflow.describe()).runId);
    await workflow.terminate('for the test');
    await until('another one was started', async () => (await workflow.describe()).runId !== first);

    const worker = await Worker.create({ connection, namespace, taskQueue, workflowBundle: await workflowBundle() });
    await worker.runUntil(async () => {
      const { handle, outcome } = await owning;
      expect(outcome).toBe('started');
      expect(handle.ownerId).not.toBe(first);
      await workflow.terminate('for the test');
    });
  });
});
