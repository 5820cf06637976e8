/* rates.c: a ring of sampled intervals; rates, throughput and the series are computed from it. */
#include "server/rates.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    INTERVALS = 512,              /* a little more than the series needs */
    SERIES_STEP_S = 5,            /* between two points */
    SERIES_POINTS = 180,          /* fifteen minutes */
    LATENCIES = 2048,             /* messages whose latency is kept */
    SAMPLE_BATCHES = 32,          /* of which messages are read, per sample */
    SAMPLE_BATCH_MESSAGES = 32,   /* read of each of them */
    SAMPLE_PARKED = 2000,         /* messages read, per sample */
    RATES_DESTINATIONS_MAX = 500, /* further ones count in the totals only */
    RECENT_S = 10,
    THROUGHPUT_S = 60,
    THROUGHPUT_INTERVALS = 64,
};

/* Batches and attempts get their time a moment before they are visible: a sample ends this far
 * in the past. */
#define SAMPLE_DELAY_US (INT64_C(1000000))

/* After a longer pause the time since the last sample is unknown, not one long interval. */
#define SAMPLE_GAP_US (INT64_C(30000000))

struct rates_interval {
    int64_t from, to; /* by the store's clock */
    double appended, published, failed;
};

struct rates_destination {
    char name[101];
    double ok[THROUGHPUT_INTERVALS], failed[THROUGHPUT_INTERVALS]; /* by interval */
    double ok_total, failed_total;
};

struct latency_sample {
    int64_t at, latency_us;
    int destination; /* -1: too many destinations */
};

struct ol_rates {
    pthread_mutex_t lock;
    struct rates_interval intervals[INTERVALS];
    size_t interval_count; /* ever */
    struct rates_destination *destinations;
    int destination_count;
    struct latency_sample latencies[LATENCIES];
    size_t latency_count; /* ever */
    int64_t settled;      /* at the last sample; -1: unknown */
    int64_t until;        /* the end of the last sample; 0: none yet */
    struct ol_histogram appends, publishes;
};

const double ol_rates_bounds[OL_RATES_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                 0.1,   0.25,   0.5,   1,    5,     30};

int ol_rates_open(struct ol_rates **out, outlog_err *err)
{
    struct ol_rates *rates = calloc(1, sizeof *rates);
    if (rates &&
        !(rates->destinations = calloc(RATES_DESTINATIONS_MAX, sizeof *rates->destinations))) {
        free(rates);
        rates = NULL;
    }
    *out = rates;
    if (!rates)
        return ol_no_memory(err);
    rates->settled = -1;
    pthread_mutex_init(&rates->lock, NULL);
    return 0;
}

void ol_rates_close(struct ol_rates *rates)
{
    if (!rates)
        return;
    pthread_mutex_destroy(&rates->lock);
    free(rates->destinations);
    free(rates);
}

/* --- a sample: read without the lock, then added under it --- */

struct destination_count {
    char name[101];
    double ok, failed;
};

struct rates_sample {
    struct rates_interval interval;
    int64_t settled;
    double batch_total;                 /* sequence numbers that batches cover */
    double batch_read, batch_published; /* messages read of them, and those published so */
    struct destination_count *counts;
    int count_size;
    struct {
        int64_t at, latency_us;
        int count_at;
    } latencies[SAMPLE_BATCHES * SAMPLE_BATCH_MESSAGES + SAMPLE_PARKED];
    size_t latency_count;
};

static int find_count(struct rates_sample *sample, const char *name)
{
    for (int i = 0; i < sample->count_size; i++)
        if (strcmp(sample->counts[i].name, name) == 0)
            return i;
    if (sample->count_size == RATES_DESTINATIONS_MAX || strlen(name) >= sizeof sample->counts->name)
        return -1;
    memcpy(sample->counts[sample->count_size].name, name, strlen(name) + 1);
    return sample->count_size++;
}

static void add_latency(struct rates_sample *sample, int count_at, int64_t created_at,
                        int64_t published_at)
{
    if (sample->latency_count == sizeof sample->latencies / sizeof *sample->latencies)
        return;
    int64_t latency_us = published_at > created_at ? published_at - created_at : 0;
    sample->latencies[sample->latency_count].at = published_at;
    sample->latencies[sample->latency_count].latency_us = latency_us;
    sample->latencies[sample->latency_count++].count_at = count_at;
}

struct sampled_batch {
    int64_t lane, from_seq, to_seq, published_at;
    char destination[101], org_key[102]; /* of a side cursor, or empty */
};

static int read_batch(struct ol_conn *conn, struct rates_sample *sample,
                      const struct sampled_batch *batch, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_BATCH_SAMPLE,
                       OL_PARAMS(ol_value_int(batch->lane), ol_value_int(batch->from_seq),
                                 ol_value_int(batch->to_seq), ol_value_text(batch->destination),
                                 ol_value_text(batch->org_key),
                                 ol_value_int(SAMPLE_BATCH_MESSAGES)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        sample->batch_read++;
        if (ol_rows_int(&rows, 2))
            continue;
        sample->batch_published++;
        int count_at = find_count(sample, ol_rows_text(&rows, 0, NULL));
        if (count_at >= 0)
            sample->counts[count_at].ok++;
        add_latency(sample, count_at, ol_rows_time(&rows, 1), batch->published_at);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_batches(struct ol_conn *conn, struct rates_sample *sample, outlog_err *err)
{
    struct ol_value since = ol_value_time(sample->interval.from),
                    until = ol_value_time(sample->interval.to);
    struct sampled_batch batches[SAMPLE_BATCHES];
    struct ol_rows rows;
    int64_t total;
    int count = 0, more;

    if (ol_store_number(conn, OL_Q_BATCH_TOTAL, OL_PARAMS(since, until), &total, err) < 0)
        return -1;
    sample->batch_total = (double)total;
    if (!total)
        return 0;
    if (ol_store_query(conn, OL_Q_BATCH_NEWEST,
                       OL_PARAMS(since, until, ol_value_int(SAMPLE_BATCHES)), &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && count < SAMPLE_BATCHES) {
        struct sampled_batch *batch = &batches[count++];
        *batch = (struct sampled_batch){.lane = ol_rows_int(&rows, 0),
                                        .from_seq = ol_rows_int(&rows, 1),
                                        .to_seq = ol_rows_int(&rows, 2),
                                        .published_at = ol_rows_time(&rows, 3)};
        snprintf(batch->destination, sizeof batch->destination, "%s", ol_rows_text(&rows, 4, NULL));
        snprintf(batch->org_key, sizeof batch->org_key, "%s", ol_rows_text(&rows, 5, NULL));
    }
    ol_rows_end(&rows);
    for (int i = 0; more >= 0 && i < count; i++)
        more = read_batch(conn, sample, &batches[i], err);
    return more < 0 ? -1 : 0;
}

/* Extrapolate from the messages that were read to all that the batches cover. */
static void extrapolate_batches(struct rates_sample *sample)
{
    double scale = sample->batch_read > 0 ? sample->batch_total / sample->batch_read : 0;
    for (int i = 0; i < sample->count_size; i++)
        sample->counts[i].ok *= scale;
    sample->interval.published = sample->batch_published * scale;
}

static int read_parked(struct ol_conn *conn, struct rates_sample *sample, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_PARKED_PUBLISHED,
                       OL_PARAMS(ol_value_time(sample->interval.from),
                                 ol_value_time(sample->interval.to), ol_value_int(SAMPLE_PARKED)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int count_at = find_count(sample, ol_rows_text(&rows, 0, NULL));
        sample->interval.published++;
        if (count_at >= 0)
            sample->counts[count_at].ok++;
        add_latency(sample, count_at, ol_rows_time(&rows, 2), ol_rows_time(&rows, 1));
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_failures(struct ol_conn *conn, struct rates_sample *sample, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_ATTEMPTS_FAILED,
                       OL_PARAMS(ol_value_time(sample->interval.from),
                                 ol_value_time(sample->interval.to)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int count_at = find_count(sample, ol_rows_text(&rows, 0, NULL));
        double number = (double)ol_rows_int(&rows, 1);
        sample->interval.failed += number;
        if (count_at >= 0)
            sample->counts[count_at].failed += number;
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_clock(struct ol_conn *conn, int64_t *out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_CLOCK_AT, OL_PARAMS(ol_value_int(-SAMPLE_DELAY_US)), &rows, err) <
        0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *out = ol_rows_time(&rows, 0);
    ol_rows_end(&rows);
    return got > 0 ? 0 : -1;
}

static int read_sample(outlog *log, struct rates_sample *sample, outlog_err *err)
{
    if (read_clock(log->conn, &sample->interval.to, err) < 0 ||
        outlog_settled(log, &sample->settled, err) < 0)
        return -1;
    if (!sample->interval.from || sample->interval.to <= sample->interval.from)
        return 0; // the first sample only sets the start; a clock that went back is waited for
    if (read_batches(log->conn, sample, err) < 0)
        return -1;
    extrapolate_batches(sample);
    if (read_parked(log->conn, sample, err) < 0)
        return -1;
    return read_failures(log->conn, sample, err);
}

static int find_destination(struct ol_rates *rates, const char *name)
{
    for (int i = 0; i < rates->destination_count; i++)
        if (strcmp(rates->destinations[i].name, name) == 0)
            return i;
    if (rates->destination_count == RATES_DESTINATIONS_MAX)
        return -1;
    memcpy(rates->destinations[rates->destination_count].name, name, strlen(name) + 1);
    return rates->destination_count++;
}

static void count_duration(struct ol_histogram *histogram, double seconds)
{
    int i = 0;
    while (i < OL_RATES_BOUNDS && seconds > ol_rates_bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += seconds;
}

static void store_counts(struct ol_rates *rates, const struct rates_sample *sample)
{
    size_t slot = rates->interval_count % THROUGHPUT_INTERVALS;
    for (int i = 0; i < rates->destination_count; i++)
        rates->destinations[i].ok[slot] = rates->destinations[i].failed[slot] = 0;
    for (int i = 0; i < sample->count_size; i++) {
        int at = find_destination(rates, sample->counts[i].name);
        if (at < 0)
            continue;
        struct rates_destination *destination = &rates->destinations[at];
        destination->ok[slot] = sample->counts[i].ok;
        destination->failed[slot] = sample->counts[i].failed;
        destination->ok_total += sample->counts[i].ok;
        destination->failed_total += sample->counts[i].failed;
    }
}

static void store_latencies(struct ol_rates *rates, const struct rates_sample *sample)
{
    for (size_t i = 0; i < sample->latency_count; i++) {
        int count_at = sample->latencies[i].count_at;
        rates->latencies[rates->latency_count++ % LATENCIES] = (struct latency_sample){
            .at = sample->latencies[i].at,
            .latency_us = sample->latencies[i].latency_us,
            .destination = count_at < 0 ? -1
                                        : find_destination(rates, sample->counts[count_at].name),
        };
        count_duration(&rates->publishes, (double)sample->latencies[i].latency_us / 1e6);
    }
}

static void store_sample(struct ol_rates *rates, struct rates_sample *sample)
{
    struct rates_interval *interval = &sample->interval;
    if (interval->from && interval->to > interval->from) {
        if (rates->settled >= 0 && sample->settled > rates->settled)
            interval->appended = (double)(sample->settled - rates->settled);
        store_counts(rates, sample);
        store_latencies(rates, sample);
        rates->intervals[rates->interval_count++ % INTERVALS] = *interval;
    }
    if (!interval->from || interval->to > interval->from)
        rates->until = interval->to;
    rates->settled = sample->settled;
}

void ol_rates_sample(struct ol_rates *rates, outlog *log)
{
    struct rates_sample *sample = calloc(1, sizeof *sample);
    outlog_err err;

    if (!sample || !(sample->counts = calloc(RATES_DESTINATIONS_MAX, sizeof *sample->counts))) {
        free(sample);
        return;
    }
    pthread_mutex_lock(&rates->lock);
    sample->interval.from = rates->until;
    pthread_mutex_unlock(&rates->lock);
    if (ol_log_ready(log, &err) == 0 && read_sample(log, sample, &err) == 0) {
        pthread_mutex_lock(&rates->lock);
        if (sample->interval.to - sample->interval.from > SAMPLE_GAP_US)
            sample->interval.from = 0;
        store_sample(rates, sample);
        pthread_mutex_unlock(&rates->lock);
    }
    free(sample->counts);
    free(sample);
}

void ol_rates_append(struct ol_rates *rates, int64_t duration_us)
{
    pthread_mutex_lock(&rates->lock);
    count_duration(&rates->appends, (double)duration_us / 1e6);
    pthread_mutex_unlock(&rates->lock);
}

/* --- reading --- */

/* The n-th newest interval, or NULL. */
static const struct rates_interval *find_interval(const struct ol_rates *rates, size_t n)
{
    return n < rates->interval_count && n < INTERVALS
               ? &rates->intervals[(rates->interval_count - 1 - n) % INTERVALS]
               : NULL;
}

struct ol_rate_values ol_rates_recent(struct ol_rates *rates)
{
    struct ol_rate_values recent = {0};
    const struct rates_interval *interval;
    double seconds = 0;

    pthread_mutex_lock(&rates->lock);
    for (size_t n = 0; seconds < RECENT_S && (interval = find_interval(rates, n)); n++) {
        seconds += (double)(interval->to - interval->from) / 1e6;
        recent.appended += interval->appended;
        recent.published += interval->published;
        recent.failed += interval->failed;
    }
    pthread_mutex_unlock(&rates->lock);
    if (seconds > 0) {
        recent.is_known = true;
        recent.appended /= seconds;
        recent.published /= seconds;
        recent.failed /= seconds;
    }
    return recent;
}

static int compare_numbers(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;
    return one < two ? -1 : one > two;
}

static void find_latency(const struct ol_rates *rates, int destination, struct ol_throughput *out)
{
    int64_t found[LATENCIES];
    size_t count = 0, have = rates->latency_count < LATENCIES ? rates->latency_count : LATENCIES;

    for (size_t i = 0; i < have; i++) {
        const struct latency_sample *latency = &rates->latencies[i];
        if ((destination < 0 || latency->destination == destination) &&
            latency->at > rates->until - THROUGHPUT_S * INT64_C(1000000))
            found[count++] = latency->latency_us / 1000;
    }
    if (!count)
        return;
    // cppcheck-suppress uninitvar // count of them are set
    qsort(found, count, sizeof *found, compare_numbers);
    out->p50_ms = found[count / 2];
    out->p99_ms = found[(count * 99) / 100 < count ? (count * 99) / 100 : count - 1];
}

static void find_throughput(const struct ol_rates *rates, int at, struct ol_throughput *out)
{
    const struct rates_destination *destination = at >= 0 ? &rates->destinations[at] : NULL;
    const struct rates_interval *interval;
    double seconds = 0;

    for (size_t n = 0;
         n < THROUGHPUT_INTERVALS && seconds < THROUGHPUT_S && (interval = find_interval(rates, n));
         n++) {
        size_t slot = (rates->interval_count - 1 - n) % THROUGHPUT_INTERVALS;
        seconds += (double)(interval->to - interval->from) / 1e6;
        out->ok_per_min += destination ? destination->ok[slot] : interval->published;
        out->fail_per_min += destination ? destination->failed[slot] : interval->failed;
    }
    out->is_known = seconds > 0;
    if (seconds > THROUGHPUT_S) { // less than a minute is not extrapolated
        out->ok_per_min *= THROUGHPUT_S / seconds;
        out->fail_per_min *= THROUGHPUT_S / seconds;
    }
    if (destination) {
        out->ok_total = destination->ok_total;
        out->failed_total = destination->failed_total;
    }
}

struct ol_throughput ol_rates_throughput(struct ol_rates *rates, const char *destination)
{
    struct ol_throughput throughput = {.p50_ms = -1, .p99_ms = -1};
    int at = -1;

    pthread_mutex_lock(&rates->lock);
    for (int i = 0; destination && i < rates->destination_count; i++)
        if (strcmp(rates->destinations[i].name, destination) == 0)
            at = i;
    if (destination && at < 0) { // it has no delivery yet
        throughput.is_known = rates->interval_count > 0;
    } else {
        find_latency(rates, at, &throughput);
        find_throughput(rates, at, &throughput);
    }
    pthread_mutex_unlock(&rates->lock);
    return throughput;
}

/* --- the series --- */

struct series_point {
    double seconds, appended, published, failed; /* `seconds`: how much of it is known */
};

/* Add an interval to the points it overlaps. */
static void add_interval(const struct rates_interval *interval, int64_t from,
                         struct series_point points[SERIES_POINTS])
{
    const int64_t step = SERIES_STEP_S * INT64_C(1000000);
    for (int64_t at = interval->from; at < interval->to;) {
        int64_t i = at >= from ? (at - from) / step : -1;
        int64_t end = i < 0 ? from : from + (i + 1) * step;
        end = end < interval->to ? end : interval->to;
        if (i >= 0 && i < SERIES_POINTS) {
            double part = (double)(end - at) / (double)(interval->to - interval->from);
            points[i].seconds += (double)(end - at) / 1e6;
            points[i].appended += interval->appended * part;
            points[i].published += interval->published * part;
            points[i].failed += interval->failed * part;
        }
        at = end;
    }
}

static void write_series(const struct series_point points[SERIES_POINTS], const char *name,
                         size_t offset, struct ol_buf *out)
{
    ol_buf_print(out, ",\"%s\":[", name);
    for (int i = 0; i < SERIES_POINTS; i++) {
        double value;
        memcpy(&value, (const char *)&points[i] + offset, sizeof value);
        ol_buf_text(out, i ? "," : "");
        if (points[i].seconds < SERIES_STEP_S / 2.0)
            ol_buf_text(out, "null");
        else
            ol_buf_print(out, "%.6g", value / points[i].seconds);
    }
    ol_buf_char(out, ']');
}

void ol_rates_series(struct ol_rates *rates, struct ol_buf *out)
{
    const int64_t step = SERIES_STEP_S * INT64_C(1000000);
    struct series_point points[SERIES_POINTS] = {0};
    const struct rates_interval *interval;

    pthread_mutex_lock(&rates->lock);
    int64_t until = rates->until ? rates->until : ol_clock_wall_us();
    int64_t from = (until / step - SERIES_POINTS) * step;
    for (size_t n = 0; (interval = find_interval(rates, n)); n++)
        add_interval(interval, from, points);
    pthread_mutex_unlock(&rates->lock);
    ol_buf_print(out, "{\"step_s\":%d,\"from\":", SERIES_STEP_S);
    ol_buf_json_time(out, from);
    write_series(points, "appended", offsetof(struct series_point, appended), out);
    write_series(points, "published", offsetof(struct series_point, published), out);
    write_series(points, "failed", offsetof(struct series_point, failed), out);
    ol_buf_char(out, '}');
}

/* --- for metrics --- */

static struct ol_histogram copy_histogram(struct ol_rates *rates, const struct ol_histogram *from)
{
    pthread_mutex_lock(&rates->lock);
    struct ol_histogram copy = *from;
    pthread_mutex_unlock(&rates->lock);
    return copy;
}

struct ol_histogram ol_rates_appends(struct ol_rates *rates)
{
    return copy_histogram(rates, &rates->appends);
}

struct ol_histogram ol_rates_publishes(struct ol_rates *rates)
{
    return copy_histogram(rates, &rates->publishes);
}

void ol_rates_each(struct ol_rates *rates,
                   void (*each)(void *user, const char *destination, double ok, double failed),
                   void *user)
{
    pthread_mutex_lock(&rates->lock);
    for (int i = 0; i < rates->destination_count; i++)
        each(user, rates->destinations[i].name, rates->destinations[i].ok_total,
             rates->destinations[i].failed_total);
    pthread_mutex_unlock(&rates->lock);
}
