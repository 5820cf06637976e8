/* sim_relay.c: the relay's core in a simulated world, driven by one seed.
 *
 *     sim_relay STORE PLUGIN SEED STEPS
 *
 * Two workers share one SQLite store, in one thread. The clock is set by hand and the publisher is
 * scripted: all that happens (messages, rounds, answers, lost answers, crashes, freezes, operators)
 * is drawn from the seed, so a seed is a history. After each step the history must satisfy these:
 *
 * S1  One message of a key is on the wire at a time. (rule 11)
 * S2  A message is sent for the first time only after every older one of its key was accepted or
 *     is dead. (rule 9)
 * S3  An attempt has a number of its own, which grows. (O4)
 * S4  At most once: a message that may have arrived is sent again only if an operator asks for it.
 * S5  PUBLISHED means that the target accepted it; attempts never fall. (O7)
 * S6  Nothing is on the wire beyond the lease of the lane it was claimed under. (rule 4)
 * S7  In the end, when nothing goes wrong any more, everything is PUBLISHED or DEAD.
 *
 * Prints a hash of the history: the same seed prints the same hash. */
#include "base/clock.h"
#include "log/log.h"
#include "relay/internal.h"

#include <outlog_publisher.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the plug-in (sim_publisher.c) calls. */
int sim_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err);
void sim_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                void *tag);
void sim_drive(void *instance, int timeout_ms);
void sim_close(void *instance);

enum { WORKERS = 2, MESSAGES_MAX = 4000, KEYS = 4, LEASE_US = 2000000, TIMEOUT_US = 400000 };

struct message {
    char id[OL_UUID_TEXT];
    int key; /* -1: none */
    bool at_most_once;
    int sends, attempt; /* how often it was sent, and the highest attempt number */
    bool taken,
        in_doubt;       /* the target has it; the target may have it, so nobody may send it again */
    bool may_be_passed; /* it was accepted once, or an operator requeued it behind younger ones */
    int attempts_shown;
};

struct flight {
    struct flight *next;
    void *instance, *tag;
    int worker, message;
    int64_t deadline, sent_at;
    bool is_dead; /* its relay crashed: nothing waits for the answer */
};

static struct {
    uint64_t random, hash;
    int64_t now;
    const char *store, *plugin;
    outlog *log;
    sqlite3 *reader; /* reads the store without outlog */
    sqlite3_stmt *state_query;
    struct message messages[MESSAGES_MAX];
    int count;
    struct flight *flights;
    struct ol_worker *workers[WORKERS];
    struct ol_worker_stats stats;
    int running; /* the worker whose round it is */
    bool is_healed;
    long step;
    long sends, crashes, operations;
} sim;

static atomic_int never;

#define MUST(condition, ...)                                                     \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "step %ld at %lld: ", sim.step, (long long)sim.now); \
            fprintf(stderr, __VA_ARGS__);                                        \
            fputc('\n', stderr);                                                 \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

/* --- chance and time --- */

static uint64_t draw_number(void)
{
    uint64_t z = sim.random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int draw_below(int max)
{
    return (int)(draw_number() % (uint64_t)max);
}

static void note_step(const char *what, int a, int b)
{
    char line[80];
    int bytes = snprintf(line, sizeof line, "%s %d %d %lld", what, a, b, (long long)sim.now);
    for (int i = 0; i < bytes; i++)
        sim.hash = (sim.hash ^ (unsigned char)line[i]) * 1099511628211u;
    if (getenv("SIM_TRACE"))
        fprintf(stderr, "%ld %s\n", sim.step, line);
}

static void pass_time(int64_t us)
{
    sim.now += us;
    ol_clock_set(sim.now);
}

/* --- the store, as an operator sees it --- */

static void must_not_fail(int result, const outlog_err *err)
{
    MUST(result == 0, "%s", err->message);
}

static void read_state(int number, char state[16], int *attempts)
{
    static const char sql[] = "select state, attempts from outlog_outbox_state where event_id = ?";
    sqlite3_stmt *row = sim.state_query;
    if (!row)
        MUST(sqlite3_prepare_v2(sim.reader, sql, -1, &sim.state_query, NULL) == SQLITE_OK, "%s",
             sqlite3_errmsg(sim.reader));
    row = sim.state_query;
    sqlite3_bind_text(row, 1, sim.messages[number].id, -1, SQLITE_STATIC);
    MUST(sqlite3_step(row) == SQLITE_ROW, "message %d is gone", number);
    snprintf(state, 16, "%s", (const char *)sqlite3_column_text(row, 0));
    *attempts = sqlite3_column_int(row, 1);
    sqlite3_reset(row);
}

static bool is_dead(int number)
{
    char state[16];
    int attempts;
    read_state(number, state, &attempts);
    return strcmp(state, "DEAD") == 0;
}

static void check_states(void)
{
    for (int i = 0; i < sim.count; i++) {
        struct message *m = &sim.messages[i];
        char state[16];
        int attempts;
        read_state(i, state, &attempts);
        MUST(strcmp(state, "PUBLISHED") != 0 || m->taken, "S5: %d is PUBLISHED and was never taken",
             i);
        MUST(attempts >= m->attempts_shown, "S5: attempts of %d fell to %d", i, attempts);
        MUST(m->attempt <= attempts, "S3: %d left as attempt %d and shows %d", i, m->attempt,
             attempts);
        m->attempts_shown = attempts;
    }
}

/* --- the publisher --- */

static int find_message(const char *id)
{
    for (int i = 0; i < sim.count; i++)
        if (strcmp(sim.messages[i].id, id) == 0)
            return i;
    MUST(false, "%s was never put there", id);
    return -1;
}

int sim_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host;
    return 0;
}

static void check_send(int number, const struct outlog_delivery *message)
{
    struct message *m = &sim.messages[number];
    MUST(message->attempt > m->attempt, "S3: %d leaves again as attempt %d", number,
         message->attempt);
    MUST(!m->at_most_once || !m->in_doubt, "S4: %d may have arrived, and leaves again", number);
    for (struct flight *f = sim.flights; m->key >= 0 && f; f = f->next)
        MUST(sim.messages[f->message].key != m->key || f->deadline <= sim.now,
             "S1: %d leaves while %d of its key is on the wire", number, f->message);
    for (int i = 0; m->key >= 0 && m->sends == 0 && i < number; i++)
        MUST(sim.messages[i].key != m->key || sim.messages[i].may_be_passed || is_dead(i),
             "S2: %d leaves before %d of its key", number, i);
}

void sim_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                void *tag)
{
    int number = find_message(message->event_id);
    struct message *m = &sim.messages[number];
    const struct ol_relay_lane *lane = &sim.workers[sim.running]->lanes.all[0];
    struct flight *flight = calloc(1, sizeof *flight);

    MUST(flight, "out of memory");
    check_send(number, message);
    MUST(deadline_us <= lane->outbox.lease_end, "S6: %d may be on the wire beyond the lease",
         number);
    m->sends++;
    m->attempt = message->attempt;
    m->in_doubt = true;
    *flight = (struct flight){.next = sim.flights,
                              .instance = instance,
                              .tag = tag,
                              .worker = sim.running,
                              .message = number,
                              .deadline = deadline_us,
                              .sent_at = sim.now};
    sim.flights = flight;
    sim.sends++;
    note_step("send", number, message->attempt);
}

static void send_outcome(struct flight *flight, struct outlog_outcome outcome)
{
    const struct outlog_publisher_host *host = flight->instance;
    struct message *m = &sim.messages[flight->message];
    outcome.duration_us = sim.now - flight->sent_at;
    if (outcome.kind == OUTLOG_PUBLISH_OK)
        m->taken = m->may_be_passed = true;
    if (outcome.surely_not_sent)
        m->in_doubt = false;
    note_step("answer", flight->message,
              (int)outcome.kind * 4 + outcome.is_permanent * 2 + outcome.surely_not_sent);
    for (struct flight **at = &sim.flights; *at; at = &(*at)->next)
        if (*at == flight) {
            *at = flight->next;
            break;
        }
    if (!flight->is_dead)
        host->done(host->user, flight->tag, &outcome);
    free(flight);
}

static struct outlog_outcome random_outcome(void)
{
    static char refused[] = "refused", lost[] = "lost";
    int dice = sim.is_healed ? 0 : draw_below(10);
    if (dice < 5)
        return (struct outlog_outcome){.kind = OUTLOG_PUBLISH_OK};
    if (dice < 6)
        return (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED,
                                       .is_permanent = true,
                                       .error = refused};
    if (dice < 8)
        return (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED,
                                       .surely_not_sent = true,
                                       .error = refused};
    if (dice < 9)
        return (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED, .error = refused};
    return (struct outlog_outcome){.kind = OUTLOG_PUBLISH_UNKNOWN, .error = lost};
}

/* Answers come at random times until the deadline; a lost answer may have been a success. */
void sim_drive(void *instance, int timeout_ms)
{
    static char late[] = "no answer in time";
    (void)timeout_ms;
    for (struct flight *f = sim.flights, *next; f; f = next) {
        next = f->next;
        if (f->is_dead || f->instance != instance)
            continue;
        if (sim.now >= f->deadline) {
            if (draw_below(2))
                sim.messages[f->message].taken = true;
            send_outcome(f, (struct outlog_outcome){.kind = OUTLOG_PUBLISH_UNKNOWN, .error = late});
        } else if (sim.is_healed || draw_below(3) == 0) {
            struct outlog_outcome outcome = random_outcome();
            if (outcome.kind == OUTLOG_PUBLISH_UNKNOWN && draw_below(2))
                sim.messages[f->message].taken = true;
            send_outcome(f, outcome);
        }
    }
}

void sim_close(void *instance)
{
    static char gone[] = "the relay ended";
    for (struct flight *f = sim.flights, *next; f; f = next) {
        next = f->next;
        if (f->is_dead || f->instance != instance)
            continue;
        // A message on the wire of a crashed relay may still arrive.
        struct flight *ghost = malloc(sizeof *ghost);
        MUST(ghost, "out of memory");
        *ghost = *f;
        ghost->is_dead = true;
        send_outcome(f, (struct outlog_outcome){.kind = OUTLOG_PUBLISH_UNKNOWN, .error = gone});
        ghost->next = sim.flights;
        sim.flights = ghost;
    }
}

static void end_ghosts(void)
{
    for (struct flight *f = sim.flights, *next; f; f = next) {
        next = f->next;
        if (f->is_dead && (sim.now >= f->deadline || draw_below(4) == 0))
            send_outcome(f,
                         (struct outlog_outcome){.kind = draw_below(2) ? OUTLOG_PUBLISH_OK
                                                                       : OUTLOG_PUBLISH_UNKNOWN});
    }
}

/* --- what can happen --- */

static void put_message(void)
{
    static const char *const destinations[] = {"many", "once"};
    struct message *m = &sim.messages[sim.count];
    struct outlog_enqueued out;
    char key[16];
    outlog_tx *tx;
    outlog_err err;
    bool is_once = draw_below(4) == 0, rolls_back = draw_below(12) == 0;

    if (sim.count == MESSAGES_MAX)
        return;
    *m = (struct message){.key = draw_below(5) ? draw_below(KEYS) * 2 + is_once : -1,
                          .at_most_once = is_once};
    snprintf(key, sizeof key, "k%d", m->key);
    struct outlog_new_message draft = {.destination = destinations[is_once],
                                       .event_type = "sim",
                                       .payload = "{}",
                                       .payload_bytes = 2,
                                       .ordering_key = m->key >= 0 ? key : NULL,
                                       .delay_us = draw_below(8) ? 0 : draw_below(1000000)};
    must_not_fail(outlog_begin(sim.log, &tx, &err), &err);
    must_not_fail(outlog_enqueue(tx, &draft, &out, &err), &err);
    memcpy(m->id, out.event_id, sizeof m->id);
    if (rolls_back) {
        outlog_rollback(tx);
        note_step("rollback", 0, 0);
        return;
    }
    must_not_fail(outlog_commit(tx, &err), &err);
    note_step("put", sim.count, m->key);
    sim.count++;
}

static struct ol_worker_options options[WORKERS];

static void start_worker(int i)
{
    outlog_err err;
    sim.running = i;
    options[i] = ol_worker_defaults(sim.store);
    options[i].name = i ? "b" : "a";
    options[i].lease_us = LEASE_US;
    options[i].patience_us = 100000;
    options[i].poll_us = 20000;
    options[i].batch = 10;
    options[i].quiet = true;
    sim.workers[i] = ol_worker_open(&options[i], &never, &sim.stats, &err);
    MUST(sim.workers[i], "%s", err.message);
    note_step("start", i, 0);
}

static void crash_worker(int i)
{
    sim.running = i;
    note_step("crash", i, 0);
    sim.crashes++;
    ol_worker_close(sim.workers[i]);
    sim.workers[i] = NULL;
}

static void run_round(int i)
{
    if (!sim.workers[i]) {
        start_worker(i);
        return;
    }
    sim.running = i;
    sim.workers[i]->clock.now = sim.now;
    ol_sender_drive(sim.workers[i]->targets.sender, 0);
    ol_worker_round(sim.workers[i]);
    note_step("round", i, (int)sim.workers[i]->lanes.owned_count);
}

/* An operator requeues what is dead or published, or kills what waits. */
static void operate_message(void)
{
    if (sim.count == 0)
        return;
    int number = draw_below(sim.count);
    struct message *m = &sim.messages[number];
    const char *id = m->id;
    outlog_err err;
    sim.operations++;
    if (draw_below(3) == 0) {
        note_step("kill", number, outlog_kill(sim.log, &id, 1, &(struct outlog_operator){0}, &err));
    } else {
        struct outlog_requeue how = {.even_if_unknown = true};
        int result = outlog_requeue_ids(sim.log, &id, 1, &how, &err);
        if (result == 0) { // the operator takes responsibility for what follows
            m->in_doubt = m->taken = false;
            m->may_be_passed = true;
        }
        note_step("requeue", number, result);
    }
}

static void run_step(void)
{
    int dice = draw_below(100);
    if (dice < 25)
        put_message();
    else if (dice < 70)
        run_round(draw_below(WORKERS));
    else if (dice < 90)
        pass_time(draw_below(100000));
    else if (dice < 93)
        pass_time(draw_below(LEASE_US + LEASE_US / 2)); // as if a process was stopped for long
    else if (dice < 95 && sim.workers[dice % WORKERS])
        crash_worker(dice % WORKERS);
    else if (dice < 97)
        operate_message();
    end_ghosts();
}

static int count_open(void)
{
    int count = 0;
    for (int i = 0; i < sim.count; i++) {
        char state[16];
        int attempts;
        read_state(i, state, &attempts);
        count += strcmp(state, "PENDING") == 0 || strcmp(state, "CLAIMED") == 0;
    }
    return count;
}

/* --- main --- */

static void prepare_store(void)
{
    static const char *const guarantees[] = {"at_least_once", "at_most_once"};
    outlog_err err;
    char settings[1200];

    must_not_fail(outlog_open(sim.store, &sim.log, &err), &err);
    MUST(sqlite3_open(sim.store + strlen("sqlite:"), &sim.reader) == SQLITE_OK, "%s", sim.store);
    for (int i = 0; i < 2; i++) {
        snprintf(
            settings, sizeof settings,
            "{\"type\":\"plugin\",\"path\":\"%s\",\"guarantee\":\"%s\",\"timeout\":\"400ms\",\"concurrency\":5,"
            "\"retry\":{\"base\":\"20ms\",\"max\":\"200ms\",\"jitter\":0,\"max_attempts\":6},"
            "\"breaker\":{\"failures\":4,\"open\":\"50ms\",\"open_max\":\"200ms\"}}",
            sim.plugin, guarantees[i]);
        must_not_fail(ol_store_exec(sim.log->conn, OL_Q_DESTINATION_PUT,
                                    OL_PARAMS(ol_value_text(i ? "once" : "many"),
                                              ol_value_text(settings), ol_value_text(guarantees[i]),
                                              ol_value_text("skip"), ol_value_int(0)),
                                    NULL, &err),
                      &err);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: sim_relay STORE PLUGIN SEED STEPS\n");
        return 2;
    }
    sim.store = argv[1];
    sim.plugin = argv[2];
    sim.random = strtoull(argv[3], NULL, 10);
    sim.hash = 14695981039346656037u;
    sim.now = INT64_C(1767225600000000);
    ol_clock_set(sim.now);
    prepare_store();
    long steps = strtol(argv[4], NULL, 10);
    for (sim.step = 0; sim.step < steps; sim.step++) {
        run_step();
        if (sim.step % 10 == 0)
            check_states();
    }
    sim.is_healed = true;
    for (int i = 0; i < 4000 && count_open() > 0; i++, sim.step++) {
        run_round(i % WORKERS);
        pass_time(20000);
        end_ghosts();
    }
    check_states();
    MUST(count_open() == 0, "S7: %d messages are neither published nor dead", count_open());
    printf("{\"hash\":\"%016llx\",\"messages\":%d,\"sends\":%ld,\"crashes\":%ld,\"operations\":%ld,"
           "\"taken\":%lld,\"fenced\":%lld}\n",
           (unsigned long long)sim.hash, sim.count, sim.sends, sim.crashes, sim.operations,
           (long long)sim.stats.taken, (long long)sim.stats.fenced);
    for (int i = 0; i < WORKERS; i++)
        if (sim.workers[i])
            ol_worker_close(sim.workers[i]);
    while (sim.flights) {
        struct flight *next = sim.flights->next;
        free(sim.flights);
        sim.flights = next;
    }
    sqlite3_finalize(sim.state_query);
    sqlite3_close(sim.reader);
    outlog_close(sim.log);
    return 0;
}
