import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['dist/', 'node_modules/', '*.mjs'] },
  ...tseslint.configs.strictTypeChecked,
  { languageOptions: { parserOptions: { project: './tsconfig.json' } } },
  {
    files: ['test/**'],
    // node:test's promises are awaited by the runner
    rules: { '@typescript-eslint/no-floating-promises': 'off' },
  },
)
