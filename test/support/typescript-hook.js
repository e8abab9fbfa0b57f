// Lets a plain `node` process load this project's TypeScript without a build, with the compiler that jest uses:
//   node --require ./test/support/typescript-hook.js file.ts
const Module = require('node:module');
const { join } = require('node:path');
const { transformFileSync } = require('@swc/core');

require.extensions['.ts'] = (module, file) => {
  const { code } = transformFileSync(file, {
    swcrc: false,
    sourceMaps: 'inline',
    jsc: { parser: { syntax: 'typescript' }, target: 'es2022' },
    module: { type: 'commonjs' },
  });
  module._compile(code, file);
};

// `temporal-systemd/…`, as the examples have it, is the sources as well.
const resolve = Module._resolveFilename;
Module._resolveFilename = (request, ...rest) =>
  resolve(request.replace(/^temporal-systemd(?=\/|$)/, join(__dirname, '../../src')), ...rest);
