import fc from 'fast-check';
import { prove, type ProofSubject, type Readings, type Verdict } from '../../src/host/proof';

const subject: ProofSubject = { instance: 'i', bootId: 'b2', generation: 7, invocation: 'abc', cgroupId: '42' };

/** Readings that prove the subject dead: each test spoils one of them. */
const clear: Readings = {
  instance: 'i',
  bootId: 'b2',
  bootIds: ['b1', 'b2', 'b3'],
  units: { kind: 'list', list: [] },
  cgroup: { kind: 'gone', error: 'ENOENT' },
  root: { kind: 'ids', cgroupId: '5', controlGroupId: '5' },
  readAt: 1,
};

const unit = (activeState: string, subState = 'x', jobType = ''): Readings['units'] => ({
  kind: 'list',
  list: [{ name: 'own-x-g7.service', activeState, subState, jobType }],
});

function reasonsOf(verdict: Verdict): string {
  if (verdict.proven) throw new Error('proven');
  return verdict.reasons.join('; ');
}

describe('the proof rule', () => {
  it.each<[string, Partial<Readings>, Record<string, unknown>]>([
    ['the cgroup is gone', {}, { units: 'none loaded', cgroup: 'ENOENT' }],
    ['its open file says so', { cgroup: { kind: 'gone', error: 'ENODEV' } }, { cgroup: 'ENODEV' }],
    ['the cgroup is empty', { cgroup: { kind: 'empty' } }, { cgroup: 'populated 0' }],
    ['its unit is inactive', { units: unit('inactive', 'dead') }, { units: 'own-x-g7.service inactive (dead)' }],
    ['its unit is failed', { units: unit('failed', 'failed') }, { units: 'own-x-g7.service failed (failed)' }],
  ])('holds when %s, and keeps both raw readings (G3)', (_what, change, record) => {
    expect(prove(subject, { ...clear, ...change })).toEqual({
      proven: true,
      proof: {
        by: 'empty',
        instance: 'i',
        bootId: 'b2',
        generation: 7,
        invocation: 'abc',
        cgroupId: '42',
        units: 'none loaded',
        cgroup: 'ENOENT',
        readAt: 1,
        ...record,
      },
    });
  });

  it.each<[string, Partial<Readings>, RegExp]>([
    ['cgroup.events can’t be read', { cgroup: { kind: 'unknown', error: 'EIO' } }, /could not be read: EIO/],
    ['the cgroup is populated', { cgroup: { kind: 'populated' } }, /populated 1/],
    ['systemd gives no answer', { units: { kind: 'unknown', error: 'timed out' } }, /could not be asked: timed out/],
    ['the root has another inode', { root: { kind: 'ids', cgroupId: '5', controlGroupId: '6' } }, /wrong cgroup root/],
    [
      'the root has no ControlGroupId',
      { root: { kind: 'ids', cgroupId: '5', controlGroupId: '' } },
      /wrong cgroup root/,
    ],
    ['neither has an identity', { root: { kind: 'ids', cgroupId: '0', controlGroupId: '0' } }, /no identity/],
    ['both identities are empty', { root: { kind: 'ids', cgroupId: '', controlGroupId: '' } }, /no identity/],
    ['the root can’t be read', { root: { kind: 'unknown', error: 'ENOENT' } }, /could not be verified: ENOENT/],
    ['another instance answers', { instance: 'j' }, /comes from instance j/],
    ['the boot was never seen', { bootId: 'b9' }, /not known to be an earlier one/],
    ['the boot can’t be read', { bootId: '' }, /not known to be an earlier one/],
    ['the boot is an earlier one', { bootId: 'b1' }, /not known to be an earlier one/],
  ])('does not hold when %s (G4)', (_what, change, reason) => {
    expect(reasonsOf(prove(subject, { ...clear, ...change }))).toMatch(reason);
  });

  it.each([
    ['active', 'running', ''],
    ['active', 'exited', ''],
    ['activating', 'start', ''],
    ['deactivating', 'stop-sigterm', ''],
    ['reloading', 'reload', ''],
    ['maintenance', 'x', ''],
    ['something-new', 'x', ''],
    ['', '', ''],
    ['inactive', 'dead', 'start'],
    ['failed', 'failed', 'stop'],
  ])('does not hold while a unit is %s (%s) with job "%s" (G3, G4)', (active, sub, job) => {
    expect(reasonsOf(prove(subject, { ...clear, units: unit(active, sub, job) }))).toContain(`${active} (${sub})`);
  });

  it('takes a later boot of the same instance for the proof, whatever else was read (G3)', () => {
    const readings: Readings = { ...clear, bootId: 'b3', cgroup: { kind: 'unknown', error: 'EIO' } };
    expect(prove(subject, readings)).toMatchObject({ proven: true, proof: { by: 'reboot', bootId: 'b3' } });
    expect(prove({ ...subject, bootId: 'unknown' }, readings).proven).toBe(false);
    expect(prove({ ...subject, instance: 'j' }, readings).proven).toBe(false);
    expect(prove(subject, { ...readings, bootIds: ['b3', 'b2'] }).proven).toBe(false);
  });

  it('over all combinations of readings never holds where one is unknown, populated or of another host (G4)', () => {
    const states = [
      'inactive',
      'failed',
      'active',
      'activating',
      'deactivating',
      'reloading',
      'maintenance',
      'new',
      '',
    ];
    const unknown = fc.record({ kind: fc.constant('unknown' as const), error: fc.string() });
    const unitReading = fc.record({
      name: fc.constant('own-x-g7.service'),
      activeState: fc.constantFrom(...states),
      subState: fc.constantFrom('dead', 'exited', 'running'),
      jobType: fc.constantFrom('', 'start', 'stop'),
    });
    const id = fc.constantFrom('', '0', '5', '6');
    const boot = fc.constantFrom('', 'b1', 'b2', 'b3');
    const readings: fc.Arbitrary<Readings> = fc.record({
      instance: fc.constantFrom('i', 'j'),
      bootId: boot,
      bootIds: fc.uniqueArray(fc.constantFrom('b1', 'b2', 'b3')),
      units: fc.oneof(
        unknown,
        fc.record({ kind: fc.constant('list' as const), list: fc.array(unitReading, { maxLength: 3 }) }),
      ),
      cgroup: fc.oneof(
        unknown,
        fc.record({ kind: fc.constant('gone' as const), error: fc.constantFrom('ENOENT' as const, 'ENODEV' as const) }),
        fc.record({ kind: fc.constantFrom('empty' as const, 'populated' as const) }),
      ),
      root: fc.oneof(unknown, fc.record({ kind: fc.constant('ids' as const), cgroupId: id, controlGroupId: id })),
      readAt: fc.nat(),
    });
    const subjects = fc.record({
      instance: fc.constantFrom('i', 'j'),
      bootId: boot,
      generation: fc.nat(),
      invocation: fc.constantFrom('', 'abc'),
      cgroupId: fc.constantFrom('', '42'),
    });
    let proofs = 0;
    fc.assert(
      fc.property(subjects, readings, (of, read) => {
        const verdict = prove(of, read);
        if (!verdict.proven) return expect(verdict.reasons.length).toBeGreaterThan(0);
        proofs++;
        expect(read.instance).toBe(of.instance);
        if (verdict.proof.by === 'reboot') {
          expect(read.bootIds.indexOf(read.bootId)).toBeGreaterThan(read.bootIds.indexOf(of.bootId));
          expect(read.bootIds).toContain(of.bootId);
          return;
        }
        expect(read.bootId).toBe(of.bootId);
        expect(['gone', 'empty']).toContain(read.cgroup.kind);
        if (read.root.kind !== 'ids' || read.units.kind !== 'list') throw new Error('proven by what is unknown');
        expect(read.root.cgroupId).toBe(read.root.controlGroupId);
        expect(Number(read.root.cgroupId)).toBeGreaterThan(0);
        for (const { activeState, jobType } of read.units.list) {
          expect(['inactive', 'failed']).toContain(activeState);
          expect(jobType).toBe('');
        }
      }),
      { numRuns: 20_000 },
    );
    expect(proofs).toBeGreaterThan(100); // it has to hold sometimes, or this says nothing
  });
});
