/* test_session.c: leases and answers of sessions, and their effects; on both stores. */
#include "sessions/session.h"
#include "stores.h"

enum { MINUTE = 60 * 1000000 };
static const char first[] = "0190a7c3-0000-7000-8000-00000000000a";
static const char second[] = "0190a7c3-0000-7000-8000-00000000000b";

/* --- a session with one message --- */

struct session {
    outlog *log;
    struct ol_arena arena;
    char key[32];
};

static struct session begin(void **state)
{
    struct fixture *fixture = *state;
    struct session session = {.log = fixture->log};
    struct outlog_new_event event;
    struct outlog_appended appended;
    outlog_err err;

    snprintf(session.key, sizeof session.key, "u:helper:t-%d", fixture->numbers++);
    OK(ol_session_message("acme", session.key, "r-1", "hello", &session.arena, &event, &err));
    OK(outlog_append_now(session.log, &event, 1, &appended, &err));
    return session;
}

static void end(struct session *session)
{
    ol_arena_clear(&session->arena);
}

static int take(struct session *session, const char *owner, int64_t lease_us,
                struct ol_session_work *out)
{
    outlog_err err;
    int got = ol_session_take(session->log, owner, lease_us, "acme", session->key, &session->arena,
                              out, &err);
    OK(got);
    return got;
}

static int answer(struct session *session, const struct ol_session_work *work, const char *text)
{
    outlog_err err;
    int got = ol_session_answer(session->log, work, text, strlen(text), NULL, &err);
    OK(got);
    return got;
}

/* The number of pending effects, of which there is at most one here. */
static size_t read_pending(struct session *session, struct ol_pending_effect *out)
{
    struct ol_effect_page page = {0};
    outlog_err err;
    OK(ol_session_effect_pending(session->log, "acme", session->key, &session->arena, &page, &err));
    assert_true(page.is_last && page.count <= 1);
    if (page.count)
        *out = page.effects[0];
    return page.count;
}

static bool acknowledge(struct session *session, const char *org_id, const char *key,
                        const char *effect_id)
{
    struct ol_session_ack ack = {.org_id = org_id, .session_key = key, .effect_id = effect_id};
    outlog_err err;
    OK(ol_session_effect_ack(session->log, &ack, &err));
    return ack.is_first;
}

/* --- finding messages --- */

struct waiting {
    const char *key;
    bool is_there;
};

static void see_waiting(void *user, const char *org_id, const char *key)
{
    struct waiting *waiting = user;
    assert_string_equal(org_id, "acme");
    waiting->is_there |= strcmp(key, waiting->key) == 0;
}

/* After a scan, does this session wait for an answer? */
static bool waits(outlog *log, const char *key, struct ol_session_scan *scan)
{
    struct waiting waiting = {.key = key};
    outlog_err err;
    OK(ol_session_note(log, scan, &err));
    OK(ol_session_waiting(log, 1000, see_waiting, &waiting, &err));
    return waiting.is_there;
}

static void s2_a_message_is_found_by_every_scan(void **state)
{
    struct session session = begin(state);
    struct ol_session_scan scan = {0}, other = {0};
    struct ol_session_work work;

    assert_true(waits(session.log, session.key, &scan));
    assert_true(waits(session.log, session.key, &other));
    assert_int_equal(take(&session, first, MINUTE, &work), 1);
    assert_int_equal(answer(&session, &work, "hi"), 1);
    assert_false(waits(session.log, session.key, &scan));
    assert_false(waits(session.log, session.key, &other)); // a second scan changes nothing
    end(&session);
}

static void append_in(outlog_tx *tx, const char *type, const char *id)
{
    const struct outlog_new_event event = {.org_id = "acme",
                                           .aggregate_type = type,
                                           .aggregate_id = id,
                                           .event_type = "user_message",
                                           .payload = "{\"text\":\"x\",\"requestId\":\"r\"}"};
    struct outlog_appended appended;
    outlog_err err;
    OK(outlog_append(tx, &event, &appended, &err));
}

/* Its event_id is lower than what is committed meanwhile, and is noted all the same. */
static void s2_an_open_transaction_holds_up_nobody_and_is_not_passed(void **state)
{
    struct fixture *fixture = *state;
    struct ol_session_scan scan = {0};
    outlog *other;
    outlog_tx *tx;
    outlog_err err;
    char late[32];

    if (!fixture->is_postgres)
        return; // one writer at a time: there is no such thing
    snprintf(late, sizeof late, "u:helper:t-%d", fixture->numbers++);
    OK(outlog_open(fixture->scratch.url, &other, &err));
    OK(outlog_begin(other, &tx, &err));
    append_in(tx, "session", late);
    struct session session = begin(state);
    assert_true(waits(session.log, session.key, &scan));
    assert_false(waits(session.log, late, &scan));
    OK(outlog_commit(tx, &err));
    assert_true(waits(session.log, late, &scan));
    outlog_close(other);
    end(&session);
}

/* --- answering --- */

static void s3_whose_lease_ran_out_records_nothing(void **state)
{
    struct session session = begin(state);
    struct ol_session_work old, now;
    struct ol_pending_effect got;
    outlog_err err;

    assert_int_equal(take(&session, first, 1, &old), 1);
    usleep(2000);
    assert_int_equal(take(&session, second, MINUTE, &now), 1);
    assert_int_equal(answer(&session, &old, "of the old one"), 0);
    assert_int_equal(ol_session_renew(session.log, &old, MINUTE, &err), 0);
    assert_int_equal(ol_session_fail(session.log, &old, "too late", MINUTE, &err), 0);
    assert_int_equal(ol_session_pass(session.log, &old, "too late", &err), 0);
    assert_int_equal(ol_session_release(session.log, &old, &err), 0);
    assert_int_equal(read_pending(&session, &got), 0);
    assert_int_equal(ol_session_renew(session.log, &now, MINUTE, &err), 1);
    assert_int_equal(answer(&session, &now, "of the new one"), 1);
    assert_int_equal(read_pending(&session, &got), 1);
    assert_non_null(strstr(got.spec, "of the new one"));
    end(&session);
}

static void s3_one_owner_at_a_time(void **state)
{
    struct session session = begin(state);
    struct ol_session_work work, other;
    outlog_err err;
    assert_int_equal(take(&session, first, MINUTE, &work), 1);
    assert_int_equal(take(&session, second, MINUTE, &other), 0);
    assert_int_equal(ol_session_release(session.log, &work, &err), 1);
    assert_int_equal(take(&session, second, MINUTE, &other), 1);
    end(&session);
}

static void s4_a_message_is_answered_once(void **state)
{
    struct session session = begin(state);
    struct ol_session_work work;
    struct ol_pending_effect got;
    assert_int_equal(take(&session, first, MINUTE, &work), 1);
    assert_int_equal(answer(&session, &work, "one"), 1);
    assert_int_equal(answer(&session, &work, "two"), 0);
    assert_int_equal(read_pending(&session, &got), 1);
    assert_non_null(strstr(got.spec, "\"one\""));
    assert_int_equal(take(&session, first, MINUTE, &work), 0);
    end(&session);
}

/* --- delivering --- */

static void answer_at_once(struct session *session, struct ol_pending_effect *out)
{
    struct ol_session_work work;
    assert_int_equal(take(session, first, MINUTE, &work), 1);
    assert_int_equal(answer(session, &work, "hi"), 1);
    assert_int_equal(read_pending(session, out), 1);
}

static void s5_only_its_own_session_and_org_acknowledge(void **state)
{
    struct session session = begin(state), other = begin(state);
    struct ol_pending_effect got;

    answer_at_once(&session, &got);
    assert_false(acknowledge(&session, "other", session.key, got.effect_id));
    assert_false(acknowledge(&session, "acme", other.key, got.effect_id));
    assert_int_equal(read_pending(&session, &got), 1);
    assert_true(acknowledge(&session, "acme", session.key, got.effect_id));
    assert_false(acknowledge(&session, "acme", session.key, got.effect_id));
    assert_int_equal(read_pending(&session, &got), 0);
    end(&session);
    end(&other);
}

static int64_t read_attempts(struct session *session)
{
    struct ol_buf list = {0};
    outlog_err err;
    OK(ol_session_effects(session->log, "acme", session->key, NULL, NULL, 10, &list, &err));
    const char *at = strstr(list.data, "\"attempts\":");
    assert_non_null(at);
    int64_t attempts = strtoll(at + 11, NULL, 10);
    ol_buf_clear(&list);
    return attempts;
}

/* S-6: the ack that ends an effect counts the attempts that are not counted yet; the event of that
 * end carries the number, so a later ack changes nothing (U3). */
static void s6_attempts_are_counted_with_the_acknowledgement(void **state)
{
    struct session session = begin(state);
    struct ol_pending_effect got;
    outlog_err err;

    answer_at_once(&session, &got);
    assert_int_equal(read_attempts(&session), 0);
    struct ol_session_ack ack = {.org_id = "acme",
                                 .session_key = session.key,
                                 .effect_id = got.effect_id,
                                 .attempts = 2};
    OK(ol_session_effect_ack(session.log, &ack, &err));
    assert_true(ack.is_first);
    assert_int_equal(read_attempts(&session), 2);
    ack.attempts = 1;
    OK(ol_session_effect_ack(session.log, &ack, &err));
    assert_false(ack.is_first);
    assert_int_equal(read_attempts(&session), 2);
    end(&session);
}

struct changes {
    const char *key;
    int64_t asked_at;
    int64_t failed_seq;
    char request_id[32];
};

static void see_change(void *user, const char *org_id, const char *key, int64_t asked_at)
{
    struct changes *changes = user;
    if (strcmp(org_id, "acme") == 0 && strcmp(key, changes->key) == 0 &&
        asked_at > changes->asked_at)
        changes->asked_at = asked_at;
}

static void see_failure(void *user, const struct ol_session_failure *failure)
{
    struct changes *changes = user;
    if (strcmp(failure->session_key, changes->key) != 0)
        return;
    changes->failed_seq = failure->seq;
    snprintf(changes->request_id, sizeof changes->request_id, "%s", failure->request_id);
}

static void l6_pending_effects_are_sent_again_on_request(void **state)
{
    const struct outlog_operator by = {.actor_type = "user", .actor_id = "ann"};
    struct session session = begin(state);
    struct changes changes = {.key = session.key};
    struct ol_pending_effect got;
    int64_t count = -1, before;
    outlog_err err;

    OK(outlog_deliver_session(session.log, "acme", session.key, &by, &count, &err));
    assert_int_equal(count, 0);
    answer_at_once(&session, &got);
    OK(ol_session_effect_changed(session.log, 0, MINUTE, see_change, &changes, &err));
    assert_int_equal(changes.asked_at, 0);
    OK(outlog_deliver_session(session.log, "acme", session.key, &by, &count, &err));
    assert_int_equal(count, 1);
    OK(ol_session_effect_changed(session.log, 0, MINUTE, see_change, &changes, &err));
    assert_true(changes.asked_at > 0);
    before = changes.asked_at;
    usleep(2000);
    OK(outlog_deliver_session(session.log, "acme", session.key, &by, NULL, &err));
    OK(ol_session_effect_changed(session.log, 0, MINUTE, see_change, &changes, &err));
    assert_true(changes.asked_at > before); // one request is distinguished from the next
    OK(outlog_deliver_session(session.log, "other", session.key, &by, &count, &err));
    assert_int_equal(count, 0);
    assert_true(acknowledge(&session, "acme", session.key, got.effect_id));
    OK(outlog_deliver_session(session.log, "acme", session.key, &by, &count, &err));
    assert_int_equal(count, 0);
    assert_int_equal(outlog_deliver_session(session.log, "acme", "no key", &by, NULL, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    assert_int_equal(outlog_deliver_session(session.log, NULL, session.key, &by, NULL, &err), -1);
    assert_int_equal(err.code, OUTLOG_INVALID_FIELD);
    end(&session);
}

static void s4_a_message_that_is_given_up_is_found(void **state)
{
    struct session session = begin(state);
    struct ol_session_work work;
    struct changes changes = {.key = session.key};
    outlog_err err;

    assert_int_equal(take(&session, first, MINUTE, &work), 1);
    assert_int_equal(ol_session_fail(session.log, &work, "not yet", 0, &err), 1);
    OK(ol_session_list_failures(session.log, MINUTE, see_failure, &changes, &err));
    assert_int_equal(changes.failed_seq, 0); // it is tried again
    assert_int_equal(take(&session, first, MINUTE, &work), 1);
    assert_int_equal(ol_session_pass(session.log, &work, "for good", &err), 1);
    OK(ol_session_list_failures(session.log, MINUTE, see_failure, &changes, &err));
    assert_int_equal(changes.failed_seq, 1);
    assert_string_equal(changes.request_id, "r-1");
    end(&session);
}

/* --- the suite, once per store --- */

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(s2_a_message_is_found_by_every_scan),
    cmocka_unit_test(s2_an_open_transaction_holds_up_nobody_and_is_not_passed),
    cmocka_unit_test(s3_whose_lease_ran_out_records_nothing),
    cmocka_unit_test(s3_one_owner_at_a_time),
    cmocka_unit_test(s4_a_message_is_answered_once),
    cmocka_unit_test(s4_a_message_that_is_given_up_is_found),
    cmocka_unit_test(s5_only_its_own_session_and_org_acknowledge),
    cmocka_unit_test(s6_attempts_are_counted_with_the_acknowledgement),
    cmocka_unit_test(l6_pending_effects_are_sent_again_on_request),
};

int main(void)
{
    return run_with_stores("session", NULL, 0, suite, COUNT(suite));
}
