import fc from 'fast-check';
import { msToNumber } from '@temporalio/common';
import type { StringValue } from '@temporalio/common';
import { errorOf, load, loadProgram, problemsOf, programText, user, userEnv } from './config-text';

describe('a value that cannot be used is named with its place, itself and a remedy', () => {
  it.each([
    ['connection: { address: "http://x:7233" }', 'connection.address', '"http://x:7233"', 'host:port'],
    ['connection: { tls: { serverRootCaFile: ca.pem } }', 'connection.tls.serverRootCaFile', '"ca.pem"', 'whole path'],
    ['connection: { apiKey: s3cret }', 'connection.apiKey', 'a string', 'apiKeyFile'],
    ['taskQueue: "two words"', 'taskQueue', '"two words"', 'without spaces'],
    ['run: []', 'run', 'a list', '[workflows, host]'],
    ['run: [host, host]', 'run', 'a list', '[workflows, host]'],
    ['run: [hots]', 'run[0]', '"hots"', 'workflows or host'],
    ['host: { id: "a b" }', 'host.id', '"a b"', 'A-Z'],
    ['host: { stateDirectory: ~ }', 'host.stateDirectory', 'an empty value', 'remove the key'],
    ['host: { stateDirectory: ./state }', 'host.stateDirectory', '"./state"', 'whole path'],
    ['host: { runDirectory: /run//x }', 'host.runDirectory', '"/run//x"', '"//"'],
    ['host: { resync: 10 }', 'host.resync', '10', 'unit'],
    ['host: { systemd: { bus: "tcp:host=x" } }', 'host.systemd.bus', '"tcp:host=x"', 'unix:path='],
    ['host: { systemd: { bus: "unix:path=/a,guid=1" } }', 'host.systemd.bus', '"unix:path=/a,guid=1"', 'unix:path='],
    ['host: { systemd: { bus: user, manager: user } }', 'host.systemd.manager', '"user"', 'remove'],
    ['host: { systemd: { unitPrefix: a-b } }', 'host.systemd.unitPrefix', '"a-b"', 'nest slices'],
    ['hosts: {}', 'hosts', 'a map', 'connection, taskQueue, run, host, programs'],
    ['programs: { "a/b": { exec: [/bin/true] } }', 'programs["a/b"]', 'a map', 'A-Z'],
    ['programs: { p: }', 'programs.p', 'an empty value', 'indented'],
    ['programs: []', 'programs', 'a list', 'indented'],
  ])('%s', (text, path, value, remedy) => {
    expect(problemsOf(text)).toContainEqual(
      expect.objectContaining({ file: '/etc/temporal.yaml', path, value, remedy: expect.stringContaining(remedy) }),
    );
  });

  it.each([
    ['exec: []', 'exec[0]', 'nothing', 'whole path'],
    ['exec: /bin/true', 'exec', 'a string', 'a list'],
    ['exec: [true]', 'exec[0]', 'a boolean', 'whole path'],
    ['exec: [/bin/../bin/true]', 'exec[0]', 'a string', '/../'],
    ["exec: ['/bin/${resource}']", 'exec[0]', 'a string', 'write the path out'],
    ['exec: [/bin/sleep, 5]', 'exec[1]', 'a number', 'quotes'],
    ['exec: [/bin/echo, "a\\0b"]', 'exec[1]', 'a string', 'remove it'],
    ["exec: [/bin/echo, '${HOME}']", 'exec[1]', '"${HOME}"', 'without braces'],
    ["parameters: { x: '.*' }", 'parameters.x', '".*"', 'argument of exec'],
    ["parameters: { resource: '.*' }", 'parameters.resource', 'a string', 'another name'],
    ["parameters: { X: '.*' }", 'parameters.X', 'a string', 'lower-case'],
    ["parameters: { x: 'a)|(b' }", 'parameters.x', '"a)|(b"', 'regular expression'],
    ["parameters: { x: '[' }", 'parameters.x', '"["', 'regular expression'],
    ['workingDirectory: srv', 'workingDirectory', '"srv"', 'whole path'],
    ["workingDirectory: '/srv/${port}'", 'workingDirectory', '"/srv/${port}"', '${resource}'],
    ["environmentFiles: ['-x.env']", 'environmentFiles[0]', '"-x.env"', 'whole path'],
    ['environment: { PORT: 8080 }', 'environment.PORT', 'a number', 'quotes'],
    ['environment: { 1A: x }', 'environment.1A', 'a string', 'letter'],
    ['environment: { OWNED_GENERATION: "7" }', 'environment.OWNED_GENERATION', 'a string', 'another name'],
    ['credentials: { "a:b": /x }', 'credentials["a:b"]', 'a string', 'letters'],
    ['credentials: { "..": /x }', 'credentials[".."]', 'a string', 'letters'],
    ['limits: { memory: 512 }', 'limits.memory', '512', '512M'],
    ['limits: { memory: 512MB }', 'limits.memory', '"512MB"', '512M'],
    ['limits: { cpu: 0 }', 'limits.cpu', '0', '50%'],
    ['limits: { tasks: 1.5 }', 'limits.tasks', '1.5', 'whole number'],
    ['hardening: lax', 'hardening', '"lax"', 'strict or off'],
    ['hardening: { ProtectEverything: true }', 'hardening.ProtectEverything', 'true', 'ProtectSystem'],
    ['hardening: { PrivateTmp: strict }', 'hardening.PrivateTmp', '"strict"', 'true or false'],
    ['hardening: { ReadWritePaths: [srv] }', 'hardening.ReadWritePaths', 'a list', 'whole path'],
    ['stop: { signal: SIGKILL }', 'stop.signal', '"SIGKILL"', 'SIGTERM'],
    ['stop: { signal: TERM }', 'stop.signal', '"TERM"', 'SIGTERM'],
    ['stop: { timeout: 10 min }', 'stop.timeout', '"10 min"', '5 min'],
    ['stop: { killMode: process }', 'stop.killMode', '"process"', 'control-group'],
    ['stop: { killMode: none }', 'stop.killMode', '"none"', 'control-group'],
    ['lease: 300', 'lease', '300', 'unit'],
    ['lease: "300"', 'lease', '"300"', 'unit'],
    ['lease: 2999ms', 'lease', '"2999ms"', '3s'],
    ['restart: false', 'restart', 'false', 'indented'],
    ['restart: sometimes', 'restart.policy', '"sometimes"', 'on-failure'],
    ['restart: { backoff: 1s }', 'restart.policy', 'nothing', 'on-failure'],
    ['restart: { policy: always, backoff: 2 min }', 'restart.maxBackoff', 'nothing', 'as long'],
    ['command: [/bin/true]', 'command', 'a list', 'exec'],
  ])('program with %s', (line, path, value, remedy) => {
    expect(problemsOf(programText(line))).toContainEqual(
      expect.objectContaining({
        path: `programs.p.${path}`.replace('.[', '['),
        value,
        remedy: expect.stringContaining(remedy),
      }),
    );
  });

  it("refuses what a user's systemd can't do, and lets be what only opens", () => {
    const text = programText(
      'user: ada',
      'hardening: { PrivateNetwork: true, ReadWritePaths: [/srv], PrivateTmp: false }',
    );
    expect(problemsOf(text, userEnv, user).map(({ path }) => path)).toEqual([
      'programs.p.user',
      'programs.p.hardening.PrivateNetwork',
    ]);
    expect(load(text).programs.p?.user).toBe('ada');
    const allowed = programText('hardening: { PrivateNetwork: true, PrivateUsers: true }');
    expect(load(allowed, userEnv, user).programs.p?.hardening).toEqual({ PrivateNetwork: true, PrivateUsers: true });
  });
});

describe('no secret is ever printed (G9)', () => {
  it.each([
    ['a variable of the wrong type', programText('environment: { TOKEN: [s3cret] }')],
    ['a variable with a NUL', programText('environment: { TOKEN: "s3cret\\0" }')],
    ['a variable with a reserved name', programText('environment: { OWNED_TOKEN: s3cret }')],
    ['variables in a list', programText('environment: [TOKEN=s3cret]')],
    ['a variable in place of a file', programText('environmentFiles: [TOKEN=s3cret]')],
    ['a credential in place of its file', programText('credentials: { token: s3cret }')],
    ['a key in place of its file', 'connection: { apiKeyFile: s3cret }'],
    ['a private key in place of its file', 'connection: { tls: { clientKeyFile: s3cret } }'],
    ['a key of another name', 'connection: { password: s3cret }'],
    ['an argument', programText("exec: [/bin/x, '--token=s3cret ${nothing}']")],
    ['broken YAML after it', 'connection:\n  apiKey: "s3cret'],
    ['broken YAML around it', 'connection:\n  apiKey: s3cret: x\n -'],
    ['an escape within it', 'connection: { apiKey: "\\s3cret" }'],
    ['a block', 'connection:\n  apiKey: |s3cret\n   x'],
    ['a tag', 'connection: { apiKey: !s3cret x }'],
    ['an alias', 'connection: { apiKey: *s3cret }'],
  ])('%s', (_what, text) => {
    const error = errorOf(text);
    expect(`${error.message} ${error.stack} ${JSON.stringify(error)}`).not.toMatch(/s3cret(?!\.)/);
    expect(error.cause).toBeUndefined();
  });
});

describe('durations and sizes', () => {
  it("reads what Temporal's SDK reads, as long as it has a unit", () => {
    const units = [
      'ms',
      's',
      ' sec',
      ' seconds',
      'm',
      ' min',
      ' Minutes',
      'h',
      ' hrs',
      'd',
      ' weeks',
      'yr',
      ' y',
      'x',
      '',
    ];
    const text = fc.tuple(
      fc.constantFrom('', '-', ' '),
      fc.constantFrom('1', '30', '.5', '1.5', '5.', 'a'),
      fc.constantFrom(...units),
    );
    fc.assert(
      fc.property(text, (parts) => {
        const duration = parts.join('');
        const expected = sdkDuration(duration);
        const line = `lease: ${JSON.stringify(duration)}`;
        const fits = expected >= 3_000 && expected <= 7 * 86_400_000 && !/^[-\d. ]*$/.test(duration);
        if (fits) expect(loadProgram(line).leaseMs).toBe(expected);
        else expect(problemsOf(programText(line))[0]?.path).toBe('programs.p.lease');
      }),
    );
  });

  it.each([
    ['memory: 512M', { memoryBytes: 512 * 1024 ** 2 }],
    ['memory: 1.5G', { memoryBytes: 1.5 * 1024 ** 3 }],
    ['cpu: 0.5', { cpuCores: 0.5 }],
    ['cpu: 50%', { cpuCores: 0.5 }],
    ['cpu: 200%', { cpuCores: 2 }],
  ])('reads %s', (limit, limits) => {
    expect(loadProgram(`limits: { ${limit} }`).limits).toMatchObject(limits);
  });
});

function sdkDuration(text: string): number {
  try {
    return msToNumber(text as StringValue);
  } catch {
    return NaN;
  }
}
