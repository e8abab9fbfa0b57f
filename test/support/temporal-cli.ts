import { accessSync, constants } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { expectSuccess, runCommand } from './command';

/** What `go install` can build; newer tags of the CLI have a `replace` in their go.mod, which it refuses. */
const goPackage = 'github.com/temporalio/cli/cmd/temporal@v1.5.1';

/** Where this project keeps the one copy of the Temporal CLI that it got itself. */
export const cacheFolder = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'temporal-systemd', 'bin');

/**
 * The path of a Temporal CLI, whose `server start-dev` is the server of the tests and the demo. Looked up in this order:
 * TEMPORAL_CLI_PATH, `temporal` on PATH, the copy in {@link cacheFolder}; then got into that folder by the SDK's own
 * download or by `go install`, which may take minutes. Rejects with all of these where none works.
 *
 * @param report is told what is going on where it takes longer than a look-up.
 */
export async function resolveTemporalCli(report: (progress: string) => void = () => {}): Promise<string> {
  const named = process.env.TEMPORAL_CLI_PATH;
  if (named) {
    if (isExecutable(named)) return named;
    throw new Error(
      `TEMPORAL_CLI_PATH=${named} is not an executable file. Correct it, or unset it to have one looked up.`,
    );
  }
  const cached = join(cacheFolder, 'temporal');
  const found = findOnPath('temporal') ?? (isExecutable(cached) ? cached : undefined);
  if (found) return found;

  await mkdir(cacheFolder, { recursive: true });
  report(`No Temporal CLI on PATH or in ${cacheFolder}; downloading one`);
  const download = await attempt(downloadWithSdk(cached));
  if (download === 'ok') return cached;

  if (findOnPath('go')) report(`The download failed; building it with Go, which takes up to 5 minutes`);
  const build = findOnPath('go') ? await attempt(buildWithGo()) : 'no `go` on PATH';
  if (build === 'ok') return cached;
  throw new Error(
    'No Temporal server for the tests. Do one of these: set TEMPORAL_ADDRESS to a running server; put the Temporal CLI ' +
      '(https://docs.temporal.io/cli) on PATH, or its path into TEMPORAL_CLI_PATH; give this machine internet access for ' +
      `a download (it failed: ${download}) or Go for \`go install ${goPackage}\` (it failed: ${build}).`,
  );
}

/** The SDK downloads as a part of starting a server, so one is started for it and ended. */
async function downloadWithSdk(target: string): Promise<void> {
  const { TestWorkflowEnvironment } = await import('@temporalio/testing'); // loads native code: only where it is needed
  const downloadDir = await mkdtemp(join(cacheFolder, 'download-'));
  try {
    const server = { executable: { type: 'cached-download' as const, downloadDir } };
    await (await TestWorkflowEnvironment.createLocal({ server })).teardown();
    const [file] = (await readdir(downloadDir)).filter((name) => name.startsWith('temporal-'));
    if (!file) throw new Error(`the SDK left no temporal-* file in ${downloadDir}`);
    await rename(join(downloadDir, file), target);
  } finally {
    await rm(downloadDir, { recursive: true });
  }
}

async function buildWithGo(): Promise<void> {
  const command = ['go', 'install', goPackage];
  expectSuccess(command, await runCommand(command, { env: { ...process.env, GOBIN: cacheFolder } }));
}

/** `ok`, or the last line of what went wrong: both ways out may fail, and then the reader needs both reasons. */
async function attempt(work: Promise<void>): Promise<string> {
  try {
    await work;
    return 'ok';
  } catch (error) {
    return (
      String(error instanceof Error ? error.message : error)
        .trim()
        .split('\n')
        .at(-1) ?? ''
    );
  }
}

function findOnPath(program: string): string | undefined {
  const folders = (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '');
  return folders.map((folder) => join(folder, program)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
