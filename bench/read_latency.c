/* read_latency.c: the time from the commit of an event until a follower has it.
 *
 *     bench_read_latency thread|process URL PER_SECOND SECONDS
 *
 * An appender commits single events at a steady pace; a follower waits in outlog_follow(), in a
 * thread of the same process or in another process. The clock is read when outlog_append_now() and
 * outlog_follow() have returned; if the follower is first, the latency counts as 0. per_second
 * shows whether the appender kept its pace.
 *
 *     bench_read_latency idle URL 1 SECONDS
 *
 * measures an idle follower: its own CPU time, in percent of one core. */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Shared between appender and follower, also between processes. */
struct run {
    char url[1024];
    int count;
    atomic_bool is_following;
    double *committed, *received; /* by order of appending; 0: not yet */
};

static struct run *run;

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("out of memory");
    return memory;
}

static outlog *open_log(void)
{
    outlog *log;
    outlog_err err;
    if (outlog_open(run->url, &log, &err) < 0)
        bench_die("%s", err.message);
    return log;
}

static int64_t find_end(outlog *log)
{
    int64_t settled;
    outlog_err err;
    if (outlog_settled(log, &settled, &err) < 0)
        bench_die("%s", err.message);
    return settled;
}

static void *follow_log(void *unused)
{
    outlog *log = open_log();
    struct outlog_page page = {0};
    outlog_err err;
    int64_t after = find_end(log);

    (void)unused;
    for (int got = 0; got < run->count;) {
        atomic_store(&run->is_following, true);
        if (outlog_follow(log, NULL, after, 1000, 5000, &page, &err) < 0)
            bench_die("%s", err.message);
        if (page.count == 0)
            bench_die("%d of %d events came", got, run->count);
        double now = bench_now();
        after = page.next_after;
        for (size_t i = 0; i < page.count && got < run->count; i++)
            run->received[got++] = now;
    }
    outlog_page_clear(&page);
    outlog_close(log);
    return NULL;
}

static void sleep_until(double when)
{
    double left = when - bench_now();
    if (left > 0)
        nanosleep(&(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)},
                  NULL);
}

static double append_events(int per_second)
{
    outlog *log = open_log();
    struct bench_batch batch;
    outlog_err err;

    while (!atomic_load(&run->is_following))
        sleep_until(bench_now() + 0.001);
    bench_batch_init(&batch, 0, 1, 1);
    double begun = bench_now();
    for (int i = 0; i < run->count; i++) {
        sleep_until(begun + (double)i / per_second);
        bench_batch_next(&batch);
        if (outlog_append_now(log, batch.events, 1, batch.appended, &err) < 0)
            bench_die("%s", err.message);
        run->committed[i] = bench_now();
    }
    double rate = run->count / (bench_now() - begun);
    bench_batch_clear(&batch);
    outlog_close(log);
    return rate;
}

static double measure_latency(bool is_thread, int per_second)
{
    pthread_t thread;
    double rate;
    if (is_thread) {
        pthread_create(&thread, NULL, follow_log, NULL);
        rate = append_events(per_second);
        pthread_join(thread, NULL);
        return rate;
    }
    pid_t child = fork();
    if (child == 0) {
        follow_log(NULL);
        _exit(0);
    }
    rate = append_events(per_second);
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0)
        bench_die("the follower failed");
    return rate;
}

static void measure_idle(int seconds)
{
    struct rusage usage;
    outlog *log = open_log();
    struct outlog_page page = {0};
    outlog_err err;
    int64_t after = find_end(log);
    double begun = bench_now();
    while (bench_now() - begun < seconds)
        if (outlog_follow(log, NULL, after, 1000, 1000, &page, &err) < 0)
            bench_die("%s", err.message);
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"cpu_percent\":%.3f}\n", 100 * cpu / (bench_now() - begun));
    outlog_page_clear(&page);
    outlog_close(log);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        bench_die("usage: bench_read_latency thread|process|idle URL PER_SECOND SECONDS");
    int per_second = bench_number(argv[3], "PER_SECOND"),
        seconds = bench_number(argv[4], "SECONDS");
    run = map_shared(sizeof *run);
    run->count = per_second * seconds;
    snprintf(run->url, sizeof run->url, "%s", argv[2]);
    if (strcmp(argv[1], "idle") == 0) {
        measure_idle(seconds);
        return 0;
    }
    run->committed = map_shared((size_t)run->count * sizeof(double));
    run->received = map_shared((size_t)run->count * sizeof(double));
    double rate = measure_latency(strcmp(argv[1], "thread") == 0, per_second);
    double *late = run->received;
    for (int i = 0; i < run->count; i++) {
        late[i] = run->received[i] - run->committed[i];
        if (late[i] < 0)
            late[i] = 0;
    }
    size_t count = (size_t)run->count;
    printf("{\"events\":%zu,\"per_second\":%.0f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
           count, rate, bench_quantile(late, count, 0.5) * 1e3,
           bench_quantile(late, count, 0.99) * 1e3, bench_quantile(late, count, 1) * 1e3);
    return 0;
}
