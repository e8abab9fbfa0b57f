import { randomUUID } from 'node:crypto';
import type { Client } from '@temporalio/client';
import { connectSystemd } from '../src/systemd/dbus-systemd';
import type { TransientUnit, UnitSetting } from '../src/systemd/port';
import type { TestHost } from '../test/support/test-host';
import { Samples } from './samples';

/** What is compared against: the limits of systemd and of Temporal, and a design that polls. */
export interface Limits {
  readonly systemdStart: Samples;
  readonly systemdStop: Samples;
  /** Of a unit that runs a command after its end, as ours do for the exit record. */
  readonly systemdStopPost: Samples;
  readonly oneActivity: Samples;
  readonly twoActivities: Samples;
  readonly updateWithActivity: Samples;
  readonly pollingStop: Samples;
}

/** Rounds of everything, and `ours` in each, side by side, so that what the machine does meanwhile hits all alike. */
export async function measureLimits(
  testHost: TestHost,
  client: Client,
  taskQueue: string,
  rounds: number,
  ours: (round: number) => Promise<void>,
): Promise<Limits> {
  const limits: Limits = {
    systemdStart: new Samples('(a) systemd alone: start'),
    systemdStop: new Samples('(a) systemd alone: stop'),
    systemdStopPost: new Samples('(a) the same, with an ExecStopPost'),
    oneActivity: new Samples('(b) Temporal alone: one activity'),
    twoActivities: new Samples('(b) Temporal alone: two activities'),
    updateWithActivity: new Samples('(b) Temporal alone: update, one activity'),
    pollingStop: new Samples('(d) polling once a second: stop seen'),
  };
  const systemd = await connectSystemd({ busAddress: testHost.busAddress });
  try {
    for (let round = 0; round < rounds; round++) {
      const unit = sleeper(`bench-${round}.service`);
      await limits.systemdStart.timeAtRest(async () => (await systemd.startTransientUnit(unit, [])).done);
      await limits.systemdStop.timeAtRest(async () => (await systemd.stopUnit(unit.name)).done);
      const post = sleeper(`bench-post-${round}.service`, [
        'ExecStopPost',
        'a(sasb)',
        [['/bin/true', ['/bin/true'], false]],
      ]);
      await (
        await systemd.startTransientUnit(post, [])
      ).done;
      await limits.systemdStopPost.timeAtRest(async () => (await systemd.stopUnit(post.name)).done);

      for (const [count, samples] of [
        [1, limits.oneActivity],
        [2, limits.twoActivities],
      ] as const) {
        await samples.timeAtRest(() =>
          client.workflow.execute('noopActivities', { taskQueue, workflowId: `noop-${randomUUID()}`, args: [count] }),
        );
      }
      const handle = await client.workflow.start('noopUpdate', { taskQueue, workflowId: `noop-${randomUUID()}` });
      await limits.updateWithActivity.timeAtRest(async () => {
        await handle.executeUpdate('go');
        await handle.result();
      });
      await ours(round);
    }
    await measurePolling(testHost, Math.min(rounds, 20), limits.pollingStop);
    return limits;
  } finally {
    await systemd.close();
  }
}

/** The common way: `systemctl show` once a second until the unit is no longer active. The stops come at any moment of it. */
async function measurePolling(testHost: TestHost, rounds: number, samples: Samples): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    const unit = `bench-poll-${round}.service`;
    await testHost.run([
      'systemd-run',
      ...(testHost.manager === 'user' ? ['--user'] : []),
      `--unit=${unit}`,
      '/bin/sleep',
      '100000',
    ]);
    const seen = new Promise<void>((resolve) => {
      const timer = setInterval(() => {
        void testHost.systemctl('show', '-P', 'ActiveState', unit).then((state) => {
          if (state.trim() === 'active') return;
          clearInterval(timer);
          resolve();
        });
      }, 1000);
    });
    // Spread over the polling period, evenly: a fixed moment would measure that moment.
    await new Promise((resolve) => setTimeout(resolve, (1000 * (round + 0.5)) / rounds));
    await samples.time(async () => {
      await testHost.systemctl('stop', '--no-block', unit);
      await seen;
    });
  }
}

function sleeper(name: string, ...more: readonly UnitSetting[]): TransientUnit {
  return {
    name,
    properties: [
      ['Type', 's', 'exec'],
      ['ExecStart', 'a(sasb)', [['/bin/sleep', ['/bin/sleep', '100000'], false]]],
      ...more,
    ],
  };
}
