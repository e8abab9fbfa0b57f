import { readFileSync } from 'node:fs';

/** Where this process sees cgroup2 mounted: `/sys/fs/cgroup`, or `…/unified` beside version 1; `undefined` if nowhere. */
export function cgroup2Mount(): string | undefined {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .find(([, , type]) => type === 'cgroup2')?.[1];
}
