import { createTypeScriptImportResolver } from 'eslint-import-resolver-typescript';
import importX from 'eslint-plugin-import-x';
import tseslint from 'typescript-eslint';

/** What is bundled into the workflow sandbox may use nothing of Node and none of the heavy libraries. */
const sandboxed = {
  patterns: [
    { regex: '^node:', message: 'Workflow code runs in a sandbox without Node built-ins.' },
    { regex: '^(zod|dbus-next|pino|yaml|commander)$', message: 'Keep libraries out of the workflow bundle.' },
    {
      regex: '^\\.\\./(activities|host|systemd|cgroup|config|client|plugin|worker)',
      message: 'Arrows point one way: workflows → contract ← activities → host → systemd, cgroup.',
    },
  ],
};

export default tseslint.config(
  { ignores: ['lib/**', 'node_modules/**', 'coverage/**'] },
  {
    files: ['**/*.ts'],
    extends: [...tseslint.configs.recommendedTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    plugins: { 'import-x': importX },
    settings: { 'import-x/resolver-next': [createTypeScriptImportResolver()] },
    rules: {
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/switch-exhaustiveness-check': ['error', { considerDefaultExhaustiveForUnions: true }],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_', varsIgnorePattern: '^_' }],
      '@typescript-eslint/require-await': 'off',
      'import-x/no-cycle': 'error',
      'import-x/no-default-export': 'error',
    },
  },
  {
    files: ['src/**/*.ts'],
    ignores: ['src/systemd/**'],
    rules: { '@typescript-eslint/no-restricted-imports': ['error', { paths: ['dbus-next'] }] },
  },
  {
    files: ['src/workflows/**/*.ts', 'src/contract/**/*.ts'],
    rules: { '@typescript-eslint/no-restricted-imports': ['error', { ...sandboxed, paths: ['dbus-next'] }] },
  },
  { files: ['test/**/*.ts', 'bench/**/*.ts'], rules: { '@typescript-eslint/no-unsafe-assignment': 'off' } },
);
