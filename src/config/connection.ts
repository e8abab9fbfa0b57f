import { readFileSync } from 'node:fs';
import { loadClientConfigProfile } from '@temporalio/envconfig';
import type { ClientConfigProfile, ClientConnectConfig, ConfigDataSource } from '@temporalio/envconfig';
import type { ConnectionConfig } from './config';
import { ConfigError } from './config-error';
import type { ConfigProblem } from './config-error';

/** Where to connect, for `NativeConnection.connect` as well as `Connection.connect`, and the namespace to use there. */
export interface ResolvedConnection {
  readonly connectionOptions: ClientConnectConfig['connectionOptions'];
  readonly namespace: string;
}

const DEFAULT_ADDRESS = 'localhost:7233';
const DEFAULT_NAMESPACE = 'default';

type Report = (path: string, value: string, message: string, remedy: string) => void;

/**
 * How to connect, in layers, setting by setting:
 *
 * 1. `connection` of `temporal.yaml`;
 * 2. the environment: `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS…`;
 * 3. the profile (`connection.profile`, `TEMPORAL_PROFILE`, or `default`) of the Temporal client configuration
 *    (`TEMPORAL_CONFIG_FILE`, or `temporalio/temporal.toml` in the user's configuration folder);
 * 4. `localhost:7233`, namespace `default`, no TLS.
 *
 * Layers 2 and 3 are `@temporalio/envconfig`. TLS is used when any layer configures it, or an API key without one that
 * turns it off. Files are read here and now; throws {@link ConfigError} with all that can't be.
 */
export function resolveConnection(
  connection: ConnectionConfig,
  env: NodeJS.ProcessEnv = process.env,
  file = 'temporal.yaml',
): ResolvedConnection {
  const problems: ConfigProblem[] = [];
  const report: Report = (path, value, message, remedy) => problems.push({ file, path, value, message, remedy });

  const profile = readProfile(connection, env, report);
  const apiKey = connection.apiKeyFile === undefined ? profile.apiKey : readApiKey(connection.apiKeyFile, report);
  const tls = resolveTls(connection, profile, report) ?? (apiKey === undefined ? undefined : true);
  if (problems.length > 0) throw new ConfigError(problems);

  const metadata = { ...profile.grpcMeta };
  // A header of a lower layer would win over the key.
  if (connection.apiKeyFile !== undefined) delete metadata.authorization;
  return {
    connectionOptions: {
      address: connection.address ?? profile.address ?? DEFAULT_ADDRESS,
      ...(apiKey !== undefined && { apiKey }),
      ...(tls !== undefined && { tls }),
      ...(Object.keys(metadata).length > 0 && { metadata }),
    },
    namespace: connection.namespace ?? profile.namespace ?? DEFAULT_NAMESPACE,
  };
}

function readProfile(connection: ConnectionConfig, env: NodeJS.ProcessEnv, report: Report): ClientConfigProfile {
  const overrideEnvVars: Record<string, string> = {};
  for (const [name, value] of Object.entries(env)) if (value !== undefined) overrideEnvVars[name] = value;
  try {
    return loadClientConfigProfile({ profile: connection.profile, overrideEnvVars });
  } catch (error) {
    // The first line says what is wrong; the lines after it quote the file, which may hold the key (G9).
    const reason = error instanceof Error ? error.message.split('\n')[0]! : 'unknown error';
    const remedy = 'correct the Temporal client configuration (TEMPORAL_CONFIG_FILE, TEMPORAL_PROFILE, TEMPORAL_*)';
    report('connection.profile', connection.profile ?? 'nothing', `can't be loaded: ${reason}`, remedy);
    return {};
  }
}

function resolveTls(
  { tls }: ConnectionConfig,
  { tls: lower }: ClientConfigProfile,
  report: Report,
): ClientConnectConfig['connectionOptions']['tls'] {
  if (tls === undefined && lower === undefined) return undefined;
  if (tls === undefined && lower?.disabled === true) return false;
  const read = (key: keyof NonNullable<typeof tls>, below: ConfigDataSource | undefined): Uint8Array | undefined => {
    const own = tls?.[key];
    const source = own === undefined ? below : { path: own };
    if (source === undefined) return undefined;
    return 'path' in source ? readFile(`connection.tls.${key}`, source.path, report) : Buffer.from(source.data);
  };
  const serverRootCACertificate = read('serverRootCaFile', lower?.serverCACert);
  const crt = read('clientCertFile', lower?.clientCert);
  const key = read('clientKeyFile', lower?.clientKey);
  const hasCert = (tls?.clientCertFile ?? lower?.clientCert) !== undefined;
  const hasKey = (tls?.clientKeyFile ?? lower?.clientKey) !== undefined;
  if (hasCert !== hasKey) {
    const missing = hasCert ? 'clientKeyFile' : 'clientCertFile';
    report(`connection.tls.${missing}`, 'nothing', 'is missing: a certificate needs its key', 'name both, or neither');
  }
  const serverName = tls?.serverName ?? lower?.serverName;
  return {
    ...(serverName !== undefined && { serverNameOverride: serverName }),
    ...(serverRootCACertificate && { serverRootCACertificate }),
    ...(crt && key && { clientCertPair: { crt, key } }),
  };
}

function readApiKey(path: string, report: Report): string {
  const key = readFile('connection.apiKeyFile', path, report)?.toString('utf8').trim();
  if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
    const message = key === '' ? 'names an empty file' : 'names a file that is not one line of printable ASCII';
    report('connection.apiKeyFile', JSON.stringify(path), message, 'write the key and nothing else into it');
  }
  return key ?? '';
}

function readFile(key: string, path: string, report: Report): Buffer | undefined {
  try {
    return readFileSync(path);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown error';
    report(key, JSON.stringify(path), `can't be read (${code})`, 'name a file that this user may read');
    return undefined;
  }
}
