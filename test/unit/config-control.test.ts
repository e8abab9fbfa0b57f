import fc from 'fast-check';
import { ControlBounds, effectiveLease } from '../../src/control-server/protocol';
import type { ControlConfig } from '../../src/config';
import { errorOf, loadProgram, problemsOf, programText } from './config-text';

const PORT = 'port: 7700';
const HOME = 'home: /srv/x';

/** A control section in YAML's short form; it listens on a port and has a home where the lines say nothing else. */
function section(...lines: readonly string[]): string {
  const says = (...keys: readonly string[]): boolean =>
    lines.some((line) => keys.some((key) => line.startsWith(`${key}:`)));
  const listen = says('port', 'socket') ? [] : [PORT];
  return `control: { ${[...listen, ...(says('home') ? [] : [HOME]), ...lines].join(', ')} }`;
}

function loadControl(...lines: readonly string[]): ControlConfig {
  return loadProgram(section(...lines)).control!;
}

/** A socket's path of so many bytes without the resource that it names. */
const socketOf = (bytes: number): string => `/${'x'.repeat(bytes - '/.s'.length)}\${resource}.s`;

describe('a control section', () => {
  it('makes a control server of a program, and is absent from others', () => {
    expect(loadProgram()).not.toHaveProperty('control');
    expect(loadProgram(section()).control).toBeDefined();
  });

  it('needs where to listen and a home, and has a default for all the rest', () => {
    expect(loadControl()).toEqual({
      protocol: 1,
      listen: { host: '127.0.0.1', ports: [7700, 7700] },
      home: '/srv/x',
      capabilities: [],
      survive: true,
      onRefused: 'stop',
      onCancel: 'stop',
      lease: {},
      recovery: { readTimeoutMs: 1_000, readRetries: 2, timeoutMs: 5_000 },
      health: { intervalMs: 250, timeoutMs: 1_000, withinMs: 10_000, require: false },
    });
    expect(problemsOf(programText('control: {}')).map(({ path }) => path)).toEqual([
      'programs.p.control.home',
      'programs.p.control.port',
    ]);
  });

  it('fills in the defaults of a section that says a part', () => {
    expect(loadControl('recovery: { readRetries: 0 }').recovery).toEqual({
      readTimeoutMs: 1_000,
      readRetries: 0,
      timeoutMs: 5_000,
    });
    expect(loadControl('health: { within: 1 min }', 'requireHealthy: true').health).toEqual({
      intervalMs: 250,
      timeoutMs: 1_000,
      withinMs: 60_000,
      require: true,
    });
  });

  it('says what it says', () => {
    const lines = ['capabilities: [sessions, fs.v2]', 'survive: false', 'onRefused: wait', 'onCancel: stop-if-started'];
    expect(loadControl('protocol: 1', ...lines, "home: '/srv/${resource}'")).toMatchObject({
      home: '/srv/${resource}',
      capabilities: ['sessions', 'fs.v2'],
      survive: false,
      onRefused: 'wait',
      onCancel: 'stop-if-started',
    });
    expect(loadControl('onCancel: leave').onCancel).toBe('leave');
    expect(loadControl('lease: 30s', 'idleTimeout: 2 min', 'busyCap: 1 hour').lease).toEqual({
      leaseMs: 30_000,
      idleTimeoutMs: 120_000,
      busyCapMs: 3_600_000,
    });
  });
});

describe('where a control server listens', () => {
  it.each([
    ['port: 1', '127.0.0.1', [1, 1]],
    ['port: 65535', '127.0.0.1', [65_535, 65_535]],
    ['port: "7700"', '127.0.0.1', [7700, 7700]],
    ['port: 7700-7799', '127.0.0.1', [7700, 7799]],
    ['port: 7700-7700', '127.0.0.1', [7700, 7700]],
    ['port: 7700, host: 127.1.2.3', '127.1.2.3', [7700, 7700]],
    ['port: 7700, host: "::1"', '::1', [7700, 7700]],
  ])('is an address of this machine with %s', (line, host, ports) => {
    expect(loadControl(line).listen).toEqual({ host, ports });
  });

  it('is a unix socket, with the resource in its path where it is to be', () => {
    expect(loadControl("socket: '/run/x/${resource}.sock'").listen).toEqual({ socket: '/run/x/${resource}.sock' });
    expect(loadControl(`socket: '${socketOf(107)}'`).listen).toEqual({ socket: socketOf(107) });
  });
});

describe('a control section that cannot be used is named with its place, the value and a remedy', () => {
  it.each([
    ['protocol: 2', 'protocol', '2', 'write 1'],
    ['protocol: "1"', 'protocol', '"1"', 'write 1'],
    ['protocol: ~', 'protocol', 'an empty value', 'write 1'],
    ['port: 0', 'port', '0', 'from 1 to 65535'],
    ['port: 65536', 'port', '65536', 'from 1 to 65535'],
    ['port: 77.5', 'port', '77.5', 'from 1 to 65535'],
    ['port: -1', 'port', '-1', 'from 1 to 65535'],
    ['port: 7799-7700', 'port', '"7799-7700"', 'lower one first'],
    ['port: 7700-', 'port', '"7700-"', 'e.g. 7700-7799'],
    ['port: 0-7700', 'port', '"0-7700"', 'from 1 to 65535'],
    ['port: [7700, 7799]', 'port', 'a list', 'e.g. 7700-7799'],
    ['port: ~', 'port', 'an empty value', 'remove the key'],
    ['port: 7700, socket: /run/x.sock', 'socket', '"/run/x.sock"', 'keep one of the two'],
    ['port: 7700, host: localhost', 'host', '"localhost"', '127.0.0.1'],
    ['port: 7700, host: 0.0.0.0', 'host', '"0.0.0.0"', '127.0.0.1'],
    ['port: 7700, host: "127.1"', 'host', '"127.1"', '127.0.0.1'],
    ['port: 7700, host: "::"', 'host', '"::"', '127.0.0.1'],
    ['socket: /run/x.sock, host: 127.0.0.1', 'host', '"127.0.0.1"', 'remove it'],
    ['socket: run/x.sock', 'socket', '"run/x.sock"', 'whole path'],
    ["socket: '/run/${port}.sock'", 'socket', '"/run/${port}.sock"', '${resource}'],
    ['home: /', 'home', '"/"', 'name the directory'],
    ['home: srv', 'home', '"srv"', 'whole path'],
    ['home: /srv/../x', 'home', '"/srv/../x"', '/../'],
    ["home: '/srv/${tenant}'", 'home', '"/srv/${tenant}"', '${resource}'],
    ['home: ~', 'home', 'an empty value', 'whole path'],
    ['capabilities: sessions', 'capabilities', '"sessions"', 'a list'],
    ['capabilities: [-x]', 'capabilities[0]', '"-x"', 'a letter or digit first'],
    ['capabilities: [7]', 'capabilities[0]', '7', 'quote it'],
    ['capabilities: [a, b, a]', 'capabilities[2]', '"a"', 'keep one'],
    ['survive: "no"', 'survive', '"no"', 'true or false'],
    ['survive: ~', 'survive', 'an empty value', 'true or false'],
    ['onRefused: restart', 'onRefused', '"restart"', 'stop or wait'],
    ['onCancel: wait', 'onCancel', '"wait"', 'stop or stop-if-started or leave'],
    ['lease: 2s', 'lease', '"2s"', '3s'],
    ['lease: 60', 'lease', '60', 'unit'],
    ['lease: 8 days', 'lease', '"8 days"', '7 days'],
    ['idleTimeout: 500ms', 'idleTimeout', '"500ms"', '1s'],
    ['busyCap: 1 hour', 'busyCap', '"1 hour"', 'add idleTimeout'],
    ['idleTimeout: 1 day', 'busyCap', 'nothing', 'at most "7 days"'],
    ['recovery: 5s', 'recovery', '"5s"', 'indented'],
    ['recovery: { readTimeout: 1 min }', 'recovery.readTimeout', '"1 min"', '5s'],
    ['recovery: { readRetries: 6 }', 'recovery.readRetries', '6', 'whole number'],
    ['recovery: { timeout: 0s }', 'recovery.timeout', '"0s"', '10ms'],
    ['recovery: { retries: 1 }', 'recovery.retries', 'a number', 'readRetries'],
    ['health: { interval: 11s }', 'health.interval', '"11s"', 'at most "10 s"'],
    ['health: { timeout: 1500ms, within: 1250ms }', 'health.timeout', '"1500ms"', 'at most "1250 ms"'],
    ['health: { within: 500ms }', 'health.timeout', 'nothing', 'raise within'],
    ['health: { within: 1 hour }', 'health.within', '"1 hour"', '10 min'],
    ['requireHealthy: 1', 'requireHealthy', '1', 'true or false'],
    ['token: s3cret', 'token', 'a string', 'protocol, port'],
  ])('%s', (line, path, value, remedy) => {
    expect(problemsOf(programText(section(line)))).toEqual([
      expect.objectContaining({
        path: `programs.p.control.${path}`,
        value,
        remedy: expect.stringContaining(remedy),
      }),
    ]);
  });

  it('also where a path of a socket is too long whatever the resource, in bytes', () => {
    for (const path of [socketOf(108), `/run/${'ä'.repeat(52)}`])
      expect(problemsOf(programText(section(`socket: '${path}'`)))).toEqual([
        expect.objectContaining({
          path: 'programs.p.control.socket',
          message: expect.stringContaining('107 bytes'),
          remedy: expect.stringContaining('shorter path'),
        }),
      ]);
  });

  it('also where more capabilities are required than a server may name', () => {
    const names = Array.from({ length: ControlBounds.capabilities + 1 }, (_, n) => `c${n}`);
    const [problem, ...others] = problemsOf(programText(section(`capabilities: [${names.join(', ')}]`)));
    expect([problem?.path, problem?.remedy, others]).toEqual(['programs.p.control.capabilities', 'shorten it', []]);
    expect(loadControl(`capabilities: [${names.slice(1).join(', ')}]`).capabilities).toHaveLength(64);
  });

  it('also where it is no map', () => {
    for (const text of ['control:', 'control: true', 'control: [port]'])
      expect(problemsOf(programText(text))).toEqual([expect.objectContaining({ path: 'programs.p.control' })]);
  });

  it('with everything else that is wrong, at once', () => {
    const lines = [
      'port: 0',
      'home: srv',
      'lease: 1 hour',
      'busyCap: 2 hours',
      'health: { timeout: 20s, interval: 0s }',
    ];
    const program = programText('lease: 5 min', 'ready: notify', 'credentials: { ownership: /x }', section(...lines));
    expect(problemsOf(program).map(({ path }) => path.replace('programs.p.', ''))).toEqual([
      'lease',
      'ready',
      'credentials.ownership',
      'control.port',
      'control.home',
      'control.busyCap',
      'control.health.timeout',
      'control.health.interval',
    ]);
  });
});

describe('beside a control section', () => {
  it('a program is not ready by a notification: its health decides', () => {
    expect(problemsOf(programText('ready: notify', section()))).toEqual([
      expect.objectContaining({
        path: 'programs.p.ready',
        value: '"notify"',
        remedy: expect.stringContaining('requireHealthy'),
      }),
    ]);
    expect(loadProgram('ready: exec', section()).ready).toBe('exec');
  });

  it('the name of the credential that the host makes is taken', () => {
    const credentials = 'credentials: { ownership: /etc/s3cret, tls: /x }';
    expect(problemsOf(programText(credentials, section()))).toEqual([
      expect.objectContaining({
        path: 'programs.p.credentials.ownership',
        value: 'a string',
        remedy: 'choose another name',
      }),
    ]);
    expect(loadProgram(credentials).credentials.ownership).toBe('/etc/s3cret');
  });

  it("systemd's lease is by default 5 min, or as long as the server may live by its own account (G7)", () => {
    expect(loadProgram(section()).leaseMs).toBe(300_000);
    expect(loadProgram(section('lease: 4 min')).leaseMs).toBe(300_000);
    expect(loadProgram(section('lease: 20 min')).leaseMs).toBe(1_200_000);
    expect(loadProgram(section('idleTimeout: 1 min')).leaseMs).toBe(600_000);
    expect(loadProgram(section('idleTimeout: 1 min', 'busyCap: 2 min')).leaseMs).toBe(300_000);
  });

  it("systemd's lease is never shorter than the server's, and the error names both (G7)", () => {
    expect(errorOf(programText('lease: 599s', section('idleTimeout: 1 min'))).problems).toEqual([
      expect.objectContaining({
        path: 'programs.p.lease',
        value: '"599s"',
        message: expect.stringContaining('shorter than the 10 min'),
        remedy: expect.stringContaining('at least "10 min"'),
      }),
    ]);
    expect(loadProgram('lease: 10 min', section('idleTimeout: 1 min')).leaseMs).toBe(600_000);
    expect(problemsOf(programText('lease: 59s', section()))[0]?.message).toContain('the 1 min');
    expect(loadProgram('lease: 59s', section('lease: 59s')).leaseMs).toBe(59_000);
  });

  it("systemd's lease is at least the server's, whatever the settings (G7)", () => {
    const setting = fc.option(fc.integer({ min: 3_000, max: 60_000_000 }), { nil: undefined });
    const line = (key: string, ms: number | undefined): string[] => (ms === undefined ? [] : [`${key}: ${ms}ms`]);
    fc.assert(
      fc.property(setting, setting, setting, setting, (written, leaseMs, idleTimeoutMs, cap) => {
        const busyCapMs = idleTimeoutMs === undefined ? undefined : cap;
        const control = section(
          ...line('lease', leaseMs),
          ...line('idleTimeout', idleTimeoutMs),
          ...line('busyCap', busyCapMs),
        );
        const { atMostMs } = effectiveLease({ leaseMs, idleTimeoutMs, busyCapMs });
        if (written !== undefined && written < atMostMs)
          expect(problemsOf(programText(...line('lease', written), control))[0]?.path).toBe('programs.p.lease');
        else {
          const program = loadProgram(...line('lease', written), control);
          expect(program.control?.lease).toEqual({ leaseMs, idleTimeoutMs, busyCapMs });
          expect(program.leaseMs).toBe(written ?? Math.max(300_000, atMostMs));
        }
      }),
    );
  });
});
