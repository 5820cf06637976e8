// What ESLint looks for in the JavaScript of the console, the tests, the benchmarks and the examples.
// scripts/lint runs it from the root of the tree.
import js from '@eslint/js';
import globals from 'globals';

export default [
    js.configs.recommended,
    {
        rules: {
            eqeqeq: ['error', 'always', { null: 'ignore' }],
            'no-unused-vars': [
                'error',
                { argsIgnorePattern: '^_', varsIgnorePattern: '^_', caughtErrors: 'none' },
            ],
            'no-var': 'error',
            'prefer-const': 'error',
        },
    },
    {
        files: ['console/src/**', 'console/plain/**'],
        languageOptions: { globals: globals.browser },
    },
    // Code of a page stands inside page.evaluate() of the tests.
    { files: ['test/**'], languageOptions: { globals: { ...globals.node, ...globals.browser } } },
    {
        files: ['console/*.mjs', 'bench/**', 'examples/**'],
        languageOptions: { globals: globals.node },
    },
];
