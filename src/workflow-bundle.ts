import { existsSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Where the build keeps the owners' workflow code, bundled. Bundling and running need the same `@temporalio/worker`, and
 * a consumer may have a later one, so its version is in the name.
 */
export function workflowBundleFile(): string {
  // eslint-disable-next-line @typescript-eslint/no-require-imports -- outside of `rootDir`, and JSON
  const { version } = require('@temporalio/worker/package.json') as { readonly version: string };
  return join(__dirname, `workflow-bundle-${version}.js`);
}

/** The owners' workflow code as a worker takes it: prebuilt where it fits, else bundled at the start of the worker. */
export function ownersWorkflows():
  { readonly workflowBundle: { readonly codePath: string } } | { readonly workflowsPath: string } {
  const codePath = workflowBundleFile();
  return existsSync(codePath) ? { workflowBundle: { codePath } } : { workflowsPath: require.resolve('./workflows') };
}
