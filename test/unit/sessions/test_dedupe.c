/* test_dedupe.c: the request ids of a session, read from both stores. */
#include "sessions/dedupe.h"
#include "stores.h"

static void append_event(struct fixture *fixture, const char *key, const char *type,
                         const char *payload)
{
    const struct outlog_new_event event = {.org_id = "acme",
                                           .aggregate_type = "session",
                                           .aggregate_id = key,
                                           .event_type = type,
                                           .payload = payload};
    struct outlog_appended appended;
    outlog_err err;
    OK(outlog_append_now(fixture->log, &event, 1, &appended, &err));
}

/* Read the events after dedupe->upto into it. */
static void read_into(struct fixture *fixture, const char *org_id, const char *key,
                      struct ol_dedupe *dedupe)
{
    outlog_err err;
    OK(ol_dedupe_load(dedupe, fixture->log, org_id, key, &err));
}

static void s2_a_request_is_known_by_its_first_seq(void **state)
{
    struct fixture *fixture = *state;
    struct ol_dedupe dedupe = {0}, other = {0};
    char long_id[300];

    snprintf(long_id, sizeof long_id, "{\"text\":\"x\",\"requestId\":\"%0256d\"}", 7);
    append_event(fixture, "u:a:t", "user_message", "{\"text\":\"x\",\"requestId\":\"one\"}");
    append_event(fixture, "u:a:t", "user_edit", "{\"text\":\"x\",\"requestId\":\"edit\"}");
    append_event(fixture, "u:a:t", "user_message", "{\"text\":\"x\"}");
    append_event(fixture, "u:a:t", "user_message", "{\"requestId\":17}");
    append_event(fixture, "u:a:t", "user_message", long_id);
    append_event(fixture, "u:a:t", "user_message", "{\"text\":\"y\",\"requestId\":\"one\"}");
    read_into(fixture, "acme", "u:a:t", &dedupe);
    assert_int_equal(dedupe.upto, 6);
    assert_int_equal(ol_dedupe_seq(&dedupe, "one"), 1);
    assert_int_equal(ol_dedupe_seq(&dedupe, "edit"), 0);
    assert_int_equal(ol_dedupe_seq(&dedupe, "17"), 0);
    append_event(fixture, "u:a:t", "user_message", "{\"text\":\"z\",\"requestId\":\"two\"}");
    read_into(fixture, "acme", "u:a:t", &dedupe);
    assert_int_equal(dedupe.upto, 7);
    assert_int_equal(ol_dedupe_seq(&dedupe, "two"), 7);
    read_into(fixture, "other", "u:a:t", &other); // the key belongs to an org
    assert_int_equal(other.upto, 0);
    ol_dedupe_clear(&dedupe);
}

static void s2_only_the_first_are_cached(void **state)
{
    enum { EVENT_COUNT = OL_DEDUPE_MAX + 50 };
    struct fixture *fixture = *state;
    static struct outlog_new_event events[EVENT_COUNT];
    static struct outlog_appended appended[EVENT_COUNT];
    static char payloads[EVENT_COUNT][64];
    struct ol_dedupe dedupe = {0};
    char last[32];
    outlog_err err;

    for (int i = 0; i < EVENT_COUNT; i++) {
        snprintf(payloads[i], sizeof payloads[i], "{\"text\":\"x\",\"requestId\":\"r-%d\"}", i + 1);
        events[i] = (struct outlog_new_event){.org_id = "acme",
                                              .aggregate_type = "session",
                                              .aggregate_id = "u:a:long",
                                              .event_type = "user_message",
                                              .payload = payloads[i]};
    }
    OK(outlog_append_now(fixture->log, events, EVENT_COUNT, appended, &err));
    read_into(fixture, "acme", "u:a:long", &dedupe);
    assert_int_equal(dedupe.upto, OL_DEDUPE_MAX);
    snprintf(last, sizeof last, "r-%d", OL_DEDUPE_MAX);
    assert_int_equal(ol_dedupe_seq(&dedupe, last), OL_DEDUPE_MAX);
    snprintf(last, sizeof last, "r-%d", OL_DEDUPE_MAX + 1);
    assert_int_equal(ol_dedupe_seq(&dedupe, last), 0);
    ol_dedupe_clear(&dedupe);
}

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(s2_a_request_is_known_by_its_first_seq),
    cmocka_unit_test(s2_only_the_first_are_cached),
};

int main(void)
{
    return run_with_stores("dedupe", NULL, 0, suite, COUNT(suite));
}
