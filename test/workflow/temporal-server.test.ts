import { openOwnTemporalServer, openTemporalServer, type TemporalServer } from '../support/temporal-server';

describe('the Temporal server of a test run', () => {
  let first: TemporalServer;
  let second: TemporalServer;

  beforeAll(async () => {
    [first, second] = await Promise.all([openTemporalServer(), openTemporalServer()]);
  });
  afterAll(() => Promise.all([first.stop(), second.stop()]));

  it('is one for all who open it, each with connections and a task queue of its own', async () => {
    expect(second.address).toBe(first.address);
    expect(second.taskQueue).not.toBe(first.taskQueue);

    const workflowId = first.taskQueue;
    await first.client.workflow.start('nobody-runs-this', { workflowId, taskQueue: first.taskQueue });
    const description = await second.client.workflow.getHandle(workflowId).describe();
    expect(description.status.name).toBe('RUNNING');
    await second.client.workflow.getHandle(workflowId).terminate();
  });
});

describe('a Temporal server of its own', () => {
  it('goes away and comes back with its state, on the same address', async () => {
    const server = await openOwnTemporalServer();
    try {
      const workflowId = server.taskQueue;
      const handle = await server.client.workflow.start('nobody-runs-this', { workflowId, taskQueue: workflowId });

      await server.shutDown('SIGKILL');
      await expect(server.connection.withDeadline(Date.now() + 200, () => handle.describe())).rejects.toThrow();

      await server.startAgain();
      expect((await handle.describe()).status.name).toBe('RUNNING');
    } finally {
      await server.stop();
    }
  });
});
