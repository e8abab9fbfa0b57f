// `npm test`: everything that has to hold, from a fresh clone on. Its last line is always `N passed, N failed`.
//
//   npm test                    packages, Temporal CLI, lint, format, types, build, and all tests
//   npm test -- test/unit       only jest, with these arguments
//
// A check that fails counts as one failure, and the rest still runs: one run shows all there is to fix.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { installRequirements, repository } from './requirements.mjs';

const jestArguments = process.argv.slice(2);
const totals = { passed: 0, failed: 0 };

// Ctrl-C reaches the running step as well: it cleans up and ends, and the line with the totals still comes.
let interrupted = false;
process.on('SIGINT', () => (interrupted = true));

const missing = installRequirements();
if (missing) fail('packages', missing);
if (jestArguments.length === 0) {
  await temporalCli();
  await check('lint', ['npx', 'eslint', '.']);
  await check('format', ['npx', 'prettier', '--check', '.']);
  await check('types', ['npx', 'tsc', '--noEmit', '-p', 'tsconfig.json']);
  await check('build', ['node', 'scripts/build.mjs']);
}
await jest();

console.log(`${totals.passed} passed, ${totals.failed} failed`);
process.exitCode = totals.failed > 0 ? 1 : 0;

/** Gets it ahead of the tests, so that a download or a build of minutes happens once, and is seen to happen. */
async function temporalCli() {
  if (process.env.TEMPORAL_ADDRESS) return announce(`Temporal server: ${process.env.TEMPORAL_ADDRESS}`);
  try {
    const require = createRequire(import.meta.url);
    require('../test/support/typescript-hook.js');
    const { resolveTemporalCli } = require('../test/support/temporal-cli.ts');
    announce(`Temporal CLI: ${await resolveTemporalCli(announce)}`);
  } catch (error) {
    fail('Temporal CLI', error instanceof Error ? error.message : String(error));
  }
}

async function check(name, command) {
  announce(name);
  const code = await run(command);
  if (code !== 0) fail(name, `\`${command.join(' ')}\` ended with exit code ${code}`);
}

/** Counts what jest reports: its tests, and each test file that could not run at all as one failure. */
async function jest() {
  announce('tests');
  const folder = await mkdtemp(join(tmpdir(), 'temporal-systemd-results-'));
  const file = join(folder, 'results.json');
  const code = await run(['npx', 'jest', '--json', `--outputFile=${file}`, ...jestArguments], 'stderr');
  const results = existsSync(file) ? JSON.parse(await readFile(file, 'utf8')) : undefined;
  await rm(folder, { recursive: true });

  totals.passed += results?.numPassedTests ?? 0;
  const failures = (results?.numFailedTests ?? 0) + (results?.numRuntimeErrorTestSuites ?? 0);
  totals.failed += failures;
  if (results?.numPendingTests > 0) announce(`${results.numPendingTests} skipped`);
  if (code !== 0 && failures === 0) fail('tests', `jest ended with exit code ${code} and reported no failed test`);
}

/** Runs a step in the repository; resolves with its exit code. With `stderr`, what it prints to stdout is dropped. */
function run([command, ...args], output = 'stdout') {
  if (interrupted) return 'none (interrupted)';
  const stdio = ['inherit', output === 'stdout' ? 'inherit' : 'ignore', 'inherit'];
  const child = spawn(command, args, { cwd: repository, stdio, shell: process.platform === 'win32' });
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('exit', (code, signal) => resolve(code ?? signal));
  });
}

function announce(text) {
  console.log(`\n> ${text}`);
}

function fail(name, reason) {
  totals.failed += 1;
  console.error(`\nFAILED ${name}: ${reason}`);
}
