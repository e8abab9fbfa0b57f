const shared = {
  testEnvironment: 'node',
  modulePathIgnorePatterns: ['<rootDir>/lib'],
  transform: {
    '^.+\\.ts$': [
      '@swc/jest',
      { jsc: { parser: { syntax: 'typescript' }, target: 'es2022' }, module: { type: 'commonjs' } },
    ],
  },
  cacheDirectory: '<rootDir>/node_modules/.cache/jest',
};

/** Folders whose tests need no Temporal server: none is started for a run of these alone. */
const withoutServer = ['unit', 'host', 'replay'];

/** @type {import('jest').Config} */
module.exports = {
  maxWorkers: 2,
  testTimeout: 120_000, // of the run: jest reads none in a project
  projects: [
    {
      ...shared,
      displayName: 'hosts',
      testMatch: withoutServer.map((folder) => `<rootDir>/test/${folder}/**/*.test.ts`),
    },
    {
      ...shared,
      displayName: 'temporal',
      testMatch: ['<rootDir>/test/**/*.test.ts'],
      testPathIgnorePatterns: withoutServer.map((folder) => `<rootDir>/test/${folder}/`),
      globalSetup: '<rootDir>/test/support/global-setup.ts',
      globalTeardown: '<rootDir>/test/support/global-teardown.ts',
    },
  ],
};
