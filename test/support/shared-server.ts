import { DevServer } from './dev-server';

/**
 * How the test files of one jest run come to share one server. The global setup runs in jest's own process, the test
 * files in its workers, which start with its environment: variables are the way between them.
 */
const addressVariable = 'TEMPORAL_SYSTEMD_TEST_ADDRESS';
const errorVariable = 'TEMPORAL_SYSTEMD_TEST_ERROR';

let server: DevServer | undefined;

/** Starts the server of this run, unless the environment names one already. */
export async function startSharedServer(): Promise<void> {
  if (process.env.TEMPORAL_ADDRESS || process.env[addressVariable]) return;
  try {
    server = await DevServer.open({ report: (progress) => process.stderr.write(`${progress}\n`) });
    process.env[addressVariable] = server.address;
  } catch (error) {
    // Failing here would end the whole run; this way each file that opens a server fails with the reason.
    process.env[errorVariable] = error instanceof Error ? error.message : String(error);
  }
}

/** Ends the server that {@link startSharedServer} started. Its state is in memory, so there is nothing to save. */
export async function endSharedServer(): Promise<void> {
  await server?.end('SIGKILL');
}

/** The address of this run's server; `undefined` outside of a run that has one. Throws why it could not be started. */
export function sharedServerAddress(): string | undefined {
  const error = process.env[errorVariable];
  if (error) throw new Error(error);
  return process.env[addressVariable];
}
