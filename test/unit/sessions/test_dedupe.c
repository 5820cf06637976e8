/* test_heard.c: what a session has heard, read from both stores. */
#include "sessions/dedupe.h"
#include "stores.h"

static void append(struct fixture *fixture, const char *key, const char *type, const char *payload)
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

/* Read what comes after `heard`, into it. */
static void hear(struct fixture *fixture, const char *org_id, const char *key,
                 struct ol_dedupe *heard)
{
    struct ol_arena arena = {0};
    struct ol_dedupe_entry *said;
    outlog_err err;
    OK(ol_dedupe_read(fixture->log, org_id, key, heard->upto, &arena, &said, &err));
    for (; said; said = said->next)
        assert_true(ol_dedupe_add(heard, said->request_id, said->seq));
    ol_arena_clear(&arena);
}

static void s2_a_request_is_known_by_its_first_seq(void **state)
{
    struct fixture *fixture = *state;
    struct ol_dedupe heard = {0}, other = {0};
    char long_id[300];

    snprintf(long_id, sizeof long_id, "{\"text\":\"x\",\"requestId\":\"%0256d\"}", 7);
    append(fixture, "u:a:t", "user_message", "{\"text\":\"x\",\"requestId\":\"one\"}");
    append(fixture, "u:a:t", "user_edit", "{\"text\":\"x\",\"requestId\":\"edit\"}");
    append(fixture, "u:a:t", "user_message", "{\"text\":\"x\"}");
    append(fixture, "u:a:t", "user_message", "{\"requestId\":17}");
    append(fixture, "u:a:t", "user_message", long_id);
    append(fixture, "u:a:t", "user_message", "{\"text\":\"y\",\"requestId\":\"one\"}");
    hear(fixture, "acme", "u:a:t", &heard);
    assert_int_equal(heard.upto, 6);
    assert_int_equal(ol_dedupe_seq(&heard, "one"), 1);
    assert_int_equal(ol_dedupe_seq(&heard, "edit"), 0);
    assert_int_equal(ol_dedupe_seq(&heard, "17"), 0);
    append(fixture, "u:a:t", "user_message", "{\"text\":\"z\",\"requestId\":\"two\"}");
    hear(fixture, "acme", "u:a:t", &heard);
    assert_int_equal(heard.upto, 7);
    assert_int_equal(ol_dedupe_seq(&heard, "two"), 7);
    hear(fixture, "other", "u:a:t", &other); // the key belongs to an org
    assert_int_equal(other.upto, 0);
    ol_dedupe_clear(&heard);
}

static void s2_only_the_first_are_known_by_heart(void **state)
{
    enum { COUNT_SAID = OL_DEDUPE_MAX + 50 };
    struct fixture *fixture = *state;
    static struct outlog_new_event events[COUNT_SAID];
    static struct outlog_appended appended[COUNT_SAID];
    static char payloads[COUNT_SAID][64];
    struct ol_dedupe heard = {0};
    char last[32];
    outlog_err err;

    for (int i = 0; i < COUNT_SAID; i++) {
        snprintf(payloads[i], sizeof payloads[i], "{\"text\":\"x\",\"requestId\":\"r-%d\"}", i + 1);
        events[i] = (struct outlog_new_event){.org_id = "acme",
                                              .aggregate_type = "session",
                                              .aggregate_id = "u:a:long",
                                              .event_type = "user_message",
                                              .payload = payloads[i]};
    }
    OK(outlog_append_now(fixture->log, events, COUNT_SAID, appended, &err));
    hear(fixture, "acme", "u:a:long", &heard);
    assert_int_equal(heard.upto, OL_DEDUPE_MAX);
    snprintf(last, sizeof last, "r-%d", OL_DEDUPE_MAX);
    assert_int_equal(ol_dedupe_seq(&heard, last), OL_DEDUPE_MAX);
    snprintf(last, sizeof last, "r-%d", OL_DEDUPE_MAX + 1);
    assert_int_equal(ol_dedupe_seq(&heard, last), 0);
    ol_dedupe_clear(&heard);
}

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(s2_a_request_is_known_by_its_first_seq),
    cmocka_unit_test(s2_only_the_first_are_known_by_heart),
};

int main(void)
{
    return run_with_stores("heard", NULL, 0, suite, COUNT(suite));
}
