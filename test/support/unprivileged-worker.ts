import type { UserManagerHost } from './test-host';
import { Host } from '../../src/host/host';
import { connectSystemd } from '../../src/systemd/dbus-systemd';
import { holdInput, placementOf, script, startInput, stopInput } from './owned-host';
import { RecordingLink } from './recording-link';

/** What an unprivileged worker needs to know of its manager. */
export type UserHost = Pick<UserManagerHost, 'runDirectory' | 'stateDirectory' | 'unitPrefix'>;

/**
 * The main job as a user's own process does it with its own manager; prints what came of it as JSON, and ends by itself:
 * start, hold until the lease was renewed, stop until proven; then a process that nobody holds, until its lease is over.
 */
async function main(user: UserHost): Promise<void> {
  const link = new RecordingLink();
  const nothing = (): void => undefined;
  const systemd = await connectSystemd({ busAddress: process.env.DBUS_SESSION_BUS_ADDRESS ?? '' });
  const sleeper = script('sleeper', 'exec sleep 9999', { leaseMs: 3000 });
  const stubborn = script('stubborn', 'trap "" TERM; while :; do sleep 9999; done', {
    leaseMs: 3000,
    stop: { signal: 'SIGTERM', timeoutMs: 1000, killMode: 'control-group' },
  });
  const host = await Host.open({
    ...user,
    id: 'user-host',
    namespace: 'test',
    taskQueue: 'owners',
    programs: { sleeper, stubborn },
    systemd,
    manager: 'user',
    cgroupRoot: 'auto',
    resyncMs: 500,
    link,
    log: { debug: nothing, info: nothing, warn: nothing, error: nothing },
  });
  const placement = placementOf(await host.start(startInput('db/x', 'sleeper')));
  await host.hold(holdInput('db/x', placement), 'token', 1);
  await link.heard(5); // longer than its lease
  const unit = await systemd.unitProperties(placement.unit, ['ActiveState', 'InvocationID']);
  const stopped = await host.stop(stopInput('db/x', placement));

  const unheld = placementOf(await host.start(startInput('db/y', 'stubborn')));
  await host.hold(holdInput('db/y', unheld), 'unheld', 1);
  link.answer = 'unknown';
  const { kind } = await link.event('ended');
  let exit: string | undefined;
  while (exit === undefined) {
    exit = await host.stop(stopInput('db/y', unheld, { rung: 'watch' })).then(
      (answer) => answer.exit.wording,
      () => undefined,
    );
  }
  await host.close();
  console.log(JSON.stringify({ uid: process.getuid?.(), placement, unit, stopped, unheld: { kind, exit } }));
}

void main(JSON.parse(process.argv[2] ?? '{}') as UserHost);
