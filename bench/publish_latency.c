/* publish_latency.c: the time from the commit of a message until its publisher has it.
 *
 *     bench_publish_latency thread|process URL PUBLISHER PER_SECOND SECONDS [WRITERS]
 *
 * Writers (4, on SQLite one) commit single messages at a steady pace, in turns: a single writer,
 * which waits for the disk each time, could not keep the pace. A relay runs beside them, in a
 * thread of the same process or in another process. The clock is read when the commit has returned
 * and when PUBLISHER (the plug-in of timing_publisher.c) gets the message; if the publisher is
 * first, the latency counts as 0.
 *
 *     bench_publish_latency idle URL PUBLISHER 1 SECONDS
 *
 * measures an idle relay: its own CPU time, in percent of one core. */
#include "bench.h"

#include "relay/worker.h"
#include "store/store.h"

#include <dlfcn.h>
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

enum { PUBLISH_WRITERS_MAX = 64 };
enum { WARM_UP = 100 }; /* the first messages also pay for plans and connections: not counted */

static const char *url;
static int count, per_second, writers;
static double begun;
static double *committed, *published; /* by number; shared between processes */
static atomic_int *stop;

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("out of memory");
    return memory;
}

static void load_publisher(const char *path)
{
    void *plugin = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!plugin)
        bench_die("%s", dlerror());
    double **times = dlsym(plugin, "bench_timing_times");
    long *size = dlsym(plugin, "bench_timing_count");
    if (!times || !size)
        bench_die("%s is not the timing publisher", path);
    *times = published;
    *size = count;
}

static void add_destination(const char *path)
{
    struct ol_conn *conn;
    char settings[1024];
    outlog_err err;
    snprintf(settings, sizeof settings, "{\"type\":\"plugin\",\"path\":\"%s\"}", path);
    if (ol_store_open(url, &conn, &err) < 0 ||
        ol_store_exec(conn, OL_Q_DESTINATION_PUT,
                      OL_PARAMS(ol_value_text("bench"), ol_value_text(settings),
                                ol_value_text("at_least_once"), ol_value_text("skip"),
                                ol_value_int(0)),
                      NULL, &err) < 0)
        bench_die("%s", err.message);
    ol_store_close(conn);
}

static void *run_relay(void *unused)
{
    struct ol_worker_options options = ol_worker_defaults(url);
    struct ol_worker_stats stats = {0};
    outlog_err err;
    (void)unused;
    options.quiet = true;
    if (ol_worker_run(&options, stop, &stats, &err) < 0)
        bench_die("%s", err.message);
    return NULL;
}

static void sleep_until(double when)
{
    double left = when - bench_now();
    if (left > 0)
        nanosleep(&(struct timespec){(time_t)left, (long)((left - (double)(time_t)left) * 1e9)},
                  NULL);
}

static void send_one(outlog *log, int number)
{
    char payload[512];
    outlog_tx *tx;
    struct outlog_enqueued enqueued;
    outlog_err err;
    int bytes = snprintf(payload, sizeof payload,
                         "{\"order_id\":\"ord_%010d\",\"note\":\"%0364d\"}", number, 0);
    struct outlog_new_message draft = {.destination = "bench",
                                       .event_type = "order.created",
                                       .payload = payload,
                                       .payload_bytes = (size_t)bytes};
    if (outlog_begin(log, &tx, &err) < 0 || outlog_enqueue(tx, &draft, &enqueued, &err) < 0 ||
        outlog_commit(tx, &err) < 0)
        bench_die("%s", err.message);
    committed[number] = bench_now();
}

struct writer {
    pthread_t thread;
    outlog *log;
    int number;
};

static void *write_share(void *argument)
{
    const struct writer *writer = argument;
    for (int i = writer->number; i < count; i += writers)
        if (i > 0) {
            sleep_until(begun + (double)i / per_second);
            send_one(writer->log, i);
        }
    return NULL;
}

static void wait_for_published(int from, int to)
{
    double deadline = bench_now() + 30;
    for (int i = from; i < to && bench_now() < deadline;)
        if (*(volatile double *)&published[i] > 0)
            i++;
        else
            sleep_until(bench_now() + 0.001); // there is no order between lanes
}

static double write_all(void)
{
    struct writer all[PUBLISH_WRITERS_MAX];
    outlog_err err;
    for (int i = 0; i < writers; i++) {
        all[i].number = i;
        if (outlog_open(url, &all[i].log, &err) < 0)
            bench_die("%s", err.message);
    }
    send_one(all[0].log, 0);
    wait_for_published(0, 1); // the relay runs
    begun = bench_now();
    for (int i = 0; i < writers; i++)
        pthread_create(&all[i].thread, NULL, write_share, &all[i]);
    for (int i = 0; i < writers; i++)
        pthread_join(all[i].thread, NULL);
    double rate = count / (bench_now() - begun);
    wait_for_published(0, count);
    for (int i = 0; i < writers; i++)
        outlog_close(all[i].log);
    return rate;
}

static double measure_latency(bool is_thread)
{
    pthread_t thread;
    double rate;
    if (is_thread) {
        pthread_create(&thread, NULL, run_relay, NULL);
        rate = write_all();
        atomic_store(stop, 1);
        pthread_join(thread, NULL);
        return rate;
    }
    pid_t child = fork();
    if (child == 0) {
        run_relay(NULL);
        _exit(0);
    }
    rate = write_all();
    atomic_store(stop, 1);
    int status;
    if (waitpid(child, &status, 0) < 0 || status != 0)
        bench_die("the relay failed");
    return rate;
}

static void measure_idle(int seconds)
{
    struct rusage usage;
    pthread_t thread;
    begun = bench_now();
    pthread_create(&thread, NULL, run_relay, NULL);
    sleep_until(begun + seconds);
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    printf("{\"cpu_percent\":%.3f}\n", 100 * cpu / (bench_now() - begun));
    atomic_store(stop, 1);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        bench_die(
            "usage: bench_publish_latency thread|process|idle URL PUBLISHER PER_SECOND SECONDS [WRITERS]");
    int seconds = bench_number(argv[5], "SECONDS");
    per_second = bench_number(argv[4], "PER_SECOND");
    url = argv[2];
    writers = argc > 6 ? bench_number(argv[6], "WRITERS") : strncmp(url, "sqlite:", 7) == 0 ? 1 : 4;
    if (writers < 1 || writers > PUBLISH_WRITERS_MAX)
        bench_die("1 to %d writers", PUBLISH_WRITERS_MAX);
    count = per_second * seconds + WARM_UP;
    committed = map_shared((size_t)count * sizeof *committed);
    published = map_shared((size_t)count * sizeof *published);
    stop = map_shared(sizeof *stop);
    load_publisher(argv[3]);
    add_destination(argv[3]);
    if (strcmp(argv[1], "idle") == 0) {
        measure_idle(seconds);
        return 0;
    }
    double rate = measure_latency(strcmp(argv[1], "thread") == 0);
    double *latencies = published + WARM_UP;
    for (int i = WARM_UP; i < count; i++) {
        if (published[i] == 0)
            bench_die("message %d was not published", i);
        published[i] -= committed[i];
        if (published[i] < 0)
            published[i] = 0;
    }
    size_t measured = (size_t)(count - WARM_UP);
    printf(
        "{\"messages\":%zu,\"per_second\":%.0f,\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}\n",
        measured, rate, bench_quantile(latencies, measured, 0.5) * 1e3,
        bench_quantile(latencies, measured, 0.99) * 1e3,
        bench_quantile(latencies, measured, 1) * 1e3);
    return 0;
}
