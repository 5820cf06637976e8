// Bundles the console: node build.mjs OUTDIR. Called by scripts/console.
import { build } from 'esbuild';
import { copyFileSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];

// Whose work is in the bundle, as their licences ask.
function credits() {
    const { dependencies } = JSON.parse(readFileSync(join(here, 'package.json')));
    return Object.keys(dependencies)
        .map((name) => {
            const of = JSON.parse(readFileSync(join(here, 'node_modules', name, 'package.json')));
            const author = typeof of.author === 'object' ? of.author.name : of.author;
            return ` * ${name} ${of.version}, ${of.license}${author ? `, by ${author.replace(/ <.*/, '')}` : ''}`;
        })
        .join('\n');
}

await build({
    absWorkingDir: here,
    entryPoints: { app: 'src/app.js' },
    outdir: out,
    bundle: true,
    minify: true,
    format: 'esm',
    target: 'es2022',
    legalComments: 'eof',
    banner: { js: `/* The console of outlog. It contains:\n${credits()}\n */` },
    logLevel: 'warning',
});
for (const name of ['index.html', 'favicon.svg']) copyFileSync(join(here, name), join(out, name));
