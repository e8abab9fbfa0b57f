import { readFileSync } from 'node:fs';
import { chmod, mkdir, readdir, readFile, rm, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { escapeResource } from '../../src/contract/names';
import type { ExitReport } from '../../src/contract/facts';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { holdInput, program, script } from '../support/owned-host';
import { processesOf } from '../support/unit-processes';

type Row = [title: string, made: Parameters<typeof program>, exit: Partial<ExitReport>];

/** Where these programs lie: a folder that is the same inside and outside of the host. */
const folder = `/var/tmp/hard-programs-${process.pid}`;

/** What systemd says of a program that it could not execute (systemd.exec(5), "Process Exit Codes"). */
const notExecuted = { wording: 'exit 203 (exit-code)', kind: 'exit', status: 203, source: 'unit' } as const;
const sh = (text: string): [string, ...string[]] => ['/bin/sh', '-c', text];
const signalled = (status: number): Partial<ExitReport> => ({
  wording: `signal ${status}`,
  kind: 'signal',
  status,
  source: 'unit',
});

describeOnPrivateHost('a program that does not last', () => {
  const suite = new HostSuite();

  beforeAll(async () => {
    await mkdir(folder, { mode: 0o755 });
    const files: [name: string, text: string, mode: number][] = [
      ['not-executable', '#!/bin/sh\nexec sleep 9999\n', 0o644],
      ['not-for-others', '#!/bin/sh\nexec sleep 9999\n', 0o700],
      ['no-interpreter', '#!/no/such/interpreter\n', 0o755],
      ['no-format', 'neither a script nor a binary\n', 0o755],
      ['empty', '', 0o755],
    ];
    for (const [name, text, mode] of files) {
      await writeFile(join(folder, name), text);
      await chmod(join(folder, name), mode);
    }
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it.each<Row>([
    ['exits with 0', ['p', sh('exit 0')], { wording: 'exit 0', kind: 'exit', status: 0, source: 'unit' }],
    ['exits with 3', ['p', sh('exit 3')], { wording: 'exit 3 (exit-code)', kind: 'exit', status: 3, source: 'unit' }],
    ['exits with 255', ['p', sh('exit 255')], { wording: 'exit 255 (exit-code)', kind: 'exit', status: 255 }],
    ['is killed', ['p', sh('kill -KILL $$')], signalled(9)],
    ['ends by a signal that systemd takes for a clean one', ['p', sh('kill -TERM $$')], signalled(15)],
    ['crashes', ['p', sh('kill -SEGV $$')], signalled(11)],
    ['aborts', ['p', sh('kill -ABRT $$')], signalled(6)],
    [
      'exits with 0 where it had to say that it is ready',
      ['p', sh('exit 0'), { ready: 'notify' }],
      { wording: 'exit 0' },
    ],
    ['is not there', ['p', [`${folder}/absent`]], notExecuted],
    ['is a folder', ['p', [folder]], notExecuted],
    ['may not be executed', ['p', [`${folder}/not-executable`]], notExecuted],
    ['may not be executed by its user', ['p', [`${folder}/not-for-others`], { user: 'nobody' }], notExecuted],
    ['has an interpreter that is not there', ['p', [`${folder}/no-interpreter`]], notExecuted],
    ['is neither a script nor a binary', ['p', [`${folder}/no-format`]], notExecuted],
    ['is empty', ['p', [`${folder}/empty`]], notExecuted],
    [
      'has a working directory that is not there',
      ['p', sh('exec sleep 9999'), { workingDirectory: `${folder}/absent` }],
      { wording: 'exit 200 (exit-code)' },
    ],
    [
      'has a credential that is not there',
      ['p', sh('exec sleep 9999'), { credentials: { key: `${folder}/absent` } }],
      { wording: 'exit 243 (exit-code)' },
    ],
    // Refused by the kernel, as beyond a limit where nothing is overcommitted.
    [
      'gets no more memory and gives up',
      ['p', sh('ulimit -v 100000; exec dd if=/dev/zero of=/dev/null bs=500M count=1')],
      { wording: 'exit 1 (exit-code)' },
    ],
  ])(
    'and %s has a true end, leaves nothing behind, and does not keep its resource (G3, G8)',
    async (_how, made, exit) => {
      await endsAndMakesRoom(made, exit);
    },
  );

  /** Owns, hears of the end, has it proven, and owns the same resource again. */
  async function endsAndMakesRoom(
    made: Row[1],
    expected: Row[2],
    meanwhile?: (resource: string) => Promise<void>,
  ): Promise<void> {
    const worker = await suite.worker([program(...made), script('next', 'exec sleep 9999')]);
    const resource = suite.resource();
    const placement = await worker.start(resource, made[0]);
    await worker.host.hold(holdInput(resource, placement), 'token', 1);
    await meanwhile?.(resource);
    // Of one that ends before it is held the host has the proof by then.
    await Promise.race([worker.link.event('ended'), worker.link.event('proven')]);
    const { exit, proof } = await worker.stopUntilProven(resource, placement);
    expect(exit).toMatchObject(expected);
    expect(proof).toMatchObject({ by: 'empty', generation: placement.generation });

    expect(await processesOf(suite.machine, resource)).toEqual([]);
    await eventually(async () => (await suite.loaded(resource)).length === 0);
    const files = join(suite.machine.root, suite.machine.runDirectory, 'own', escapeResource(resource));
    const end = join(files, `g${placement.generation}`);
    await eventually(async () => (await readdir(end)).join() === 'end.json');
    expect((await readdir(files)).sort()).toEqual(['floor', `g${placement.generation}`]);

    const next = await worker.start(resource, 'next');
    expect(next.generation).toBeGreaterThan(placement.generation);
    expect(await processesOf(suite.machine, resource)).toHaveLength(1);
    expect((await worker.stopUntilProven(resource, next)).exit.wording).toBe('signal 15');
  }

  const memory = memoryCgroup();
  // Where no memory controller can be reached there is no limit, and the machine's own memory is not taken for a test.
  (memory ? it : it.skip)(
    'and is killed by the kernel for its memory has a true end, leaves nothing behind, and does not keep its resource (G3, G8)',
    async () => {
      const cgroup = join(memory!, `hard-programs-${process.pid}`);
      await mkdir(cgroup);
      try {
        await writeFile(join(cgroup, 'memory.limit_in_bytes'), String(32 * 1024 * 1024));
        const greedy = sh(`until test -e ${folder}/go; do sleep 0.02; done; exec tail /dev/zero`);
        await endsAndMakesRoom(['p', greedy], signalled(9), async (resource) => {
          const [pid] = await processesOf(suite.machine, resource);
          await writeFile(join(cgroup, 'cgroup.procs'), String(pid));
          await writeFile(join(folder, 'go'), '');
        });
        expect(await readFile(join(cgroup, 'memory.oom_control'), 'utf8')).toMatch(/^oom_kill [1-9]/m);
      } finally {
        await rmdir(cgroup);
      }
    },
  );
});

/**
 * Where cgroups of the memory controller's version 1 are made. A program's `limits.memoryBytes` is version 2's, which the
 * kernel gives to one version only: on a machine that has both, private hosts have no memory controller. Then the process
 * is put below a limit of version 1 from outside; its end by the kernel's hand is the same, and only systemd does not
 * know that it was for memory.
 */
function memoryCgroup(): string | undefined {
  return readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' '))
    .find(([, , type, options]) => type === 'cgroup' && options!.split(',').includes('memory'))?.[1];
}
