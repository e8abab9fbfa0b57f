import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { generationUnit } from '../../src/contract/names';
import type { Rung } from '../../src/contract/activities';
import { StillRunningError } from '../../src/host/host';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { processesOf } from '../support/unit-processes';

const stop = { signal: 'SIGTERM', timeoutMs: 500, killMode: 'control-group' } as const;
const rungs: readonly Rung[] = ['stop', 'kill', 'cgroup-kill'];

/** So many processes at most; few, for they share the machine with other tests. */
const MOST = 60;

/** Each process ignores TERM and begets one at once, and one more every 0.2 s, each in a session of its own. */
const bomb = `export BOMB='trap "" TERM
while :
do setsid sh -c "$BOMB" 2>/dev/null &
sleep 0.2
done'
exec sh -c "$BOMB" 2>/dev/null`;

describeOnPrivateHost('stopping what does not move, and what does not hold still', () => {
  const suite = new HostSuite();

  it.each(rungs)('ends processes that stand still under SIGSTOP: %s (G3)', async (rung) => {
    const text = 'trap "exit 7" TERM; sleep 9999 & wait';
    const worker = await suite.worker([script('still', text, { stop })]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'still');
    await eventually(async () => (await processesOf(suite.machine, resource)).length === 2);
    await suite.machine.systemctl('kill', '--signal=STOP', placement.unit);
    await eventually(async () => {
      const error: unknown = await worker.stop(resource, placement, { rung: 'watch' }).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(StillRunningError);
      return (error as StillRunningError).details.processes.every(({ state }) => state === 'T');
    });

    const { proof, exit } = await worker.stopUntilProven(resource, placement, { rung });
    expect(proof.by).toBe('empty');
    // TERM alone would stay pending: systemd sends CONT behind it, and the process has its own last words.
    expect(exit.wording).toBe(rung === 'stop' ? 'exit 7 (exit-code)' : 'signal 9');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });

  // TasksMax= needs the pids controller in the cgroup2 tree, which a hybrid machine has elsewhere: there it limits nothing. The
  // limit of a user's processes makes fork(2) fail in the same way, with EAGAIN.
  it.each(rungs)('ends a fork bomb that has filled its tasks limit: %s (G3)', async (rung) => {
    const worker = await suite.worker([script('bomb', bomb, { stop, user: 'games', limits: { tasks: MOST } })]);
    const resource = suite.resource();
    const generation = Date.now();
    const folder = join(suite.machine.root, 'run/systemd/system', `${generationUnit('own', resource, generation)}.d`);
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, 'limit.conf'), `[Service]\nLimitNPROC=${MOST}\n`);
    const placement = await worker.start(resource, 'bomb', { generation });
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await eventually(async () => (await processesOf(suite.machine, resource)).length > MOST - 5);
    expect((await processesOf(suite.machine, resource)).length).toBeLessThanOrEqual(MOST);

    const { proof } = await worker.stopUntilProven(resource, placement, { rung });
    expect(proof).toMatchObject({ by: 'empty', invocation: placement.invocation });
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });
});
