import { checkLeases, merged, outlivedProofs, overlapsIn, parseTrace, type TraceLine } from '../support/oracle';

const boots = ['11111111-1111-1111-1111-111111111111', '22222222-2222-2222-2222-222222222222'] as const;

/** `generation pid boot microseconds event`, one a line. */
function trace(text: string): readonly TraceLine[] {
  const lines = text.trim().split('\n');
  return parseTrace(
    lines
      .map((line) => line.trim().split(' '))
      .map(([generation, pid, boot, at, event]) => `r ${generation} ${pid} ${boots[Number(boot)]} ${at} ${event}\n`)
      .join(''),
  ).lines;
}
const whats = (text: string): readonly string[] => overlapsIn(trace(text)).map(({ what }) => what);

describe('the oracle’s checker (G2)', () => {
  it('says nothing of generations that follow one another', () => {
    expect(whats('5 7 0 100 start\n5 7 0 120 tick\n5 7 0 130 end\n6 8 0 140 start\n6 8 0 160 tick')).toEqual([]);
  });

  it('says nothing of one that begins in the very moment in which the former ends', () => {
    expect(whats('5 7 0 100 start\n5 7 0 120 end\n6 8 0 120 start')).toEqual([]);
  });

  it('finds a generation that writes on when the next one has begun, with the lines that show it', () => {
    const found = overlapsIn(trace('5 7 0 100 start\n5 7 0 120 tick\n6 8 0 130 start\n5 7 0 140 tick\n6 8 0 150 tick'));
    expect(found.map(({ what }) => what)).toContain('a generation lived on when the next one had begun');
    expect(found[0]).toMatchObject({
      resource: 'r',
      evidence: [`r 5 7 ${boots[0]} 120 tick`, `r 6 8 ${boots[0]} 130 start`, `r 5 7 ${boots[0]} 140 tick`],
    });
  });

  it('finds one whose lines came into the file in order, by their clock', () => {
    expect(whats('5 7 0 100 start\n5 7 0 150 tick\n6 8 0 140 start\n6 8 0 160 tick')).toEqual([
      'a generation began before the last sign of life of the former',
    ]);
  });

  it('finds a process that began while another one had the lock, though that one wrote nothing', () => {
    expect(whats('5 7 0 100 start\n6 8 0 140 start\n6 8 0 141 beside')).toEqual([
      'a process began while another one of its resource lived',
    ]);
  });

  it('says nothing of a generation that was adopted: the same process writes on', () => {
    expect(whats('5 7 0 100 start\n5 7 0 120 tick\n5 7 0 900 tick\n5 7 0 920 end')).toEqual([]);
  });

  it('says nothing of a child that writes beside its parent', () => {
    expect(
      whats('5 7 0 100 start\n5 9 0 110 start\n5 7 0 120 tick\n5 9 0 119 tick\n5 7 0 140 end\n5 9 0 150 tick'),
    ).toEqual([]);
  });

  it('finds a child that outlives the start of the next generation', () => {
    expect(whats('5 7 0 100 start\n5 9 0 110 start\n5 7 0 140 end\n6 10 0 150 start\n5 9 0 160 tick')).toContain(
      'a generation lived on when the next one had begun',
    );
  });

  it('compares no clocks over a reboot, and finds what outlived it all the same', () => {
    expect(whats('5 7 0 5000 start\n5 7 0 5020 tick\n6 3 1 40 start\n6 3 1 60 tick')).toEqual([]);
    expect(whats('5 7 0 5000 start\n6 3 1 40 start\n5 7 0 5020 tick')).toContain(
      'a generation lived on when the next one had begun',
    );
  });

  it('finds a generation that is lower than the one before, and one that comes again after a reboot (G2)', () => {
    expect(whats('6 7 0 100 start\n6 7 0 110 end\n5 8 0 120 start')).toEqual(['a generation follows a later one']);
    expect(whats('6 7 0 100 start\n6 7 1 120 start')).toEqual(['a generation follows a later one']);
  });
});

describe('a trace', () => {
  const whole = `r 5 7 ${boots[0]} 100 start\n`;

  it('may end in half a line: its process was killed', () => {
    expect(parseTrace(`${whole}r 5 7 ${boots[0]} 12`)).toMatchObject({ lines: [{ at: 100 }], torn: 1 });
    expect(parseTrace(`${whole}r 5 7 ${boots[0]} 120 ti\n${whole}`)).toMatchObject({ lines: { length: 2 }, torn: 1 });
  });

  it('keeps a line that stands behind half of another one', () => {
    expect(parseTrace(`${whole}r 5 7 11${`r 6 8 ${boots[0]} 140 tick\n`}`)).toMatchObject({
      lines: [{ generation: 5 }, { generation: 6, pid: 8, at: 140, event: 'tick' }],
      torn: 1,
    });
  });

  it('counts no empty line, with which every process begins', () => {
    expect(parseTrace(`\n${whole}\n${whole}`)).toMatchObject({ lines: { length: 2 }, torn: 0 });
  });
});

describe('the end of leases (G7)', () => {
  const lines = trace('5 7 0 1000000 start\n5 7 0 5000000 tick\n5 7 0 9000000 tick');

  it('is kept by a process that is gone in time, and by one that begins after the silence', () => {
    expect(checkLeases(lines, [{ from: 9_010_000, to: 99_000_000 }], { allowedMs: 2000 })).toEqual({
      tested: 1,
      violations: [],
    });
    expect(checkLeases(lines, [{ from: 0, to: 900_000 }], { allowedMs: 10 })).toEqual({ tested: 0, violations: [] });
  });

  it('is put to the test by a silence that is long enough, and by no other', () => {
    expect(checkLeases(lines, [{ from: 9_010_000, to: 10_000_000 }], { allowedMs: 2000 }).tested).toBe(0);
  });

  it('is not kept by one that lives on in a silence, however many parts that has', () => {
    const parts = [
      { from: 5_500_000, to: 20_000_000 },
      { from: 4_000_000, to: 6_000_000 },
    ];
    expect(checkLeases(lines, parts, { allowedMs: 4000 }).violations).toMatchObject([
      { what: expect.stringContaining('5000 ms') as string, evidence: [{}, expect.stringContaining('9000000')] },
    ]);
    expect(merged(parts)).toEqual([{ from: 4_000_000, to: 20_000_000 }]);
  });

  it('counts from its start for a process that begins in the silence: it was asked for before', () => {
    const silence = [{ from: 0, to: 20_000_000 }];
    expect(checkLeases(lines, silence, { allowedMs: 8500 }).violations).toEqual([]);
    expect(checkLeases(lines, silence, { allowedMs: 7500 }).violations).toHaveLength(1);
  });

  it('waits while the host’s systemd is paused', () => {
    const silence = [{ from: 4_000_000, to: 20_000_000 }];
    const pausedTo = (to: number): number =>
      checkLeases(lines, silence, { allowedMs: 4000, paused: [{ from: 6_000_000, to }] }).violations.length;
    expect(pausedTo(7_500_000)).toBe(0);
    expect(pausedTo(6_500_000)).toBe(1);
  });
});

describe('a proof (G3)', () => {
  const lines = trace('5 7 0 1000000 start\n5 7 0 5000000 end\n6 8 0 6000000 start');
  const claim = { resource: 'r', generation: 5, readAt: 5_500_000 };

  it('stands where nothing of its generation or an earlier one wrote after it', () => {
    expect(outlivedProofs(lines, [claim])).toEqual([]);
  });

  it('does not stand where something did', () => {
    expect(outlivedProofs(lines, [{ ...claim, readAt: 4_000_000 }])).toMatchObject([{ resource: 'r' }]);
    expect(outlivedProofs(lines, [{ ...claim, generation: 6 }])).toHaveLength(1);
  });
});
