import { Moments } from '../chaos/moments';
import type { TraceLine } from '../support/oracle';

const moments = new Moments();
moments.movedOut.push({ resource: 'db', pid: 7, from: 100, to: 200 });

const line = (at: number, change: Partial<TraceLine> = {}): TraceLine => {
  return { resource: 'db', generation: 1, pid: 7, bootId: 'boot', at, event: 'tick', ...change };
};

describe('a process that other hands have moved out of its cgroup', () => {
  it('does not count from there on until they have ended it, and counts before and afterwards', () => {
    const before = line(99);
    const afterwards = line(201);
    expect(moments.accountable([before, line(100), line(150), line(200), afterwards])).toEqual([before, afterwards]);
  });

  it('does not make others of its resource count less, nor those of other resources', () => {
    const others = [
      line(150, { pid: 8 }),
      line(150, { resource: 'web' }),
      line(150, { resource: 'web', event: 'beside' }),
    ];
    expect(moments.accountable(others)).toEqual(others);
  });

  it('may hold the lock of its resource as long as it lives, beside the next generation', () => {
    const begins = line(150, { pid: 8, generation: 2, event: 'start' });
    const late = line(201, { pid: 9, generation: 3, event: 'beside' });
    const lines = [begins, line(150, { pid: 8, generation: 2, event: 'beside' }), late];
    expect(moments.accountable(lines)).toEqual([begins, late]);
  });
});
