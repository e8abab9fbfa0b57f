// `npm run mutate [-- NAME…]`: breaks one rule at a time, in a copy, and shows that some test fails for it. A mutation that
// no test notices is a rule that nobody guards; so is one whose place in the code is no longer found.
import { execFile } from 'node:child_process';
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { mutations } from './mutations.mjs';

const repository = fileURLToPath(new URL('..', import.meta.url));
const copied = ['src', 'test', 'examples', 'package.json', 'jest.config.js', 'tsconfig.json', 'temporal.yaml'];
const wanted = process.argv.slice(2);
const chosen = mutations.filter(({ name }) => wanted.length === 0 || wanted.some((w) => name.includes(w)));

// Not below /tmp: the hosts of tests have one of their own.
const copy = await mkdtemp('/var/tmp/temporal-systemd-mutate-');
let unnoticed = 0;
try {
  for (const entry of copied) await cp(join(repository, entry), join(copy, entry), { recursive: true });
  await symlink(join(repository, 'node_modules'), join(copy, 'node_modules'));
  for (const mutation of chosen) {
    const { name, file, find, replace, tests, only, project = 'hosts' } = mutation;
    const path = join(copy, file);
    const original = await readFile(path, 'utf8');
    if (original.split(find).length !== 2) {
      unnoticed++;
      console.log(`NOT FOUND  ${name}: ${JSON.stringify(find)} does not stand exactly once in ${file}`);
      continue;
    }
    await writeFile(
      path,
      original.replace(find, () => replace),
    );
    const failed = await jestFails(project, [...tests, ...(only ? ['-t', only] : [])]);
    await writeFile(path, original);
    if (failed === undefined) unnoticed++;
    console.log(failed === undefined ? `UNNOTICED  ${name}` : `noticed    ${name}\n             by: ${failed}`);
  }
} finally {
  await rm(copy, { recursive: true, force: true });
}
console.log(`${chosen.length - unnoticed} of ${chosen.length} mutations noticed`);
process.exitCode = unnoticed > 0 ? 1 : 0;

/** The first test that fails, or undefined when all pass. */
function jestFails(project, args) {
  return new Promise((resolve) => {
    // What waits for an event that a mutation took away waits in vain: shorter, and not for its last timer.
    const options = ['--bail', '--testTimeout=20000', '--forceExit', '--cacheDirectory', join(copy, '.jest')];
    const command = ['jest', '--selectProjects', project, ...options, ...args];
    execFile('npx', command, { cwd: copy, maxBuffer: 1 << 26, timeout: 300_000 }, (error, _stdout, stderr) => {
      if (!error) return resolve(undefined);
      resolve(/● (.+)/.exec(stderr)?.[1] ?? `jest: ${error.message.split('\n')[0]}`);
    });
  });
}
