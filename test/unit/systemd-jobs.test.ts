import { Jobs, type JobClass, type Slot } from '../../src/systemd/jobs';
import { SystemdError } from '../../src/systemd/port';

const LIMIT = 24;

/** Jobs, and a way to take slots that tells which were given. */
function jobsWithLog(queueTimeoutMs = 60_000) {
  const jobs = new Jobs(LIMIT, queueTimeoutMs);
  const given: Slot[] = [];
  const take = (jobClass: JobClass, label = jobClass): Promise<void> =>
    jobs.take(jobClass, label).then((slot) => void given.push(slot));
  const labels = (): string[] => given.map(({ label }) => label);
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
  return { jobs, given, take, labels, turn };
}

describe('slots', () => {
  test('starts leave room for stops, and both leave room for lease timers', async () => {
    const { jobs, take, labels, turn } = jobsWithLog();
    const inFlight = (jobClass: JobClass): number => labels().filter((label) => label === jobClass).length;
    for (const jobClass of ['start', 'stop', 'timer'] as const) {
      for (let n = 0; n < 2 * LIMIT; n++) take(jobClass).catch(() => undefined); // rejected by close()
    }
    await turn();
    expect([inFlight('start'), inFlight('stop'), inFlight('timer')]).toEqual([LIMIT - 16, 8, 8]);
    expect(jobs.inFlight).toBe(LIMIT);
    jobs.close();
  });

  test('a freed slot goes to timers first, then to stops, then to starts, each in order', async () => {
    const { jobs, given, take, labels, turn } = jobsWithLog();
    await Promise.all(Array.from({ length: LIMIT }, () => take('timer')));
    const waiting = ['start 1', 'start 2', 'stop 1', 'stop 2', 'timer 1', 'timer 2'];
    const taken = waiting.map((label) => take(label.split(' ')[0] as JobClass, label as JobClass));
    for (const slot of [...given]) jobs.free(slot);
    await Promise.all(taken);
    expect(labels().slice(LIMIT)).toEqual(['timer 1', 'timer 2', 'stop 1', 'stop 2', 'start 1', 'start 2']);
    await turn();
    expect(jobs.inFlight).toBe(6);
  });

  test('who waits in vain is told that nothing was sent', async () => {
    const { jobs, take } = jobsWithLog(10);
    await Promise.all(Array.from({ length: LIMIT }, () => take('timer')));
    await expect(take('timer')).rejects.toMatchObject({ kind: 'busy', message: expect.stringContaining('not sent') });
    expect(jobs.inFlight).toBe(LIMIT);
  });

  test('closing rejects who waits and who comes later', async () => {
    const { jobs, take } = jobsWithLog();
    await Promise.all(Array.from({ length: LIMIT }, () => take('timer')));
    const waiting = take('stop');
    jobs.close();
    await expect(waiting).rejects.toMatchObject({ kind: 'unknown' });
    await expect(take('stop')).rejects.toMatchObject({ kind: 'unknown' });
  });
});

describe('the end of a job', () => {
  const accepted = async (path: string) => {
    const jobs = new Jobs(LIMIT, 60_000);
    const slot = await jobs.take('stop', 'StopUnit db.service');
    jobs.accept(slot, path);
    return { jobs, done: slot.job!.done, slot };
  };

  test('is the result in JobRemoved', async () => {
    const { jobs, done } = await accepted('/job/1');
    jobs.removed('/job/2', 'failed');
    jobs.removed('/job/1', 'canceled');
    await expect(done).resolves.toBe('canceled');
    expect(jobs.inFlight).toBe(0);
  });

  test('may be read before the answer that names the job', async () => {
    const jobs = new Jobs(LIMIT, 60_000);
    const slot = await jobs.take('start', 'StartTransientUnit db.service');
    jobs.removed('/job/1', 'done');
    jobs.accept(slot, '/job/1');
    await expect(slot.job!.done).resolves.toBe('done');
    expect(jobs.inFlight).toBe(0);
  });

  test('is shared by two stops of one unit', async () => {
    const { jobs, done } = await accepted('/job/1');
    const second = await jobs.take('stop', 'StopUnit db.service');
    jobs.accept(second, '/job/1');
    jobs.removed('/job/1', 'done');
    await expect(Promise.all([done, second.job!.done])).resolves.toEqual(['done', 'done']);
  });

  test('G4: is unknown once the bus is lost, and the job keeps its slot until the manager no longer has it', async () => {
    const { jobs, done } = await accepted('/job/1');
    jobs.lost(new SystemdError('unknown', 'the bus went away'));
    await expect(done).rejects.toMatchObject({ kind: 'unknown', message: expect.stringContaining('db.service') });
    await jobs.recheck(async () => new Set(['/job/1']));
    expect(jobs.inFlight).toBe(1);
    await jobs.recheck(async () => new Set());
    expect(jobs.inFlight).toBe(0);
  });

  test('G4: is unknown when the manager no longer has the job and its JobRemoved never came', async () => {
    const { jobs, done } = await accepted('/job/1');
    await jobs.recheck(async () => new Set(['/job/9']));
    await expect(done).rejects.toMatchObject({ kind: 'unknown' });
    expect(jobs.inFlight).toBe(0);
  });

  test('is not decided by a list that was asked for before the job existed', async () => {
    const { jobs } = await accepted('/job/1');
    let answer: (jobs: ReadonlySet<string>) => void = () => undefined;
    const rechecked = jobs.recheck(() => new Promise((resolve) => (answer = resolve)));
    const later = await jobs.take('start', 'StartTransientUnit web.service');
    jobs.accept(later, '/job/2');
    answer(new Set());
    await rechecked;
    expect(jobs.inFlight).toBe(1);
    jobs.removed('/job/2', 'done');
    await expect(later.job!.done).resolves.toBe('done');
  });

  test('a call that was given up keeps its slot until the manager has answered a later question', async () => {
    const jobs = new Jobs(LIMIT, 60_000);
    const slot = await jobs.take('start', 'StartTransientUnit db.service');
    slot.abandoned = true;
    await expect(jobs.recheck(() => Promise.reject(new Error('no answer')))).rejects.toThrow('no answer');
    expect(jobs.inFlight).toBe(1);
    await jobs.recheck(async () => new Set());
    expect(jobs.inFlight).toBe(0);
  });
});
