/* bench.c: clocks, generated events, quantiles, and exit with an error. */
#include "bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BENCH_AGGREGATES = 10000 };

void bench_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    _exit(1);
}

int bench_number(const char *text, const char *what)
{
    char *end;
    long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > 100000000)
        bench_die("%s must be a number from 1, not %s", what, text);
    return (int)number;
}

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Not getrusage(): its ru_maxrss starts with the value of the parent process. */
int64_t bench_resident_peak(void)
{
    char line[256];
    long long kilobytes = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %lld kB", &kilobytes) == 1)
            break;
    if (!status || !kilobytes)
        bench_die("cannot read VmHWM in /proc/self/status");
    fclose(status);
    return kilobytes * 1024;
}

/* --- events --- */

void bench_batch_init(struct bench_batch *batch, int writer, int writers, size_t count)
{
    *batch = (struct bench_batch){
        .writer = writer,
        .aggregates = BENCH_AGGREGATES / writers,
        .count = count,
        .events = calloc(count, sizeof *batch->events),
        .seqs = calloc(count, sizeof *batch->seqs),
        .names = calloc(count, sizeof *batch->names),
        .payloads = calloc(count, sizeof *batch->payloads),
        .appended = calloc(count, sizeof *batch->appended),
    };
    if (!batch->events || !batch->seqs || !batch->names || !batch->payloads || !batch->appended)
        bench_die("out of memory");
}

/* 400 bytes, like the payload of an application. */
static void make_payload(char out[512], int64_t number)
{
    snprintf(
        out, 512,
        "{\"order_id\":\"ord_%010lld\",\"customer\":{\"id\":\"cus_%06lld\",\"tier\":\"gold\","
        "\"country\":\"DE\"},\"currency\":\"EUR\",\"total_cents\":%lld,\"lines\":["
        "{\"sku\":\"SKU-10041\",\"name\":\"Desk lamp, brass\",\"quantity\":1,\"cents\":8900},"
        "{\"sku\":\"SKU-20977\",\"name\":\"Notebook A5, dotted\",\"quantity\":3,\"cents\":1290}],"
        "\"shipping\":{\"method\":\"standard\",\"promised\":\"2026-01-09\",\"warehouse\":\"BER-2\"},"
        "\"note\":\"leave at the interface\"}",
        (long long)number, (long long)(number % 100000), (long long)(number * 7 % 90000 + 1000));
}

void bench_batch_next(struct bench_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        int64_t number = batch->done++;
        snprintf(batch->names[i], sizeof batch->names[i], "ord-%d-%lld", batch->writer,
                 (long long)(number % batch->aggregates));
        make_payload(batch->payloads[i], number);
        batch->seqs[i] = number / batch->aggregates + 1;
        batch->events[i] = (struct outlog_new_event){.org_id = "org_acme",
                                                     .aggregate_type = "order",
                                                     .aggregate_id = batch->names[i],
                                                     .event_type = "order.created",
                                                     .payload = batch->payloads[i]};
    }
}

void bench_batch_clear(struct bench_batch *batch)
{
    free(batch->events);
    free(batch->seqs);
    free(batch->names);
    free(batch->payloads);
    free(batch->appended);
    *batch = (struct bench_batch){0};
}

/* --- numbers --- */

static int compare_doubles(const void *a, const void *b)
{
    double one = *(const double *)a, two = *(const double *)b;
    return one < two ? -1 : one > two;
}

double bench_quantile(double *values, size_t count, double share)
{
    if (count == 0)
        return 0;
    qsort(values, count, sizeof *values, compare_doubles);
    return values[(size_t)(share * (double)(count - 1) + 0.5)];
}
