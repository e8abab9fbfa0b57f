import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Version of this package, as its package.json has it. */
export const VERSION = (
  JSON.parse(readFileSync(join(__dirname, '../package.json'), 'utf8')) as { readonly version: string }
).version;
