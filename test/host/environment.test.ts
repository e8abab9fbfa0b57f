import { chmod, mkdir, mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Program } from '../../src/config';
import { describeOnPrivateHost, eventually, HostSuite } from '../support/host-suite';
import { program, script, startInput } from '../support/owned-host';

describeOnPrivateHost('the environment of a process', () => {
  const suite = new HostSuite();
  let folder: string; // the same inside the host and outside

  beforeEach(async () => {
    folder = await mkdtemp('/var/tmp/environment-');
    await chmod(folder, 0o777);
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** Runs a program that writes its environment and arguments down, and reads them. */
  async function run(
    change: Partial<Program>,
    args: readonly string[] = [],
  ): Promise<{ env: Record<string, string>; args: string[] }> {
    const file = join(folder, 'seen');
    const text = `const { env, argv } = process; const fs = require('node:fs');
      fs.writeFileSync('${file}.part', JSON.stringify({ env, args: argv.slice(1) }));
      fs.renameSync('${file}.part', '${file}');`;
    const worker = await suite.worker([program('teller', [process.execPath, '-e', text, '--', ...args], change)]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'teller');
    await eventually(async () => (await readFile(file, 'utf8').catch(() => '')) !== '');
    await worker.stopUntilProven(resource, placement);
    return JSON.parse(await readFile(file, 'utf8')) as { env: Record<string, string>; args: string[] };
  }

  it('comes from the files, later ones first, then from the program, then from this project (G9)', async () => {
    await writeFile(join(folder, 'a.env'), 'A=a\nB=a\nC=a\nOWNED_RESOURCE=forged\n');
    await writeFile(join(folder, 'b.env'), 'B=b\nC=b\n');
    const { env } = await run({
      environmentFiles: [`${folder}/a.env`, `-${folder}/none.env`, `${folder}/b.env`],
      environment: { C: 'c', OWNED_GENERATION: '1' },
    });
    expect(env).toMatchObject({ A: 'a', B: 'b', C: 'c' });
    expect(env.OWNED_RESOURCE).toMatch(/^test\/r-/);
    expect(Number(env.OWNED_GENERATION)).toBeGreaterThan(1);
  });

  it('finds a file by the resource, and does not start without one that is not optional (G5)', async () => {
    const resource = suite.resource();
    const file = join(folder, resource, 'some.env');
    const text = `echo "$MINE" > ${folder}/mine`;
    const worker = await suite.worker([
      script('asking', text, { environmentFiles: [`${folder}/\${resource}/some.env`] }),
    ]);
    await expect(worker.host.start(startInput(resource, 'asking'))).rejects.toThrow(file);
    const files = suite.filesOf(resource);
    expect(await files.generations()).toEqual([]);
    expect(await suite.loaded(resource)).toEqual([]);

    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, 'MINE=yes\n');
    await worker.stopUntilProven(resource, await worker.runToEnd(resource, 'asking'));
    expect(await readFile(join(folder, 'mine'), 'utf8')).toBe('yes\n');
  });

  it('arrives as it was written, whatever characters it has (G9)', async () => {
    const values = {
      SPACES: '  two  ',
      QUOTES: `it's "so"`,
      DOLLAR: '$HOME ${HOME} $$ $',
      BACKSLASH: 'a\\b\\\\c\\n\\"\\',
      LINES: 'first\nsecond\n\nfourth\n',
      TAB: 'a\tb',
      UNICODE: 'żółw 🐢 ☃',
      HASH: '# no comment ; neither',
      BACKTICK: '`id`',
      PERCENT: '%n %% %i',
      EMPTY: '',
      EQUALS: 'a=b=c',
    };
    const { env } = await run({ environment: values });
    expect(env).toMatchObject(values);
  });

  it('reads files as systemd does (G9)', async () => {
    const text = [
      '# a comment',
      '; another one',
      'PLAIN=a value  ',
      '  INDENTED = x',
      `SINGLE='it has $dollars and \\backslashes'`,
      'DOUBLE="a \\"quoted\\" \\$word and \\x"',
      'JOINED=one \\',
      'two',
      'MULTI="first',
      'second"',
      'ESCAPED=a\\ b\\\\c',
      'MIXED=a"b c"d',
      'AFTER="a"  ',
      'TWO="a" "b" c',
      `BOTH='a'"b"`,
      'QUOTED=" spaces kept "',
      'LATE=a "b"',
      'WINDOWS=crlf\r',
      'UNICODE=żółw',
      'not a line',
      '1BAD=x',
      'export EXPORTED=x',
      'LAST=end',
    ].join('\n');
    await writeFile(join(folder, 'raw.env'), text);
    const names = text.match(/^ *[A-Z]+(?= ?=)/gm)!.map((name) => name.trim());
    const { env } = await run({ environmentFiles: [`${folder}/raw.env`] });
    const show = `process.stdout.write(JSON.stringify(process.env))`;
    const command = ['systemd-run', '--quiet', '--pipe', '--wait', `--property=EnvironmentFile=${folder}/raw.env`];
    const { stdout } = await suite.machine.run([...command, process.execPath, '-e', show]);
    const plain = JSON.parse(stdout) as Record<string, string>;
    expect(names.length).toBeGreaterThan(10);
    for (const name of [...names, '1BAD', 'EXPORTED']) expect({ [name]: env[name] }).toEqual({ [name]: plain[name] });
  });

  it('stands in no record and nowhere on the bus: only the names do (G9)', async () => {
    const secret = 'correct-horse-battery-staple';
    await writeFile(join(folder, 'secret.env'), `SECRET=${secret}\n`);
    await writeFile(join(folder, 'credential'), `${secret}-too`);
    const worker = await suite.worker([
      script('sleeper', 'exec sleep 9999', {
        environmentFiles: [`${folder}/secret.env`],
        environment: { ALSO: secret },
        credentials: { token: `${folder}/credential` },
      }),
    ]);
    const resource = suite.resource();
    const placement = await worker.start(resource, 'sleeper');
    const { outside } = suite.filesOf(resource).generation(placement.generation);
    const launch = await readFile(join(outside, 'launch.json'), 'utf8');
    expect(JSON.parse(launch)).toMatchObject({ environment: { SECRET: `${folder}/secret.env`, ALSO: 'environment' } });
    for (const name of await readdir(outside, { withFileTypes: true })) {
      if (name.isFile() && name.name !== 'environment') {
        expect(await readFile(join(outside, name.name), 'utf8')).not.toContain(secret);
      }
    }
    expect(await suite.machine.systemctl('show', '--all', placement.unit)).not.toContain(secret);
    expect(await suite.machine.systemctl('cat', placement.unit)).not.toContain(secret);
    const peek = await suite.machine.run([
      'setpriv',
      '--reuid=nobody',
      '--clear-groups',
      'cat',
      join(outside.slice(suite.machine.root.length), 'environment'),
    ]);
    expect(peek).toMatchObject({ stdout: '', stderr: expect.stringContaining('Permission denied') });
    expect(JSON.stringify(worker.lines)).not.toContain(secret);
    await worker.stop(resource, placement);
  });

  it('has the credentials that systemd loads, for the program’s user alone (G9)', async () => {
    await writeFile(join(folder, 'credential'), 'a secret', { mode: 0o600 });
    const worker = await suite.worker([
      script('reader', `cat "$CREDENTIALS_DIRECTORY/token" > ${folder}/read; id -u >> ${folder}/read`, {
        user: 'nobody',
        credentials: { token: `${folder}/credential` },
      }),
    ]);
    const resource = suite.resource();
    const placement = await worker.runToEnd(resource, 'reader');
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('exit 0');
    expect(await readFile(join(folder, 'read'), 'utf8')).toBe('a secret65534\n');
  });

  it('does not change arguments: no dollar, percent or quote of theirs means anything (G10)', async () => {
    const plain = ['$HOME', '$$', '$$$', '%n', '%%', 'a b', '"', "'", '\\', 'żółw', '-v', ''];
    expect((await run({}, plain)).args).toEqual(plain);
  });

  it.each([
    ['whose limits and user are set, runs as that user and leaves its exit record', 'exit 7', 'exit 7 (exit-code)'],
    ['whose user ends it by a signal leaves its record too', 'kill -USR1 $$', 'signal 10'],
  ])('a program %s (G8)', async (_what, text, wording) => {
    const limits = { memoryBytes: 64 * 1024 * 1024, cpuCores: 0.5, tasks: 20 };
    const worker = await suite.worker([script('limited', text, { user: 'nobody', limits, hardening: 'strict' })]);
    const resource = suite.resource();
    const placement = await worker.runToEnd(resource, 'limited');
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe(wording);
  });

  it('is no way to keep a resource: a process that spoils its own exit record is released all the same (G8)', async () => {
    const directory = join(suite.machine.runDirectory, 'own');
    // Its own ExecStopPost can't write over a directory, so what the process left there stays.
    const text = `mkdir ${directory}/*/g$OWNED_GENERATION/exit/record; exit 5`;
    const worker = await suite.worker([script('tampering', text)]);
    const resource = suite.resource();
    const placement = await worker.runToEnd(resource, 'tampering');
    expect((await worker.stopUntilProven(resource, placement)).exit.wording).toBe('exit 5 (exit-code)');
  });
});
