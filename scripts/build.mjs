// `npm run build`: src → lib, and the workflow bundle of `temporal-systemd worker`, so that a restart costs no webpack.
import { execFileSync } from 'node:child_process';
import { chmod, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const repository = fileURLToPath(new URL('..', import.meta.url));
const require = createRequire(import.meta.url);
process.chdir(repository);

await rm('lib', { recursive: true, force: true }); // what src has no longer must not be packed
execFileSync(process.execPath, [require.resolve('typescript/bin/tsc'), '-p', 'tsconfig.build.json'], {
  stdio: 'inherit',
});
await chmod('lib/cli.js', 0o755);

const { bundleWorkflowCode, DefaultLogger } = require('@temporalio/worker');
const { workflowBundleFile } = require('../lib/workflow-bundle.js');
const { code } = await bundleWorkflowCode({
  workflowsPath: require.resolve('../lib/workflows'),
  logger: new DefaultLogger('WARN'),
});
await writeFile(workflowBundleFile(), code);
