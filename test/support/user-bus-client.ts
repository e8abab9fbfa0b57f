import { connectSystemd } from '../../src/systemd/dbus-systemd';
import { SystemdError } from '../../src/systemd/port';
import { sleepService } from './systemd-units';

/**
 * What a user's own process can do with its manager; run by the user, prints what happened as JSON. It ends by itself,
 * which shows that a closed connection holds nothing open.
 */
async function main(): Promise<void> {
  const systemd = await connectSystemd({ busAddress: process.env.DBUS_SESSION_BUS_ADDRESS ?? '' });
  let changed = false;
  systemd.onUnitChanged((unit) => (changed ||= unit === 'own-user.service'));
  const started = await (await systemd.startTransientUnit(sleepService('own-user.service'), [])).done;
  const names = ['ActiveState', 'InvocationID', 'ControlGroup', 'ControlGroupId'] as const;
  const unit = await systemd.unitProperties('own-user.service', names);
  const stopped = await (await systemd.stopInvocation(unit?.InvocationID ?? '')).done;
  await systemd.close();

  const system = await connectSystemd({ busAddress: 'unix:path=/run/dbus/system_bus_socket' });
  const onSystemBus = await system.startTransientUnit(sleepService('own-user.service'), []).then(
    () => 'started',
    (error: unknown) => (error instanceof SystemdError ? error.kind : String(error)),
  );
  await system.close();
  console.log(JSON.stringify({ uid: process.getuid?.(), started, unit, changed, stopped, onSystemBus }));
}

void main();
