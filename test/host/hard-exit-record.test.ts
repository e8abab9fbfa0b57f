import { escapeResource, leaseUnits } from '../../src/contract/names';
import type { ExitReport } from '../../src/contract/facts';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';

describeOnPrivateHost('an exit record that the process itself has made', () => {
  const suite = new HostSuite();

  /** The report of a process that did something to `record`, its exit record, before it exited with 3. */
  async function reportOf(trick: string, forget: boolean): Promise<ExitReport> {
    const resource = suite.resource();
    const directory = `${suite.machine.runDirectory}/own/${escapeResource(resource)}/g$OWNED_GENERATION/exit`;
    const tricky = script('tricky', `record=${directory}/record; ${trick}; sleep 0.2; exit 3`, {
      user: 'nobody',
      stop: { signal: 'SIGTERM', timeoutMs: 500, killMode: 'control-group' },
    });
    const worker = await suite.worker([tricky]);
    const placement = await worker.start(resource, 'tricky');
    worker.link.completion = 'unknown'; // so that the hold stays, and nothing is proven before it is asked
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await eventually(async () => (await worker.unit(placement.unit, 'ActiveState'))?.ActiveState === 'failed');
    // Without the unit's own word the record is all that there is.
    if (forget) {
      await suite.machine.systemctl('stop', leaseUnits(placement.unit, 1).timer); // which keeps it loaded
      await suite.machine.systemctl('reset-failed', placement.unit);
      await eventually(async () => (await worker.unit(placement.unit, 'ActiveState')) === undefined);
    }
    return (await worker.stopUntilProven(resource, placement)).exit;
  }

  it('says nothing against the unit’s own word (G8)', async () => {
    const forged = `echo '{"result":"success","code":"exited","status":"0"}' > "$record"; chmod 444 "$record"`;
    expect(await reportOf(forged, false)).toMatchObject({ wording: 'exit 3 (exit-code)', source: 'unit' });
  });

  it('is what is left once other hands have made systemd forget the unit (G8)', async () => {
    expect(await reportOf('true', true)).toMatchObject({ wording: 'exit 3 (exit-code)', source: 'exit record' });
  });

  it.each([
    ['has a megabyte', 'head -c 1000000 /dev/zero > "$record"; chmod 444 "$record"', 'unknown: no exit record'],
    ['is a link to a secret', 'ln -s /etc/shadow "$record"', 'unknown: no exit record'],
    ['is a directory', 'mkdir "$record"', 'unknown: no exit record'],
    ['is a pipe that nobody reads', 'mkfifo "$record"', 'unknown: no exit record'],
    [
      'has control characters',
      `printf '{"result":"\\\\u001b[31m","code":"\\\\u0007","status":"9"}' > "$record"; chmod 444 "$record"`,
      'unknown: unreadable exit record',
    ],
  ])('and that %s makes the end unknown, and never a success (G8)', async (_what, trick, wording) => {
    expect(await reportOf(trick, true)).toMatchObject({ wording, kind: 'unknown' });
  });
});
