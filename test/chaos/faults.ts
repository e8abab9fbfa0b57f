import { setTimeout as delay } from 'node:timers/promises';
import type { Moments } from './moments';
import { inHost, systemctl, unitsOf } from './on-host';
import type { Fault } from './plan';
import type { ChaosScene } from './scene';

const WRITABLE = 'mount -o remount,rw "$1"';

/** Causes one fault, and heals it after its time. */
export async function cause(fault: Fault, scene: ChaosScene, moments: Moments): Promise<unknown> {
  const { host, server, worker, bus } = scene;
  switch (fault.kind) {
    case 'worker killed':
      await worker.stop('SIGKILL');
      await delay(fault.forMs);
      return worker.start();
    case 'worker paused':
      return worker.pause(fault.forMs);
    case 'worker beside':
    case 'worker replaced':
      return worker.double(fault.forMs, fault.kind === 'worker beside' ? 'newcomer' : 'former');
    case 'reboot':
      await worker.stop('SIGKILL');
      await host.reboot();
      await scene.mountRunDirectory();
      await delay(fault.forMs);
      return worker.start();
    case 'systemd paused': {
      const { pid } = host;
      process.kill(pid, 'SIGSTOP');
      await moments.note(moments.paused, () => delay(fault.forMs));
      process.kill(pid, 'SIGCONT');
      return;
    }
    case 'systemd reloaded':
      return systemctl(scene, 'daemon-reload');
    case 'systemd executed anew':
      return systemctl(scene, 'daemon-reexec');
    case 'bus restarted':
      return systemctl(scene, 'restart', 'dbus.service');
    case 'bus cut':
      bus.rule(() => 'drop');
      bus.cut();
      await moments.note(moments.silences, () => delay(fault.forMs));
      bus.rule(() => 'pass');
      return bus.cut(); // what was begun meanwhile has lost its first messages
    case 'bus held':
      bus.rule(() => 'hold');
      await delay(fault.forMs);
      bus.rule(() => 'pass');
      return bus.release();
    case 'disk full':
      await inHost(scene, 'head -c 8m /dev/zero > "$1/filler"', host.runDirectory);
      await delay(fault.forMs);
      return inHost(scene, 'rm -f "$1/filler"', host.runDirectory);
    case 'disk read-only':
      // Refused as long as a file in it is open for writing.
      await inHost(scene, 'timeout 5 sh -c "until mount -o remount,ro $1; do sleep 0.05; done"', host.runDirectory);
      await delay(fault.forMs);
      return inHost(scene, WRITABLE, host.runDirectory);
    case 'Temporal killed':
    case 'Temporal ended':
      await server.shutDown(fault.kind === 'Temporal killed' ? 'SIGKILL' : 'SIGTERM');
      await moments.note(moments.silences, () => delay(fault.forMs));
      return server.startAgain();
  }
}

/** Heals whatever may still be broken; a campaign that ended in the middle of a fault ends like any other. */
export async function heal(scene: ChaosScene): Promise<void> {
  const { host, worker, bus, server } = scene;
  process.kill(host.pid, 'SIGCONT');
  bus.rule(() => 'pass');
  bus.release();
  await inHost(scene, `${WRITABLE}; rm -f "$1/filler"`, host.runDirectory);
  for (const unit of await unitsOf(scene)) if (/\.(service|slice)$/.test(unit)) await systemctl(scene, 'thaw', unit);
  await server.client.workflowService.getSystemInfo({});
  worker.start();
  await worker.serving(60_000);
}
