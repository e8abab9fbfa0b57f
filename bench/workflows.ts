import { condition, defineUpdate, proxyActivities, setHandler } from '@temporalio/workflow';

export * from '../src/workflows';

const { noop } = proxyActivities<{ noop(): Promise<void> }>({ startToCloseTimeout: '1 min' });

/** Temporal's own cost of so many activities, one after the other. */
export async function noopActivities(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await noop();
}

/** Temporal's own cost of an update that is followed by one activity and the workflow's end. */
export async function noopUpdate(): Promise<void> {
  let asked = false;
  setHandler(defineUpdate('go'), () => void (asked = true));
  await condition(() => asked);
  await noop();
}
