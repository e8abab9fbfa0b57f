import { resolve } from 'node:path';
import type { StopAnswer } from '../../src/contract/activities';
import type { Placement } from '../../src/contract/facts';
import { collectOutput } from '../support/command';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';

const support = resolve(__dirname, '../support');

describeOnPrivateHost('an unprivileged user with a manager of their own', () => {
  const suite = new HostSuite();

  it('has the main job done: start, hold, lease, stop until proven (G2, G3, G7)', async () => {
    const user = await suite.machine.userManager('nobody');
    const { runDirectory, stateDirectory, unitPrefix } = user;
    const child = user.spawn(
      [
        process.execPath,
        '--require',
        `${support}/typescript-hook.js`,
        `${support}/unprivileged-worker.ts`,
        JSON.stringify({ runDirectory, stateDirectory, unitPrefix }),
      ],
      { cwd: '/' },
    );
    const { stdout, stderr, code } = await collectOutput(child);
    expect({ stderr, code }).toEqual({ stderr: '', code: 0 });
    const told = JSON.parse(stdout) as {
      uid: number;
      placement: Placement;
      unit: object;
      stopped: StopAnswer;
      unheld: object;
    };
    expect(told.uid).toBe(user.uid);
    expect(told.unit).toEqual({ ActiveState: 'active', InvocationID: told.placement.invocation });
    expect(told.stopped).toMatchObject({ proof: { by: 'empty' }, exit: { wording: 'signal 15' } });
    // Nobody answered for the other one: its manager ended it, TERM ignored or not.
    expect(told.unheld).toEqual({ kind: 'ended', exit: 'unowned' });
    const loaded = (): Promise<string> => user.systemctl('list-units', '--all', '--plain', '--no-legend', 'own-*');
    await eventually(async () => (await loaded()) === '');
    await user.end();
  });
});
