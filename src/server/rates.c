/* rates.c: see rates.h. */
#include "server/rates.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICKS = 512,       /* a little more than the series */
    STEP_S = 5,        /* of the series */
    POINTS = 180,      /* fifteen minutes */
    SAMPLES = 2048,    /* messages whose latency is known */
    BATCHES = 32,      /* looked into at a beat */
    MESSAGES = 32,     /* of each */
    MOST_PLACES = 500, /* destinations told apart */
    RATE_S = 10,
    FLOW_S = 60,
    FLOW_TICKS = 64,
    MOST_PARKED = 2000,
};

/* Batches and attempts are written a moment before they can be seen. */
#define BEHIND_US (INT64_C(1000000))

/* After a pause longer than this the time between is a hole, not one long beat. */
#define MOST_GAP_US (INT64_C(30000000))

struct tick {
    int64_t from, to; /* by the store's clock */
    double appended, published, failed;
};

struct place {
    char name[101];
    double ok[FLOW_TICKS], failed[FLOW_TICKS]; /* by tick */
    double ok_total, failed_total;
};

struct sample {
    int64_t at, latency_us;
    int place; /* -1: too many destinations */
};

struct ol_rates {
    pthread_mutex_t lock;
    struct tick ticks[TICKS];
    size_t tick_count; /* ever */
    struct place *places;
    int place_count;
    struct sample samples[SAMPLES];
    size_t sample_count; /* ever */
    int64_t settled;     /* at the last beat; -1: unknown */
    int64_t until;       /* of the last beat; 0: none yet */
    struct ol_histogram appends, publishes;
};

const double ol_pulse_bounds[OL_RATES_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                 0.1,   0.25,   0.5,   1,    5,     30};

int ol_rates_open(struct ol_rates **out, outlog_err *err)
{
    struct ol_rates *pulse = calloc(1, sizeof *pulse);
    if (pulse && !(pulse->places = calloc(MOST_PLACES, sizeof *pulse->places))) {
        free(pulse);
        pulse = NULL;
    }
    *out = pulse;
    if (!pulse)
        return ol_no_memory(err);
    pulse->settled = -1;
    pthread_mutex_init(&pulse->lock, NULL);
    return 0;
}

void ol_rates_close(struct ol_rates *pulse)
{
    if (!pulse)
        return;
    pthread_mutex_destroy(&pulse->lock);
    free(pulse->places);
    free(pulse);
}

/* --- a beat: read without the lock, then put it in --- */

struct share {
    char name[101];
    double ok, failed;
};

struct beat {
    struct tick tick;
    int64_t settled;
    double plain; /* numbers that batches covered */
    double sampled, sampled_plain;
    struct share *shares;
    int share_count;
    struct {
        int64_t at, latency_us;
        int share;
    } samples[BATCHES * MESSAGES + MOST_PARKED];
    size_t sample_count;
};

static int share_of(struct beat *beat, const char *name)
{
    for (int i = 0; i < beat->share_count; i++)
        if (strcmp(beat->shares[i].name, name) == 0)
            return i;
    if (beat->share_count == MOST_PLACES || strlen(name) >= sizeof beat->shares->name)
        return -1;
    memcpy(beat->shares[beat->share_count].name, name, strlen(name) + 1);
    return beat->share_count++;
}

static void add_sample(struct beat *beat, int share, int64_t created_at, int64_t published_at)
{
    if (beat->sample_count == sizeof beat->samples / sizeof *beat->samples)
        return;
    int64_t latency = published_at > created_at ? published_at - created_at : 0;
    beat->samples[beat->sample_count].at = published_at;
    beat->samples[beat->sample_count].latency_us = latency;
    beat->samples[beat->sample_count++].share = share;
}

struct batch {
    int64_t lane, from_seq, to_seq, published_at;
};

static int read_batch(struct ol_conn *conn, struct beat *beat, const struct batch *batch,
                      outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_BATCH_SAMPLE,
                       OL_PARAMS(ol_value_int(batch->lane), ol_value_int(batch->from_seq),
                                 ol_value_int(batch->to_seq), ol_value_int(MESSAGES)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        beat->sampled++;
        if (ol_rows_int(&rows, 2))
            continue;
        beat->sampled_plain++;
        int share = share_of(beat, ol_rows_text(&rows, 0, NULL));
        if (share >= 0)
            beat->shares[share].ok++;
        add_sample(beat, share, ol_rows_time(&rows, 1), batch->published_at);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_plain(struct ol_conn *conn, struct beat *beat, outlog_err *err)
{
    struct ol_value since = ol_value_time(beat->tick.from), until = ol_value_time(beat->tick.to);
    struct batch batches[BATCHES];
    struct ol_rows rows;
    int64_t total;
    int count = 0, more;

    if (ol_store_number(conn, OL_Q_BATCH_TOTAL, OL_PARAMS(since, until), &total, err) < 0)
        return -1;
    beat->plain = (double)total;
    if (!total)
        return 0;
    if (ol_store_query(conn, OL_Q_BATCH_NEWEST, OL_PARAMS(since, until, ol_value_int(BATCHES)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && count < BATCHES)
        batches[count++] = (struct batch){ol_rows_int(&rows, 0), ol_rows_int(&rows, 1),
                                          ol_rows_int(&rows, 2), ol_rows_time(&rows, 3)};
    ol_rows_end(&rows);
    for (int i = 0; more >= 0 && i < count; i++)
        more = read_batch(conn, beat, &batches[i], err);
    return more < 0 ? -1 : 0;
}

/* What was sampled stands for all that was covered. */
static void project(struct beat *beat)
{
    double scale = beat->sampled > 0 ? beat->plain / beat->sampled : 0;
    for (int i = 0; i < beat->share_count; i++)
        beat->shares[i].ok *= scale;
    beat->tick.published = beat->sampled_plain * scale;
}

static int read_parked(struct ol_conn *conn, struct beat *beat, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_PARKED_PUBLISHED,
                       OL_PARAMS(ol_value_time(beat->tick.from), ol_value_time(beat->tick.to),
                                 ol_value_int(MOST_PARKED)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int share = share_of(beat, ol_rows_text(&rows, 0, NULL));
        beat->tick.published++;
        if (share >= 0)
            beat->shares[share].ok++;
        add_sample(beat, share, ol_rows_time(&rows, 2), ol_rows_time(&rows, 1));
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_failures(struct ol_conn *conn, struct beat *beat, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_store_query(conn, OL_Q_ATTEMPTS_FAILED,
                       OL_PARAMS(ol_value_time(beat->tick.from), ol_value_time(beat->tick.to)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        int share = share_of(beat, ol_rows_text(&rows, 0, NULL));
        double number = (double)ol_rows_int(&rows, 1);
        beat->tick.failed += number;
        if (share >= 0)
            beat->shares[share].failed += number;
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int read_clock(struct ol_conn *conn, int64_t *out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_CLOCK_AT, OL_PARAMS(ol_value_int(-BEHIND_US)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *out = ol_rows_time(&rows, 0);
    ol_rows_end(&rows);
    return got > 0 ? 0 : -1;
}

static int read_all(outlog *log, struct beat *beat, outlog_err *err)
{
    if (read_clock(log->conn, &beat->tick.to, err) < 0 ||
        outlog_settled(log, &beat->settled, err) < 0)
        return -1;
    if (!beat->tick.from || beat->tick.to <= beat->tick.from)
        return 0; // the first beat only sets the clock; one that went back waits
    if (read_plain(log->conn, beat, err) < 0)
        return -1;
    project(beat);
    return read_parked(log->conn, beat, err) < 0 || read_failures(log->conn, beat, err) < 0 ? -1
                                                                                            : 0;
}

static int place_of(struct ol_rates *pulse, const char *name)
{
    for (int i = 0; i < pulse->place_count; i++)
        if (strcmp(pulse->places[i].name, name) == 0)
            return i;
    if (pulse->place_count == MOST_PLACES)
        return -1;
    memcpy(pulse->places[pulse->place_count].name, name, strlen(name) + 1);
    return pulse->place_count++;
}

static void note(struct ol_histogram *histogram, double seconds)
{
    int i = 0;
    while (i < OL_RATES_BOUNDS && seconds > ol_pulse_bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->sum += seconds;
}

static void put_shares(struct ol_rates *pulse, const struct beat *beat)
{
    size_t slot = pulse->tick_count % FLOW_TICKS;
    for (int i = 0; i < pulse->place_count; i++)
        pulse->places[i].ok[slot] = pulse->places[i].failed[slot] = 0;
    for (int i = 0; i < beat->share_count; i++) {
        int at = place_of(pulse, beat->shares[i].name);
        if (at < 0)
            continue;
        struct place *place = &pulse->places[at];
        place->ok[slot] = beat->shares[i].ok;
        place->failed[slot] = beat->shares[i].failed;
        place->ok_total += beat->shares[i].ok;
        place->failed_total += beat->shares[i].failed;
    }
}

static void put_samples(struct ol_rates *pulse, const struct beat *beat)
{
    for (size_t i = 0; i < beat->sample_count; i++) {
        int share = beat->samples[i].share;
        pulse->samples[pulse->sample_count++ % SAMPLES] = (struct sample){
            .at = beat->samples[i].at,
            .latency_us = beat->samples[i].latency_us,
            .place = share < 0 ? -1 : place_of(pulse, beat->shares[share].name),
        };
        note(&pulse->publishes, (double)beat->samples[i].latency_us / 1e6);
    }
}

static void put(struct ol_rates *pulse, struct beat *beat)
{
    struct tick *tick = &beat->tick;
    if (tick->from && tick->to > tick->from) {
        if (pulse->settled >= 0 && beat->settled > pulse->settled)
            tick->appended = (double)(beat->settled - pulse->settled);
        put_shares(pulse, beat);
        put_samples(pulse, beat);
        pulse->ticks[pulse->tick_count++ % TICKS] = *tick;
    }
    if (!tick->from || tick->to > tick->from)
        pulse->until = tick->to;
    pulse->settled = beat->settled;
}

void ol_rates_sample(struct ol_rates *pulse, outlog *log)
{
    struct beat *beat = calloc(1, sizeof *beat);
    outlog_err err;

    if (!beat || !(beat->shares = calloc(MOST_PLACES, sizeof *beat->shares))) {
        free(beat);
        return;
    }
    pthread_mutex_lock(&pulse->lock);
    beat->tick.from = pulse->until;
    pthread_mutex_unlock(&pulse->lock);
    if (ol_log_ready(log, &err) == 0 && read_all(log, beat, &err) == 0) {
        pthread_mutex_lock(&pulse->lock);
        if (beat->tick.to - beat->tick.from > MOST_GAP_US)
            beat->tick.from = 0;
        put(pulse, beat);
        pthread_mutex_unlock(&pulse->lock);
    }
    free(beat->shares);
    free(beat);
}

void ol_rates_append(struct ol_rates *pulse, int64_t duration_us)
{
    pthread_mutex_lock(&pulse->lock);
    note(&pulse->appends, (double)duration_us / 1e6);
    pthread_mutex_unlock(&pulse->lock);
}

/* --- questions --- */

/* The n-th newest tick, or NULL. */
static const struct tick *newest(const struct ol_rates *pulse, size_t n)
{
    return n < pulse->tick_count && n < TICKS ? &pulse->ticks[(pulse->tick_count - 1 - n) % TICKS]
                                              : NULL;
}

struct ol_rate_values ol_rates_rates(struct ol_rates *pulse)
{
    struct ol_rate_values rates = {0};
    const struct tick *tick;
    double seconds = 0;

    pthread_mutex_lock(&pulse->lock);
    for (size_t n = 0; seconds < RATE_S && (tick = newest(pulse, n)); n++) {
        seconds += (double)(tick->to - tick->from) / 1e6;
        rates.appended += tick->appended;
        rates.published += tick->published;
        rates.failed += tick->failed;
    }
    pthread_mutex_unlock(&pulse->lock);
    if (seconds > 0) {
        rates.is_known = true;
        rates.appended /= seconds;
        rates.published /= seconds;
        rates.failed /= seconds;
    }
    return rates;
}

static int by_size(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, two = *(const int64_t *)b;
    return one < two ? -1 : one > two;
}

static void find_latency(const struct ol_rates *pulse, int place, struct ol_throughput *out)
{
    int64_t found[SAMPLES];
    size_t count = 0, have = pulse->sample_count < SAMPLES ? pulse->sample_count : SAMPLES;

    for (size_t i = 0; i < have; i++) {
        const struct sample *sample = &pulse->samples[i];
        if ((place < 0 || sample->place == place) &&
            sample->at > pulse->until - FLOW_S * INT64_C(1000000))
            found[count++] = sample->latency_us / 1000;
    }
    if (!count)
        return;
    // cppcheck-suppress uninitvar // count of them are set
    qsort(found, count, sizeof *found, by_size);
    out->p50_ms = found[count / 2];
    out->p99_ms = found[(count * 99) / 100 < count ? (count * 99) / 100 : count - 1];
}

static void find_flow(const struct ol_rates *pulse, int at, struct ol_throughput *out)
{
    const struct place *place = at >= 0 ? &pulse->places[at] : NULL;
    const struct tick *tick;
    double seconds = 0;

    for (size_t n = 0; n < FLOW_TICKS && seconds < FLOW_S && (tick = newest(pulse, n)); n++) {
        size_t slot = (pulse->tick_count - 1 - n) % FLOW_TICKS;
        seconds += (double)(tick->to - tick->from) / 1e6;
        out->ok_per_min += place ? place->ok[slot] : tick->published;
        out->fail_per_min += place ? place->failed[slot] : tick->failed;
    }
    out->is_known = seconds > 0;
    if (seconds > FLOW_S) { // less than a minute is known: what was seen in it, not projected
        out->ok_per_min *= FLOW_S / seconds;
        out->fail_per_min *= FLOW_S / seconds;
    }
    if (place) {
        out->ok_total = place->ok_total;
        out->failed_total = place->failed_total;
    }
}

struct ol_throughput ol_rates_throughput(struct ol_rates *pulse, const char *destination)
{
    struct ol_throughput flow = {.p50_ms = -1, .p99_ms = -1};
    int at = -1;

    pthread_mutex_lock(&pulse->lock);
    for (int i = 0; destination && i < pulse->place_count; i++)
        if (strcmp(pulse->places[i].name, destination) == 0)
            at = i;
    if (destination && at < 0) { // nothing ever happened to it
        flow.is_known = pulse->tick_count > 0;
    } else {
        find_latency(pulse, at, &flow);
        find_flow(pulse, at, &flow);
    }
    pthread_mutex_unlock(&pulse->lock);
    return flow;
}

/* --- the series --- */

struct point {
    double seconds, appended, published, failed; /* `seconds`: how much of it is known */
};

/* Put a tick into the points it overlaps. */
static void spread(const struct tick *tick, int64_t from, struct point points[POINTS])
{
    const int64_t step = STEP_S * INT64_C(1000000);
    for (int64_t at = tick->from; at < tick->to;) {
        int64_t i = at >= from ? (at - from) / step : -1;
        int64_t end = i < 0 ? from : from + (i + 1) * step;
        end = end < tick->to ? end : tick->to;
        if (i >= 0 && i < POINTS) {
            double part = (double)(end - at) / (double)(tick->to - tick->from);
            points[i].seconds += (double)(end - at) / 1e6;
            points[i].appended += tick->appended * part;
            points[i].published += tick->published * part;
            points[i].failed += tick->failed * part;
        }
        at = end;
    }
}

static void write_line(const struct point points[POINTS], const char *name, size_t offset,
                       struct ol_buf *out)
{
    ol_buf_print(out, ",\"%s\":[", name);
    for (int i = 0; i < POINTS; i++) {
        double value;
        memcpy(&value, (const char *)&points[i] + offset, sizeof value);
        ol_buf_text(out, i ? "," : "");
        if (points[i].seconds < STEP_S / 2.0)
            ol_buf_text(out, "null");
        else
            ol_buf_print(out, "%.6g", value / points[i].seconds);
    }
    ol_buf_char(out, ']');
}

void ol_rates_series(struct ol_rates *pulse, struct ol_buf *out)
{
    const int64_t step = STEP_S * INT64_C(1000000);
    struct point points[POINTS] = {0};
    const struct tick *tick;

    pthread_mutex_lock(&pulse->lock);
    int64_t until = pulse->until ? pulse->until : ol_clock_wall_us();
    int64_t from = (until / step - POINTS) * step;
    for (size_t n = 0; (tick = newest(pulse, n)); n++)
        spread(tick, from, points);
    pthread_mutex_unlock(&pulse->lock);
    ol_buf_print(out, "{\"step_s\":%d,\"from\":", STEP_S);
    ol_buf_json_time(out, from);
    write_line(points, "appended", offsetof(struct point, appended), out);
    write_line(points, "published", offsetof(struct point, published), out);
    write_line(points, "failed", offsetof(struct point, failed), out);
    ol_buf_char(out, '}');
}

/* --- for metrics --- */

static struct ol_histogram copy(struct ol_rates *pulse, const struct ol_histogram *from)
{
    pthread_mutex_lock(&pulse->lock);
    struct ol_histogram copy = *from;
    pthread_mutex_unlock(&pulse->lock);
    return copy;
}

struct ol_histogram ol_rates_appends(struct ol_rates *pulse)
{
    return copy(pulse, &pulse->appends);
}

struct ol_histogram ol_rates_publishes(struct ol_rates *pulse)
{
    return copy(pulse, &pulse->publishes);
}

void ol_rates_each(struct ol_rates *pulse,
                   void (*each)(void *user, const char *destination, double ok, double failed),
                   void *user)
{
    pthread_mutex_lock(&pulse->lock);
    for (int i = 0; i < pulse->place_count; i++)
        each(user, pulse->places[i].name, pulse->places[i].ok_total, pulse->places[i].failed_total);
    pthread_mutex_unlock(&pulse->lock);
}
