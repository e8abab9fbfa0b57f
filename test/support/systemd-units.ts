import type { TransientUnit, UnitSetting } from '../../src/systemd/port';

/** A transient service that runs a shell command. Without the machine's default dependencies: it starts nothing else. */
export function shellService(name: string, script: string, ...settings: UnitSetting[]): TransientUnit {
  return {
    name,
    properties: [
      ['DefaultDependencies', 'b', false],
      ['ExecStart', 'a(sasb)', [['/bin/sh', ['sh', '-c', script], false]]],
      ...settings,
    ],
  };
}

/** A transient service that runs until it is stopped. */
export function sleepService(name: string, ...settings: UnitSetting[]): TransientUnit {
  return shellService(name, 'exec sleep infinity', ['Type', 's', 'exec'], ...settings);
}

/** A setting under which a service does not start before a file exists, and then fails where `exit` is not 0. */
export function startsOnce(file: string, exit = 0): UnitSetting {
  const script = `until test -e ${file}; do sleep 0.02; done; exit ${exit}`;
  return ['ExecStartPre', 'a(sasb)', [['/bin/sh', ['sh', '-c', script], false]]];
}

/** Resolves when a listener is called with what `wanted` accepts. `subscribe` returns how to unsubscribe. */
export function eventually<T>(
  subscribe: (listener: (value: T) => void) => () => void,
  wanted: (value: T) => boolean = () => true,
): Promise<T> {
  return new Promise((resolve) => {
    const unsubscribe = subscribe((value) => {
      if (!wanted(value)) return;
      unsubscribe();
      resolve(value);
    });
  });
}

/** Resolves once a condition holds that nothing tells about when it comes true. */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
