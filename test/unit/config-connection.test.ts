import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConfigError, resolveConnection } from '../../src/config';
import type { ConfigProblem } from '../../src/config';

let folder: string;
const file = (name: string, text: string): string => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'config-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function problemsOf(...given: Parameters<typeof resolveConnection>): readonly ConfigProblem[] {
  try {
    resolveConnection(...given);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  throw new Error('resolved, though it should not');
}

describe('where a connection setting comes from', () => {
  const toml = (): string =>
    file(
      'temporal.toml',
      '[profile.default]\naddress = "toml:1"\n[profile.prod]\naddress = "prod:1"\nnamespace = "prod-ns"\n',
    );

  it('is localhost:7233 and the namespace "default" where nothing says otherwise', () => {
    expect(resolveConnection({}, {})).toEqual({
      connectionOptions: { address: 'localhost:7233' },
      namespace: 'default',
    });
  });

  it('is temporal.yaml before the environment, before the profile', () => {
    const env = { TEMPORAL_CONFIG_FILE: toml(), TEMPORAL_NAMESPACE: 'env-ns' };
    expect(resolveConnection({}, env)).toMatchObject({ connectionOptions: { address: 'toml:1' }, namespace: 'env-ns' });
    expect(resolveConnection({}, { ...env, TEMPORAL_ADDRESS: 'env:1' }).connectionOptions.address).toBe('env:1');
    expect(resolveConnection({ address: 'yaml:1' }, { ...env, TEMPORAL_ADDRESS: 'env:1' })).toMatchObject({
      connectionOptions: { address: 'yaml:1' },
      namespace: 'env-ns',
    });
  });

  it('is the profile that temporal.yaml names, also where the environment names another', () => {
    const env = { TEMPORAL_CONFIG_FILE: toml(), TEMPORAL_PROFILE: 'default' };
    expect(resolveConnection({ profile: 'prod' }, env)).toMatchObject({
      connectionOptions: { address: 'prod:1' },
      namespace: 'prod-ns',
    });
  });

  it('is the temporal.toml of the user whose environment it is', () => {
    mkdirSync(join(folder, 'home/.config/temporalio'), { recursive: true });
    file('home/.config/temporalio/temporal.toml', '[profile.default]\naddress = "home:1"\n');
    expect(resolveConnection({}, { HOME: join(folder, 'home') }).connectionOptions.address).toBe('home:1');
  });
});

describe('API keys', () => {
  it('come from their file, without the line break at its end, and bring TLS along', () => {
    const apiKeyFile = file('key', 'k3y\n');
    expect(resolveConnection({ apiKeyFile }, { TEMPORAL_API_KEY: 'other' }).connectionOptions).toMatchObject({
      apiKey: 'k3y',
      tls: true,
    });
  });

  it('leave TLS off where the environment turns it off', () => {
    const options = resolveConnection({}, { TEMPORAL_API_KEY: 'k', TEMPORAL_TLS: 'false' }).connectionOptions;
    expect(options).toMatchObject({ apiKey: 'k', tls: false });
  });

  it('win over an authorization header of a lower layer', () => {
    const env = { TEMPORAL_GRPC_META_AUTHORIZATION: 'Bearer old', TEMPORAL_GRPC_META_X: 'y' };
    const options = resolveConnection({ apiKeyFile: file('key', 'k') }, env).connectionOptions;
    expect(options.metadata).toEqual({ x: 'y' });
  });

  it.each([
    ['', 'empty'],
    ['two\nlines', 'one line'],
  ])('are refused when the file holds %j', (text, message) => {
    expect(problemsOf({ apiKeyFile: file('key', text) }, {})).toEqual([
      expect.objectContaining({ path: 'connection.apiKeyFile', message: expect.stringContaining(message) }),
    ]);
  });
});

describe('TLS', () => {
  it('takes each file from the uppermost layer that names it', () => {
    const env = {
      TEMPORAL_TLS_CLIENT_CERT_DATA: 'CERT',
      TEMPORAL_TLS_CLIENT_KEY_DATA: 'KEY',
      TEMPORAL_TLS_SERVER_NAME: 'env',
    };
    const tls = { clientKeyFile: file('client.key', 'OWN KEY'), serverRootCaFile: file('ca.pem', 'CA') };
    expect(resolveConnection({ tls }, env).connectionOptions.tls).toEqual({
      serverNameOverride: 'env',
      serverRootCACertificate: Buffer.from('CA'),
      clientCertPair: { crt: Buffer.from('CERT'), key: Buffer.from('OWN KEY') },
    });
  });

  it('is used when temporal.yaml has a tls section, even an empty one', () => {
    expect(resolveConnection({ tls: {} }, { TEMPORAL_TLS: 'false' }).connectionOptions.tls).toEqual({});
  });

  it('is refused with a certificate that has no key', () => {
    expect(problemsOf({ tls: { clientCertFile: file('client.pem', 'CERT') } }, {})).toEqual([
      expect.objectContaining({ path: 'connection.tls.clientKeyFile', remedy: 'name both, or neither' }),
    ]);
  });
});

describe('what can not be read', () => {
  it('is named all at once, with the file', () => {
    const tls = { clientCertFile: join(folder, 'none.pem'), clientKeyFile: folder };
    const problems = problemsOf({ tls, apiKeyFile: join(folder, 'none') }, {}, '/etc/temporal.yaml');
    expect(problems.map(({ file: named, path, value }) => [named, path, value])).toEqual([
      ['/etc/temporal.yaml', 'connection.apiKeyFile', JSON.stringify(join(folder, 'none'))],
      ['/etc/temporal.yaml', 'connection.tls.clientCertFile', JSON.stringify(join(folder, 'none.pem'))],
      ['/etc/temporal.yaml', 'connection.tls.clientKeyFile', JSON.stringify(folder)],
    ]);
  });

  it('is named when it is a profile that does not exist', () => {
    expect(problemsOf({ profile: 'nope' }, {})[0]?.message).toContain("Profile 'nope' not found");
  });

  it('quotes nothing of a broken temporal.toml (G9)', () => {
    const TEMPORAL_CONFIG_FILE = file('broken.toml', '[profile.default]\napi_key = s3cret\n');
    const [problem] = problemsOf({}, { TEMPORAL_CONFIG_FILE });
    expect(problem?.path).toBe('connection.profile');
    expect(JSON.stringify(problem)).not.toContain('s3cret');
  });
});
