/* test_batcher.c: commands of many callers in few transactions, on both stores. */
#include "base/json/json.h"
#include "base/uuid.h"
#include "outbox/batcher.h"
#include "stores.h"

#include <pthread.h>
#include <stdatomic.h>

/* --- a call: a command and its answer --- */

struct call {
    struct ol_batcher_command command;
    struct outlog_new_event event;
    struct outlog_new_message message;
    struct outlog_idempotency key;
    char aggregate_id[32], id[40];
    int result;
    enum outlog_code code;
    bool is_replayed, is_message;
    int index;
    char response[1024];
    atomic_int answers;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;

static void done(struct ol_batcher_command *command, int result)
{
    struct call *call = command->user;
    pthread_mutex_lock(&lock);
    call->result = result;
    call->code = result < 0 ? command->err.code : OUTLOG_OK;
    call->index = command->err.index;
    call->is_message = command->is_message;
    call->is_replayed = command->is_replayed;
    struct ol_buf json = {0};
    if (result == 0 && !command->is_replayed)
        ol_batcher_json(command, &json);
    snprintf(call->response, sizeof call->response, "%s",
             command->is_replayed ? command->response.data
             : json.data          ? json.data
                                  : "");
    ol_buf_clear(&json);
    atomic_fetch_add(&call->answers, 1);
    pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&lock);
}

static void wait_for(struct call *call)
{
    pthread_mutex_lock(&lock);
    while (atomic_load(&call->answers) == 0)
        pthread_cond_wait(&answered, &lock);
    pthread_mutex_unlock(&lock);
}

static void prepare(struct call *call, const char *aggregate_id)
{
    *call = (struct call){0};
    snprintf(call->aggregate_id, sizeof call->aggregate_id, "%s", aggregate_id);
    call->event = (struct outlog_new_event){.org_id = "acme",
                                            .aggregate_type = "order",
                                            .aggregate_id = call->aggregate_id,
                                            .event_type = "order.created",
                                            .payload = "{\"n\":1}"};
    call->message = (struct outlog_new_message){.destination = "hook",
                                                .event_type = "order.created",
                                                .payload = "{}",
                                                .payload_bytes = 2,
                                                .org_id = "acme"};
    call->key = (struct outlog_idempotency){.org_id = "acme",
                                            .actor_id = "ann",
                                            .endpoint = "POST /v1/events",
                                            .request = "{\"n\":1}"};
    call->command = (struct ol_batcher_command){.events = &call->event,
                                                .event_count = 1,
                                                .messages = &call->message,
                                                .done = done,
                                                .user = call};
}

static struct ol_batcher *open_batcher(void **state, size_t waiting_max)
{
    const struct fixture *fixture = *state;
    struct ol_batcher *batcher;
    outlog_err err;
    OK(ol_batcher_open(fixture->scratch.url, waiting_max, &batcher, &err));
    return batcher;
}

static void submit(struct ol_batcher *batcher, struct call *call)
{
    outlog_err err;
    OK(ol_batcher_submit(batcher, &call->command, &err));
}

/* The events of an aggregate, which must be numbered 1, 2, 3 …. */
static int64_t count_events(void **state, const char *aggregate_id)
{
    const struct fixture *fixture = *state;
    struct outlog_page page = {0};
    outlog *log;
    outlog_err err;
    int64_t count = 0;
    OK(outlog_open(fixture->scratch.url, &log, &err));
    OK(outlog_read(log,
                   &(struct outlog_filter){.aggregate_type = "order", .aggregate_id = aggregate_id},
                   0, 10000, &page, &err));
    for (size_t i = 0; i < page.count; i++)
        assert_int_equal(page.events[i].aggregate_seq, ++count);
    outlog_page_clear(&page);
    outlog_close(log);
    return count;
}

/* --- a batcher whose transaction is held, so that later commands are one batch --- */

struct gate {
    struct call call;
    pthread_mutex_t closed;
    atomic_int reached;
};

static void done_at_gate(struct ol_batcher_command *command, int result)
{
    struct gate *gate = command->user;
    (void)result;
    atomic_store(&gate->reached, 1);
    pthread_mutex_lock(&gate->closed);
    pthread_mutex_unlock(&gate->closed);
}

static void hold(struct ol_batcher *batcher, struct gate *gate)
{
    prepare(&gate->call, "gate");
    gate->call.command.done = done_at_gate;
    gate->call.command.user = gate;
    pthread_mutex_init(&gate->closed, NULL);
    atomic_store(&gate->reached, 0);
    pthread_mutex_lock(&gate->closed);
    submit(batcher, &gate->call);
    for (int i = 0; !atomic_load(&gate->reached); i++) {
        if (i > 10000)
            fail_msg("the batcher did not answer in 10 s");
        usleep(1000);
    }
}

static void let_go(struct gate *gate)
{
    pthread_mutex_unlock(&gate->closed);
}

/* --- tests --- */

static void g1_every_command_is_answered_once(void **state)
{
    enum { MANY = 300 };
    struct call *calls = calloc(MANY, sizeof *calls);
    struct ol_batcher *batcher = open_batcher(state, 0);
    char name[32];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "once-%d", i % 7);
        prepare(&calls[i], name);
        calls[i].command.message_count = i % 3 == 0;
        submit(batcher, &calls[i]);
    }
    ol_batcher_close(batcher); // answers all waiting commands
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(atomic_load(&calls[i].answers), 1);
        assert_int_equal(calls[i].result, 0);
        assert_non_null(strstr(calls[i].response, "{\"events\":[{\"event_id\":"));
        assert_true((strstr(calls[i].response, "\"messages\":[{\"event_id\":") != NULL) ==
                    (i % 3 == 0));
    }
    assert_int_equal(count_events(state, "once-0"), MANY / 7 + 1);
    free(calls);
}

static void g2_one_bad_command_does_not_touch_its_neighbours(void **state)
{
    static const int64_t wrong = 77;
    enum { MANY = 20 };
    struct call calls[MANY];
    struct gate gate;
    struct ol_batcher *batcher = open_batcher(state, 0);

    hold(batcher, &gate);
    for (int i = 0; i < MANY; i++) {
        prepare(&calls[i], "neighbours");
        if (i == 3)
            calls[i].event.payload = "{\"a\":1,\"a\":2}";
        else if (i == 7)
            calls[i].event.expected_seq = &wrong;
        else if (i == 11)
            calls[i].event.causation_id = "00000000-0000-4000-8000-000000000000";
        else if (i == 15) { // its event was stored before the message is refused
            calls[i].command.message_count = 1;
            calls[i].message.destination = "";
        }
        submit(batcher, &calls[i]);
    }
    let_go(&gate);
    ol_batcher_close(batcher);
    for (int i = 0; i < MANY; i++) {
        enum outlog_code code = i == 3    ? OUTLOG_INVALID_JSON
                                : i == 7  ? OUTLOG_SEQUENCE_CONFLICT
                                : i == 11 ? OUTLOG_UNKNOWN_CAUSATION
                                : i == 15 ? OUTLOG_INVALID_FIELD
                                          : OUTLOG_OK;
        assert_int_equal(calls[i].code, code);
        assert_int_equal(calls[i].is_message, i == 15);
        if (code)
            assert_int_equal(calls[i].index, 0);
    }
    assert_int_equal(count_events(state, "neighbours"), MANY - 4);
}

/* Commands with ids of their own are written together without a lookup, and looked up when the
 * store refuses a known id: a repeat, in the same batch or in an earlier one, gets the first
 * answer, other content is refused. */
static void e9_ids_of_their_own_go_together_and_repeats_find_the_first(void **state)
{
    enum { MANY = 40, AGAIN = 7, OTHER = 11, EARLIER = 23 };
    struct call *calls = calloc(MANY, sizeof *calls);
    struct call earlier;
    struct ol_batcher *batcher = open_batcher(state, 0);
    struct gate gate;

    prepare(&earlier, "own");
    ol_uuid_make(earlier.id);
    earlier.event.id = earlier.id;
    submit(batcher, &earlier);
    wait_for(&earlier);
    hold(batcher, &gate);
    for (int i = 0; i < MANY; i++) {
        prepare(&calls[i], "own");
        ol_uuid_make(calls[i].id);
        if (i == AGAIN || i == OTHER)
            memcpy(calls[i].id, calls[0].id, sizeof calls[i].id);
        if (i == EARLIER)
            memcpy(calls[i].id, earlier.id, sizeof calls[i].id);
        if (i == OTHER)
            calls[i].event.payload = "{\"n\":2}";
        calls[i].event.id = calls[i].id;
        submit(batcher, &calls[i]);
    }
    let_go(&gate);
    ol_batcher_close(batcher);
    for (int i = 0; i < MANY; i++) {
        bool is_repeat = i == AGAIN || i == EARLIER;
        assert_int_equal(atomic_load(&calls[i].answers), 1);
        assert_int_equal(calls[i].code, i == OTHER ? OUTLOG_ID_CONFLICT : OUTLOG_OK);
        if (i != OTHER)
            assert_true((strstr(calls[i].response, "\"duplicate\":true") != NULL) == is_repeat);
    }
    assert_int_equal(count_events(state, "own"), 1 + MANY - 3);
    free(calls);
}

static void i1_a_repeat_in_the_same_group_gets_the_first_answer(void **state)
{
    struct call calls[4];
    struct gate gate;
    struct ol_batcher *batcher = open_batcher(state, 0);

    hold(batcher, &gate);
    for (int i = 0; i < 4; i++) {
        prepare(&calls[i], "repeat");
        calls[i].key.key = "k-repeat";
        calls[i].command.idempotency = &calls[i].key;
        calls[i].command.message_count = 1;
        if (i == 2)
            calls[i].key.request = "{\"n\":2}";
        submit(batcher, &calls[i]);
    }
    let_go(&gate);
    ol_batcher_close(batcher);
    assert_int_equal(calls[0].result, 0);
    assert_false(calls[0].is_replayed);
    assert_true(calls[1].is_replayed && calls[3].is_replayed);
    assert_string_equal(calls[0].response, calls[1].response);
    assert_string_equal(calls[0].response, calls[3].response);
    assert_int_equal(calls[2].code, OUTLOG_IDEMPOTENCY_KEY_REUSE);
    assert_int_equal(count_events(state, "repeat"), 1);
}

/* The first with the key is refused: the key is free for the second, in the same transaction. */
static void i1_a_refused_command_leaves_its_key_free(void **state)
{
    static const int64_t wrong = 5;
    struct call calls[2];
    struct gate gate;
    struct ol_batcher *batcher = open_batcher(state, 0);

    hold(batcher, &gate);
    for (int i = 0; i < 2; i++) {
        prepare(&calls[i], "free-key");
        calls[i].key.key = "k-free";
        calls[i].command.idempotency = &calls[i].key;
        calls[i].event.expected_seq = i == 0 ? &wrong : NULL;
        submit(batcher, &calls[i]);
    }
    let_go(&gate);
    ol_batcher_close(batcher);
    assert_int_equal(calls[0].code, OUTLOG_SEQUENCE_CONFLICT);
    assert_int_equal(calls[1].result, 0);
    assert_false(calls[1].is_replayed);
}

static void g5_one_more_than_fits_is_refused(void **state)
{
    struct call calls[3];
    struct gate gate;
    outlog_err err;
    struct ol_batcher *batcher = open_batcher(state, 2);

    hold(batcher, &gate);
    for (int i = 0; i < 3; i++)
        prepare(&calls[i], "full");
    submit(batcher, &calls[0]);
    submit(batcher, &calls[1]);
    assert_int_equal(ol_batcher_submit(batcher, &calls[2].command, &err), -1);
    assert_int_equal(err.code, OUTLOG_UNAVAILABLE);
    assert_true(outlog_code_is_retryable(err.code));
    let_go(&gate);
    wait_for(&calls[1]);
    submit(batcher, &calls[2]); // there is a free place again
    ol_batcher_close(batcher);
    assert_int_equal(count_events(state, "full"), 3);
    prepare(&calls[0], "empty");
    calls[0].command.event_count = 0;
    batcher = open_batcher(state, 0);
    assert_int_equal(ol_batcher_submit(batcher, &calls[0].command, &err), -1);
    assert_int_equal(err.code, OUTLOG_MISUSE);
    ol_batcher_close(batcher);
}

static void g4_a_held_aggregate_lets_the_others_go_on(void **state)
{
    const struct fixture *fixture = *state;
    struct call held, other;
    struct outlog_appended out;
    outlog *log;
    outlog_tx *tx;
    outlog_err err;

    if (!fixture->is_postgres) // SQLite has one writer: a transaction holds everything
        skip();
    struct ol_batcher *batcher = open_batcher(state, 0);
    prepare(&held, "held");
    prepare(&other, "not-held");
    OK(outlog_open(fixture->scratch.url, &log, &err));
    OK(outlog_begin(log, &tx, &err));
    OK(outlog_append(tx, &held.event, &out, &err));
    submit(batcher, &held);
    submit(batcher, &other);
    wait_for(&other);
    assert_int_equal(other.result, 0);
    assert_int_equal(atomic_load(&held.answers), 0);
    OK(outlog_commit(tx, &err));
    wait_for(&held);
    assert_int_equal(held.result, 0);
    ol_batcher_close(batcher);
    outlog_close(log);
    assert_int_equal(count_events(state, "held"), 2);
}

/* The server's processes are killed again and again. What was answered ok is stored, what failed is
 * not, and what is unknown is stored completely or not at all. */
static void g3_killed_servers_leave_nothing_half_done(void **state)
{
    enum { MANY = 400 };
    const struct fixture *fixture = *state;
    struct call *calls = calloc(MANY, sizeof *calls);
    struct ol_conn *conn;
    outlog *log;
    outlog_err err;
    int64_t stored_count = 0;
    bool stored;

    if (!fixture->is_postgres) {
        free(calls);
        skip();
    }
    struct ol_batcher *batcher = open_batcher(state, 0);
    OK(ol_store_open(fixture->scratch.url, &conn, &err));
    for (int i = 0; i < MANY; i++) {
        prepare(&calls[i], "killed");
        snprintf(calls[i].id, sizeof calls[i].id, "00000000-0000-4000-8000-%012d", i);
        calls[i].event.id = calls[i].id;
        submit(batcher, &calls[i]);
        if (i % 40 == 39) {
            usleep(5000);
            OK(conn->store->script(conn,
                                   "select pg_terminate_backend(pid) from pg_stat_activity where "
                                   "datname = current_database() and pid <> pg_backend_pid()",
                                   &err));
        }
    }
    ol_batcher_close(batcher);
    ol_store_close(conn);
    OK(outlog_open(fixture->scratch.url, &log, &err));
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(atomic_load(&calls[i].answers), 1);
        OK(outlog_resolve(log, calls[i].id, &stored, NULL, &err));
        stored_count += stored;
        if (calls[i].code != OUTLOG_OUTCOME_UNKNOWN)
            assert_int_equal(stored, calls[i].result == 0);
    }
    outlog_close(log);
    assert_int_equal(count_events(state, "killed"), stored_count);
    free(calls);
}

/* --- the suite, once per store --- */

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(g1_every_command_is_answered_once),
    cmocka_unit_test(g2_one_bad_command_does_not_touch_its_neighbours),
    cmocka_unit_test(e9_ids_of_their_own_go_together_and_repeats_find_the_first),
    cmocka_unit_test(i1_a_repeat_in_the_same_group_gets_the_first_answer),
    cmocka_unit_test(i1_a_refused_command_leaves_its_key_free),
    cmocka_unit_test(g5_one_more_than_fits_is_refused),
    cmocka_unit_test(g4_a_held_aggregate_lets_the_others_go_on),
    cmocka_unit_test(g3_killed_servers_leave_nothing_half_done),
};

int main(void)
{
    return run_with_stores("batcher", NULL, 0, suite, COUNT(suite));
}
