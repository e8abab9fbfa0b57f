import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { ConfigError, EXIT_CONFIG, loadConfig } from '../../src/config';
import { errorOf, load, loadProgram, problemsOf, programText, root, user, userEnv } from './config-text';

const example = resolve(__dirname, '../../temporal.yaml');

describe('temporal.yaml as it is shipped', () => {
  let folder: string;
  let machineIdFile: string;
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'config-'));
    machineIdFile = join(folder, 'machine-id');
    writeFileSync(machineIdFile, '0123456789abcdef0123456789abcdef\n');
  });
  afterAll(() => rmSync(folder, { recursive: true }));

  it("serves the system's systemd when root runs the worker", () => {
    const config = loadConfig(example, {}, { uid: 0, machineIdFile });
    expect(config.file).toBe(example);
    expect(config.run).toEqual(['workflows', 'host']);
    expect(config.host).toEqual({
      id: '0123456789abcdef0123456789abcdef',
      stateDirectory: '/var/lib/temporal-systemd',
      runDirectory: '/run/temporal-systemd',
      systemd: {
        busAddress: 'unix:path=/run/dbus/system_bus_socket',
        manager: 'system',
        cgroupRoot: 'auto',
        unitPrefix: 'own',
      },
      resyncMs: 15_000,
      capacity: {},
    });
    expect(Object.keys(config.programs)).toEqual(['sleeper', 'ticker']);
  });

  it("serves the user's own systemd when anybody else runs it", () => {
    const config = loadConfig(example, userEnv, { uid: 1000, machineIdFile });
    expect(config.host).toMatchObject({
      stateDirectory: '/home/ada/.local/state/temporal-systemd',
      runDirectory: '/run/user/1000/temporal-systemd',
      systemd: { busAddress: 'unix:path=/run/user/1000/bus', manager: 'user' },
    });
  });

  it('shows options in its comments that load when they are uncommented', () => {
    const text = readFileSync(example, 'utf8').replace(/^( *)# (?= *(?:[A-Za-z_-]+:(?: |$)|- ))/gm, '$1');
    const config = load(text);
    expect(config.connection.tls).toMatchObject({ clientKeyFile: '/etc/temporal-systemd/client.key' });
    expect(config.host.id).toBe('db-host-1');
    expect(config.programs.postgres).toMatchObject({
      environmentFiles: ['/etc/postgres/common.env', '-/etc/postgres/${resource}.env'],
      limits: { memoryBytes: 2 * 1024 ** 3, cpuCores: 1.5, tasks: 512 },
      stop: { signal: 'SIGINT', timeoutMs: 30_000, killMode: 'mixed' },
      ready: 'notify',
      restart: { policy: 'on-failure', limit: 10 },
    });
    expect(config.programs.agents).toMatchObject({
      leaseMs: 7_200_000,
      control: { listen: { ports: [7700, 7799] }, capabilities: ['sessions'], lease: { busyCapMs: 3_600_000 } },
    });
  });

  it('states the defaults: a program that leaves all out is the same as one that has what the comments say', () => {
    const stated = loadProgram(
      'hardening: strict',
      'stop: { signal: SIGTERM, timeout: 10s, killMode: control-group }',
      'ready: exec',
      'readyTimeout: 90s',
      'lease: 5 min',
      'restart: { policy: no, backoff: 1s, maxBackoff: 1 min, limit: 5, resetAfter: 10 min }',
    );
    expect(loadProgram()).toEqual(stated);
    const necessary = 'port: 7700, home: /x';
    const rest =
      'protocol: 1, host: 127.0.0.1, survive: true, onRefused: stop, onCancel: stop, capabilities: [], ' +
      'recovery: { readTimeout: 1s, readRetries: 2, timeout: 5s }, ' +
      'health: { interval: 250ms, timeout: 1s, within: 10s }, requireHealthy: false';
    expect(loadProgram(`control: { ${necessary} }`)).toEqual(loadProgram(`control: { ${necessary}, ${rest} }`));
  });
});

describe('the capacity of a host', () => {
  const text = (capacity: string, ...programs: readonly string[]): string =>
    [`host: { id: h, capacity: ${capacity} }`, 'programs:', ...programs.map((program) => `  ${program}`)].join('\n');

  it('is a number of units, an amount of memory, both, or no limit', () => {
    const withLimit = 'p: { exec: [/bin/true], limits: { memory: 64M } }';
    expect(load(text('{}', withLimit)).host.capacity).toEqual({});
    expect(load(text('{ units: 200, memory: 1G }', withLimit)).host.capacity).toEqual({
      units: 200,
      memoryBytes: 1024 ** 3,
    });
    expect(problemsOf(text('{ units: 0 }', withLimit)).map(({ path }) => path)).toEqual(['host.capacity.units']);
  });

  it('in memory needs to know how much each program may take', () => {
    const problems = problemsOf(
      text('{ memory: 1G }', 'p: { exec: [/bin/true] }', 'q: { exec: [/bin/true], limits: { memory: 1M } }'),
    );
    expect(problems.map(({ path, remedy }) => [path, remedy])).toEqual([
      ['programs.p.limits.memory', 'say how much memory it may take'],
    ]);
  });
});

describe('what the machine decides', () => {
  it.each([
    ['bus: system', 'unix:path=/run/dbus/system_bus_socket', 'system'],
    ['bus: user', 'unix:path=/run/user/1000/bus', 'user'],
    ['bus: "unix:path=/proc/7/root/bus"', 'unix:path=/proc/7/root/bus', 'system'],
    ['{ bus: "unix:path=/x/bus", manager: user }', 'unix:path=/x/bus', 'user'],
  ])('takes %s as root', (systemd, busAddress, manager) => {
    const section = systemd.startsWith('{') ? systemd : `{ ${systemd} }`;
    const { host } = load(`host: { id: h, systemd: ${section} }`, userEnv, root);
    expect(host.systemd).toMatchObject({ busAddress, manager });
  });

  it('takes the session bus from the environment, and of a list of addresses the first path', () => {
    const env = { ...userEnv, DBUS_SESSION_BUS_ADDRESS: 'unix:abstract=/x;unix:path=/tmp/bus,guid=12' };
    expect(load('host: { id: h }', env, user).host.systemd.busAddress).toBe('unix:path=/tmp/bus');
  });

  it('ignores a relative XDG_STATE_HOME, as its specification wants', () => {
    const env = { ...userEnv, XDG_STATE_HOME: 'state' };
    expect(load('host: { id: h }', env, user).host.stateDirectory).toBe('/home/ada/.local/state/temporal-systemd');
  });

  it('names every default that this machine has no answer for', () => {
    const nowhere = { uid: 1000, machineIdFile: '/nonexistent' };
    const problems = problemsOf('taskQueue: q', {}, nowhere);
    expect(problems.map(({ path }) => path).sort()).toEqual([
      'host.id',
      'host.runDirectory',
      'host.stateDirectory',
      'host.systemd.bus',
    ]);
    expect(problems.find(({ path }) => path === 'host.id')?.message).toContain('/nonexistent');
  });

  it('asks for none of that where no host is run', () => {
    const { host, programs } = load('run: [workflows]', {}, { uid: 1000, machineIdFile: '/nonexistent' });
    expect([host.id, programs]).toEqual(['', {}]);
  });
});

describe('files that hold no configuration', () => {
  it.each([
    ['an empty file', '', 'has no value'],
    ['comments alone', '# nothing\n', 'has no value'],
    ['a list', '- a', 'is not a map'],
    ['an open bracket', 'run: [host', 'is not valid YAML'],
    ['a key that is there twice', 'taskQueue: a\ntaskQueue: b', 'is there twice'],
    ['two documents', 'taskQueue: a\n---\ntaskQueue: b', 'second document'],
    ['a tag', 'taskQueue: !secret b', 'tag'],
    ['an alias to nothing', 'taskQueue: *a', 'alias'],
    ['a key that is a list', '? [a]\n: b', 'key'],
    ['a tab as indentation', 'host:\n\tid: h', 'is not valid YAML'],
    ['a name of JavaScript', programText('environment: { __proto__: x }'), 'JavaScript'],
  ])('refuses %s', (_what, text, message) => {
    expect(problemsOf(text)).toContainEqual(expect.objectContaining({ message: expect.stringContaining(message) }));
  });

  it('refuses a missing file, a folder and a file that is no text, naming it', () => {
    const folder = mkdtempSync(join(tmpdir(), 'config-'));
    writeFileSync(join(folder, 'binary'), Buffer.from([0x61, 0xff, 0xfe]));
    try {
      for (const file of [join(folder, 'none'), folder, join(folder, 'binary')]) {
        expect(() => loadConfig(file)).toThrow(ConfigError);
        expect(() => loadConfig(file)).toThrow(file);
      }
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('resolves anchors, and stops an alias that would grow without end', () => {
    const text = 'host: { id: h }\nprograms:\n  a: &p { exec: [/bin/true] }\n  b: *p';
    expect(load(text).programs.b).toEqual({ ...load(text).programs.a, name: 'b' });
    const bomb = ['a: &a [x, x, x, x, x, x, x, x, x, x]']
      .concat(['b', 'c', 'd', 'e', 'f'].map((k, i) => `${k}: &${k} [${Array(10).fill(`*${'abcde'[i]}`).join(',')}]`))
      .join('\n');
    expect(problemsOf(bomb)[0]?.message).toContain('too many aliases');
  });
});

it('is one error with everything that is wrong, in the order of the file, with line and column', () => {
  const error = errorOf('taskQueue: 1\nhost: { id: h }\nprograms:\n  p:\n    exec: [true]\n    lease: 2s\n');
  expect(error.problems.map(({ path, line, column }) => [path, line, column])).toEqual([
    ['taskQueue', 1, 1],
    ['programs.p.exec[0]', 5, 12],
    ['programs.p.lease', 6, 5],
  ]);
  expect(error.message).toContain(
    '/etc/temporal.yaml:6:5\n    programs.p.lease is not between 3s and 7 days (found "2s")',
  );
  expect(EXIT_CONFIG).toBe(78);
});
