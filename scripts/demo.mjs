// `npm run demo [-- control-server]`: gets what is missing, then runs the demo. Other arguments are passed on (`--keep`).
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { installRequirements, repository } from './requirements.mjs';

if (process.platform !== 'linux') {
  console.error(
    `The demo owns a real systemd unit, and systemd runs on Linux only; this is ${process.platform}. ` +
      'Use a Linux machine, a virtual machine, or a container: docker run --rm -it --privileged -v "$PWD:/src" -w /src node:20 ' +
      'bash -c "apt-get update && apt-get install -y systemd dbus && npm run demo"',
  );
  process.exit(1);
}

const demos = new Map([
  [undefined, 'examples/demo.ts'],
  ['control-server', 'examples/control-server/demo.ts'],
]);
const args = process.argv.slice(2);
const name = args[0]?.startsWith('-') ? undefined : args.shift();
const file = demos.get(name);
if (!file) {
  console.error(`There is no demo "${name}": use npm run demo, or npm run demo -- control-server`);
  process.exit(1);
}

const missing = installRequirements();
if (missing) {
  console.error(missing);
  process.exit(1);
}

// The demo is TypeScript, and runs as it is: a hook compiles it and the project's sources while they are loaded.
const require = createRequire(import.meta.url);
const hook = require.resolve('../test/support/typescript-hook.js');
const command = ['--require', hook, join(repository, file), ...args];
const demo = spawn(process.execPath, command, { cwd: repository, stdio: 'inherit' });
// The demo cleans up and ends; this process only waits for that. From a terminal the demo gets Ctrl-C twice, which is fine.
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => demo.kill(signal));
demo.once('exit', (code) => process.exit(code ?? 1));
