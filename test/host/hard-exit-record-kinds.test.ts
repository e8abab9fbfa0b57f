import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { escapeResource, leaseUnits } from '../../src/contract/names';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, script } from '../support/owned-host';
import { processesOf } from '../support/unit-processes';

const success = `printf '{"result":"success","code":"exited","status":"0"}'`;

describeOnPrivateHost('an exit record', () => {
  const suite = new HostSuite();

  const directoryOf = (resource: string, generation: string): string =>
    `${suite.machine.runDirectory}/own/${escapeResource(resource)}/g${generation}/exit`;

  /** A shell text that finds its own exit record as `$record`. */
  const withRecord = (resource: string, text: string): string =>
    `record=${directoryOf(resource, '$OWNED_GENERATION')}/record; ${text}`;

  it.each([
    ['is a device', 'mknod "$record" c 1 5', 'root', 'unknown: no exit record'], // /dev/zero
    [
      'is a link to one of success',
      `${success} > "$record-2"; ln -s record-2 "$record"; chmod 444 "$record-2"`,
      'nobody',
      'unknown: no exit record',
    ],
    [
      'is a socket',
      `perl -MIO::Socket::UNIX -e 'IO::Socket::UNIX->new(Local => shift, Listen => 1) or die' "$record"`,
      'nobody',
      'unknown: no exit record',
    ],
    [
      'says success in a terabyte',
      `${success} > "$record"; printf %5000s >> "$record"; truncate -s 1T "$record"`,
      'nobody',
      'unknown: no exit record',
    ],
    ['is a number', 'echo 0 > "$record"', 'nobody', 'unknown: no exit record'],
    ['is cut short', `${success} | head -c 40 > "$record"`, 'nobody', 'unknown: no exit record'],
    ['is a list', `echo "[$(${success})]" > "$record"`, 'nobody', 'unknown: unreadable exit record'],
    [
      'has a number for a text',
      `echo '{"result":"success","code":"exited","status":0}' > "$record"`,
      'nobody',
      'unknown: unreadable exit record',
    ],
    [
      'has a status that is none',
      `echo '{"result":"success","code":"exited","status":"-0"}' > "$record"`,
      'nobody',
      'unknown: unreadable exit record',
    ],
  ])('that %s makes the end unknown, and never a success (G8)', async (_what, trick, user, wording) => {
    const resource = suite.resource();
    // Read-only, so that systemd's own last words are not written over it.
    const end = 'until test -e "$record-end"; do sleep 0.02; done; exit 3';
    const text = withRecord(resource, `${trick}; chmod -f 444 "$record"; ${end}`);
    const worker = await suite.worker([script('tricky', text, { user })]);
    const placement = await worker.start(resource, 'tricky');
    worker.link.completion = 'unknown'; // so that the hold stays, and nothing is proven before it is asked
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await writeFile(join(suite.machine.root, directoryOf(resource, String(placement.generation)), 'record-end'), '');
    await eventually(async () => (await worker.unit(placement.unit, 'ActiveState'))?.ActiveState === 'failed');
    // Other hands make systemd forget the unit: without its own word the record is all that there is.
    await suite.machine.systemctl('stop', leaseUnits(placement.unit, 1).timer); // which keeps it loaded
    await suite.machine.systemctl('reset-failed', placement.unit);
    await eventually(async () => (await worker.unit(placement.unit, 'ActiveState')) === undefined);
    expect((await worker.stopUntilProven(resource, placement)).exit).toMatchObject({ wording, kind: 'unknown' });
  });

  it('of success that a living process writes is no end: it is still running, and ends by the unit’s own word (G4, G8)', async () => {
    const resource = suite.resource();
    const forging = withRecord(resource, `trap "" TERM; while :; do ${success} > "$record"; sleep 0.02; done`);
    const stop = { signal: 'SIGTERM', timeoutMs: 60_000, killMode: 'control-group' } as const;
    const worker = await suite.worker([script('forging', forging, { user: 'nobody', stop })]);
    const placement = await worker.start(resource, 'forging');
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    for (const rung of ['watch', 'stop', 'watch'] as const) {
      await expect(worker.stop(resource, placement, { rung })).rejects.toThrow('populated 1');
    }
    expect(worker.link.events).toEqual([]);
    const { exit, proof } = await worker.stopUntilProven(resource, placement, { rung: 'kill' });
    expect(exit).toMatchObject({ wording: 'signal 9', source: 'unit' });
    expect(proof.by).toBe('empty');
    expect(await processesOf(suite.machine, resource)).toEqual([]);
  });
});
