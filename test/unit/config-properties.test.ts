import fc from 'fast-check';
import { stringify } from 'yaml';
import { checkParameters, ConfigError, expand } from '../../src/config';
import { hardeningProperties } from '../../src/config/hardening';
import { effectiveLease } from '../../src/control-server/protocol';
import { load, loadProgram, root, user } from './config-text';

const oddText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.constantFrom(
    '',
    '/',
    '/x',
    '/x/../y',
    '${resource}',
    '/${resource}',
    '${x}',
    '${',
    'a)|(b',
    '5 min',
    '0s',
    '1e9 y',
    '512M',
  ),
  fc.constantFrom(
    'strict',
    'off',
    'no',
    'always',
    'SIGTERM',
    'auto',
    'unix:path=/x',
    '__proto__',
    'constructor',
    'toString',
  ),
);
const anything = fc.oneof(
  oddText,
  fc.double(),
  fc.boolean(),
  fc.constant(null),
  fc.array(oddText, { maxLength: 3 }),
  fc.dictionary(oddText, fc.oneof(oddText, fc.array(oddText, { maxLength: 2 })), { maxKeys: 3 }),
);

/** A map that has some of the known keys, each with a value that may fit or not, and perhaps an unknown one. */
function section(fitting: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<unknown> {
  const known = Object.entries(fitting).map(([key, value]) => [
    key,
    fc.oneof({ weight: 5, arbitrary: value }, anything),
  ]);
  const record = fc.record(Object.fromEntries(known) as Record<string, fc.Arbitrary<unknown>>, { requiredKeys: [] });
  const extended = fc.tuple(record, fc.dictionary(oddText, anything, { maxKeys: 1 })).map(([a, b]) => ({ ...a, ...b }));
  return fc.oneof({ weight: 8, arbitrary: record }, extended, anything);
}

const duration = fc.tuple(fc.nat(100), fc.constantFrom('ms', 's', ' min', 'h')).map((parts) => parts.join(''));
const controlKeys = {
  protocol: fc.constantFrom(1, 2),
  port: fc.oneof(fc.constantFrom('7700-7799', '7799-7700', '0-1'), fc.integer({ min: -1, max: 70_000 })),
  socket: fc.constantFrom('/x', '/x/${resource}', '${resource}', `/${'x'.repeat(107)}`),
  host: fc.constantFrom('127.0.0.1', '::1', 'localhost'),
  home: fc.constantFrom('/x', '/${resource}', 'x'),
  capabilities: fc.array(fc.constantFrom('a', 'b', '-'), { maxLength: 3 }),
  survive: fc.boolean(),
  onRefused: fc.constantFrom('stop', 'wait'),
  onCancel: fc.constantFrom('stop', 'stop-if-started', 'leave'),
  lease: duration,
  idleTimeout: duration,
  busyCap: duration,
  recovery: section({ readTimeout: duration, readRetries: fc.nat(7), timeout: duration }),
  health: section({ interval: duration, timeout: duration, within: duration }),
  requireHealthy: fc.boolean(),
};
const control = section(controlKeys);
/** One that can be loaded, but for a few keys that it has besides or in place of what it needs. */
const nearlyFittingControl = fc
  .tuple(fc.record(controlKeys), fc.subarray(Object.keys(controlKeys), { maxLength: 3 }))
  .map(([all, some]) => {
    const few = Object.entries(all).filter(([key]) => some.includes(key));
    return { port: 7700, home: '/x', ...Object.fromEntries(few) };
  });
const program = section({
  exec: fc.tuple(fc.constant('/bin/x'), fc.constantFrom('${x}', '${resource}', 'plain')),
  parameters: fc.dictionary(fc.constantFrom('x', 'y'), fc.constantFrom('.*', '[', '[a-z]+'), { maxKeys: 2 }),
  environmentFiles: fc.array(fc.constantFrom('/x', '-/${resource}.env', 'x'), { maxLength: 2 }),
  environment: fc.dictionary(fc.constantFrom('A', 'OWNED_A', '1'), oddText),
  credentials: fc.dictionary(fc.constantFrom('a', '..', 'ownership'), fc.constantFrom('/x', 'x')),
  limits: section({ memory: fc.constantFrom('1G', '1K'), cpu: fc.double(), tasks: fc.integer() }),
  hardening: fc.oneof(
    fc.constantFrom('strict', 'off'),
    fc.dictionary(fc.constantFrom(...hardeningProperties), fc.oneof(fc.boolean(), anything)),
  ),
  stop: section({ signal: fc.constant('SIGINT'), timeout: duration, killMode: fc.constantFrom('mixed', 'none') }),
  lease: duration,
  restart: fc.oneof(
    fc.constantFrom('no', 'always'),
    section({ policy: fc.constant('no'), backoff: duration, maxBackoff: duration }),
  ),
  ready: fc.constantFrom('exec', 'notify'),
  control: fc.option(fc.oneof(control, nearlyFittingControl), { nil: undefined, freq: 1 }),
});
const file = section({
  connection: section({ address: fc.constant('x:1'), tls: section({ clientKeyFile: fc.constant('/x') }) }),
  run: fc.constantFrom(['host'], ['workflows'], []),
  host: section({ id: fc.constant('h'), resync: duration, systemd: section({ bus: fc.constantFrom('auto', 'user') }) }),
  programs: fc.dictionary(fc.constantFrom('p', 'q', 'a b'), program),
});

/** Loads, or throws a ConfigError in which every problem names a key path and a remedy; nothing else ever. */
function loadsOrExplains(text: string, machine: typeof root): boolean {
  try {
    load(text, { HOME: '/h', XDG_RUNTIME_DIR: '/r' }, machine);
    return true;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    expect(error.problems.length).toBeGreaterThan(0);
    for (const problem of error.problems) {
      for (const words of [problem.path, problem.message, problem.remedy, problem.value]) expect(words).toMatch(/\S/);
      expect(JSON.stringify(problem)).not.toContain('undefined');
      expect(`${problem.path}${problem.value}${problem.message}`).not.toMatch(/[\p{Cc}]/u);
    }
    return false;
  }
}

describe('every configuration either loads or says what is wrong', () => {
  it('as YAML of anything that resembles one', () => {
    let loaded = 0;
    fc.assert(
      fc.property(file, fc.constantFrom(root, user), (data, machine) => {
        if (loadsOrExplains(stringify(data, { aliasDuplicateObjects: false }), machine)) loaded++;
      }),
      { numRuns: 500 },
    );
    expect(loaded).toBeGreaterThan(0); // else the generator would only try what is refused
  });

  it('as a control server that is right but for a few keys', () => {
    let loaded = 0;
    fc.assert(
      fc.property(nearlyFittingControl, fc.option(duration, { nil: undefined }), (data, lease) => {
        const given = { exec: ['/bin/x'], control: data, ...(lease !== undefined && { lease }) };
        const text = stringify({ host: { id: 'h' }, programs: { p: given } }, { aliasDuplicateObjects: false });
        if (!loadsOrExplains(text, root)) return;
        loaded++;
        const { leaseMs, control: read } = load(text).programs.p!;
        expect(leaseMs).toBeGreaterThanOrEqual(effectiveLease(read!.lease).atMostMs);
      }),
      { numRuns: 500 },
    );
    expect(loaded).toBeGreaterThan(0);
  });

  it('as any text at all', () => {
    const piece = fc.oneof(
      fc.constantFrom('host:', ' ', '\n', '- ', '[', '{', '&a ', '*a', '!t ', '"', "'", '|', '? ', ': ', '%'),
      oddText,
    );
    fc.assert(
      fc.property(fc.array(piece), (pieces) => {
        loadsOrExplains(pieces.join(''), root);
      }),
      { numRuns: 500 },
    );
  });
});

it('whatever a workflow sends, what is accepted is one line that matches the pattern and stands as it is in its argument', () => {
  const checked = loadProgram("exec: [/bin/echo, '-p${x}']", "parameters: { x: '[^-][^]*' }");
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.string(), anything), (x) => {
      if (checkParameters(checked, { x }).length > 0) return;
      expect(typeof x).toBe('string');
      expect(x).toMatch(/^[^-]\P{Cc}*$/u);
      expect(expand(checked.exec[1]!, { x: x as string })).toBe(`-p${x as string}`);
    }),
  );
});

it('whatever the resource, a path that names it stays below', () => {
  const segment = fc.stringMatching(/^[A-Za-z0-9._-]{1,5}$/).filter((text) => text !== '.' && text !== '..');
  const resource = fc.array(segment, { minLength: 1, maxLength: 3 }).map((segments) => segments.join('/'));
  const around = fc.stringMatching(/^[a-z.]{0,3}$/);
  fc.assert(
    fc.property(resource, around, around, (name, before, after) => {
      const line = `workingDirectory: ${JSON.stringify(`/srv/${before}\${resource}${after}`)}`;
      const path = expand(loadProgram(line).workingDirectory!, { resource: name });
      expect(path.split('/').slice(1)).not.toContain('..');
      expect(path).toMatch(/^\/srv\/[^/]/);
    }),
  );
});
