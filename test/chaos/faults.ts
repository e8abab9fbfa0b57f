import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { monotonicNow } from '../../src/host/context';
import { escapeResource, unitPattern } from '../../src/contract/names';
import type { Silence } from '../support/oracle';
import type { Fault, Hands } from './plan';
import type { ChaosScene } from './scene';

/** Moments that the checks have to know of, beside those of {@link ChaosScene.worker}. */
export class Moments {
  /** While nobody could answer a heartbeat, or no renewal could reach systemd. */
  readonly silences: Silence[] = [];
  /** While systemd itself could do nothing. */
  readonly paused: Silence[] = [];
  /** When other hands stopped a resource's lease timer: until the worker has armed it again, nothing ends the process. */
  readonly timersStopped: { readonly resource: string; readonly at: number }[] = [];

  /** Notes what lasts from now until `during` settles. */
  async note(in_: Silence[], during: () => Promise<unknown>): Promise<void> {
    const from = monotonicNow();
    try {
      await during();
    } finally {
      in_.push({ from, to: monotonicNow() });
    }
  }
}

/** Causes one fault, and heals it after its time. */
export async function cause(fault: Fault, scene: ChaosScene, moments: Moments): Promise<void> {
  const { host, server, worker, bus } = scene;
  switch (fault.kind) {
    case 'worker killed':
      await worker.stop('SIGKILL');
      await delay(fault.forMs);
      return worker.start();
    case 'worker paused':
      return worker.pause(fault.forMs);
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
      await inHost(scene, 'head -c 8m /dev/zero > "$0/filler"', host.runDirectory);
      await delay(fault.forMs);
      return inHost(scene, 'rm -f "$0/filler"', host.runDirectory);
    case 'Temporal killed':
    case 'Temporal ended':
      await server.shutDown(fault.kind === 'Temporal killed' ? 'SIGKILL' : 'SIGTERM');
      await moments.note(moments.silences, () => delay(fault.forMs));
      return server.startAgain();
  }
}

/**
 * Does to a resource's unit what somebody with root could do; where it has none, to that of the next resource that has one.
 * Returns whether there was one.
 */
export async function meddle(
  hands: Hands,
  names: readonly string[],
  scene: ChaosScene,
  moments: Moments,
): Promise<boolean> {
  const all = await unitsOf(scene);
  const first = names.indexOf(hands.resource);
  const resource = [...names.slice(first), ...names.slice(0, first)].find((name) =>
    all.some((unit) => belongs(unit, name)),
  );
  if (resource === undefined) return false;
  const units = all.filter((unit) => belongs(unit, resource));
  const service = units.find((unit) => /-g\d+\.service$/.test(unit));
  switch (hands.kind) {
    case 'unit stopped':
    case 'unit restarted':
      if (!service) return false;
      await systemctl(scene, hands.kind === 'unit stopped' ? 'stop' : 'restart', '--no-block', service);
      return true;
    case 'unit killed':
      if (!service) return false;
      await systemctl(scene, 'kill', '--kill-whom=main', '--signal=KILL', service);
      return true;
    case 'unit frozen':
      if (!service) return false;
      await systemctl(scene, 'freeze', service);
      await delay(hands.forMs);
      await systemctl(scene, 'thaw', service);
      return true;
    case 'timer stopped': {
      const timer = units.find((unit) => unit.endsWith('.timer'));
      if (!timer) return false;
      moments.timersStopped.push({ resource, at: monotonicNow() });
      await systemctl(scene, 'stop', '--no-block', timer);
      return true;
    }
  }
}

/** Heals whatever may still be broken; a campaign that ended in the middle of a fault ends like any other. */
export async function heal(scene: ChaosScene): Promise<void> {
  const { host, worker, bus, server } = scene;
  process.kill(host.pid, 'SIGCONT');
  bus.rule(() => 'pass');
  bus.release();
  await inHost(scene, 'rm -f "$0/filler"', host.runDirectory);
  for (const unit of await unitsOf(scene)) if (unit.endsWith('.service')) await systemctl(scene, 'thaw', unit);
  await server.client.workflowService.getSystemInfo({});
  worker.start();
  await worker.serving(60_000);
}

/** The loaded units of the prefix. */
export async function unitsOf({ host }: ChaosScene): Promise<readonly string[]> {
  const list = ['list-units', '--all', '--plain', '--no-legend', '--no-pager'];
  const command = ['timeout', '20', 'systemctl', ...list, unitPattern(host.unitPrefix)];
  const { stdout } = await host.run(command);
  return stdout.split('\n').flatMap((line) => line.trim().split(/\s+/)[0] || []);
}

/** Whether it is a resource's service, or the timer or oneshot of its lease. */
function belongs(unit: string, resource: string): boolean {
  return unit.includes(`-${escapeResource(resource)}-g`);
}

/** As a person would: what the manager says to it is not looked at, for it may be paused or gone a moment later. */
async function systemctl({ host }: ChaosScene, ...args: string[]): Promise<void> {
  await host.run(['timeout', '20', 'systemctl', '--no-pager', '--no-ask-password', ...args]);
}

async function inHost({ host }: ChaosScene, script: string, argument: string): Promise<void> {
  await host.run(['sh', '-c', script, argument]);
}

/** Where the worker keeps the files of its resources, as seen from here. */
export function runFiles({ host }: ChaosScene): string {
  return join(host.root, host.runDirectory, host.unitPrefix);
}
