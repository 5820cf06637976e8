// job_queues.mjs: other job queues in the same database, each with the settings its authors recommend for speed.
//
//     node job_queues.mjs graphile|pgboss fill URL COUNT
//     node job_queues.mjs graphile|pgboss drain URL COUNT [BATCH]
//
// drain prints one line of JSON. graphile-worker runs in two processes (24 jobs at once, a local queue of
// 500, completions in batches); pg-boss as two loops of fetch and complete of BATCH, which skip its poll delay.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const BATCH = 1000;
const PROCESSES = 2;
const payload = (i) => ({ order_id: `ord_${String(i).padStart(10, '0')}`, note: 'x'.repeat(364) });

function* batches(count) {
    for (let from = 0; from < count; from += BATCH)
        yield Array.from({ length: Math.min(BATCH, count - from) }, (_, i) => payload(from + i));
}

function printResult(count, seconds) {
    console.log(JSON.stringify({ messages: count, seconds, per_second: count / seconds }));
}

const graphile = {
    preset: (url) => ({
        worker: {
            connectionString: url,
            maxPoolSize: 25,
            concurrentJobs: 24,
            localQueue: { size: 500 },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
            pollInterval: 2000,
            preparedStatements: true,
        },
    }),

    async fill(url, count) {
        const { makeWorkerUtils, Logger } = await import('graphile-worker');
        const utils = await makeWorkerUtils({
            connectionString: url,
            logger: new Logger(() => () => {}),
        });
        await utils.migrate();
        for (const batch of batches(count))
            await utils.withPgClient((pg) =>
                pg.query(
                    'select graphile_worker.add_jobs(array(select json_populate_record(null::graphile_worker.job_spec, ' +
                        "json_build_object('identifier', 'noop', 'payload', p.value)) from json_array_elements($1::json) p))",
                    [JSON.stringify(batch)],
                ),
            );
        await utils.withPgClient((pg) => pg.query('analyze graphile_worker._private_jobs'));
        await utils.release();
    },

    // Processes connect first; the time runs from the word "go" until all jobs were done.
    async drain(url, count) {
        const children = Array.from({ length: PROCESSES }, () =>
            fork(fileURLToPath(import.meta.url), ['graphile', 'work', url, String(count)]),
        );
        await Promise.all(
            children.map((child) => new Promise((ready) => child.once('message', ready))),
        );
        const begun = performance.now();
        const done = new Array(PROCESSES).fill(0);
        await new Promise((resolve, reject) => {
            children.forEach((child, i) => {
                child.on('message', ({ total }) => {
                    done[i] = total;
                    if (done.reduce((a, b) => a + b) >= count) resolve();
                });
                child.on('exit', () => reject(new Error('a worker ended early')));
                child.send('go');
            });
        });
        printResult(count, (performance.now() - begun) / 1000);
        for (const child of children) child.removeAllListeners('exit').kill();
    },

    async work(url) {
        const { run, Logger } = await import('graphile-worker');
        let total = 0,
            reported = 0;
        process.once('message', () =>
            run({
                preset: graphile.preset(url),
                logger: new Logger(() => () => {}),
                taskList: {
                    noop: () => {
                        total++;
                    },
                },
            }),
        );
        setInterval(() => {
            if (total !== reported) process.send({ total: (reported = total) });
        }, 5);
        process.send({ ready: true });
        process.on('SIGTERM', () => process.exit(0));
        process.on('disconnect', () => process.exit(0));
    },
};

const pgboss = {
    async open(url) {
        const { default: Boss } = await import('pg-boss');
        const boss = new Boss({ connectionString: url, supervise: false, schedule: false });
        boss.on('error', (error) => {
            throw error;
        });
        await boss.start();
        return boss;
    },

    async fill(url, count) {
        const boss = await pgboss.open(url);
        await boss.createQueue('bench');
        for (const batch of batches(count))
            await boss.insert(batch.map((data) => ({ name: 'bench', data })));
        await boss.getDb().executeSql('analyze pgboss.job', []);
        await boss.stop({ graceful: false });
    },

    async drain(url, count, batch) {
        const boss = await pgboss.open(url);
        let total = 0;
        const loop = async () => {
            for (;;) {
                const jobs = await boss.fetch('bench', { batchSize: batch });
                if (jobs.length === 0) return;
                await boss.complete(
                    'bench',
                    jobs.map((job) => job.id),
                );
                total += jobs.length;
            }
        };
        const begun = performance.now();
        await Promise.all([loop(), loop()]);
        const seconds = (performance.now() - begun) / 1000;
        if (total !== count) throw new Error(`${total} of ${count} jobs were done`);
        printResult(count, seconds);
        process.exit(0);
    },
};

const [, , who, what, url, count, batch] = process.argv;
await { graphile, pgboss }[who][what](url, Number(count), Number(batch ?? BATCH));
