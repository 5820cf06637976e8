/* stores.h: a suite run once on SQLite and, where scripts/with-postgres gave one, once on
 * PostgreSQL.
 *
 * Each store is a new one with the schema; a test finds it in *state. */
#ifndef OL_TEST_STORES_H
#define OL_TEST_STORES_H

#include "log/log.h"
#include "store/temp_store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define OK(call) assert_true_or_say((call) >= 0, &err)

struct fixture {
    struct ol_temp_store scratch;
    char folder[64];
    outlog *log;
    struct ol_conn *conn; /* the log's */
    bool is_postgres;
    int numbers; /* for names that are the test's own */
};

static inline void assert_true_or_say(bool ok, const outlog_err *err)
{
    if (!ok)
        fail_msg("%s [%s]", err->message, outlog_code_name(err->code));
}

static inline struct fixture *fixture_open(const char *beside, const char *folder)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    outlog_err err = {0};
    if (fixture && ol_temp_store_open(beside, &fixture->scratch, &err) == 0 &&
        outlog_open(fixture->scratch.url, &fixture->log, &err) == 0 &&
        outlog_init(fixture->log, NULL, NULL, &err) == 0) {
        snprintf(fixture->folder, sizeof fixture->folder, "%s", folder);
        fixture->is_postgres = !*folder;
        fixture->conn = fixture->log->conn;
        return fixture;
    }
    fprintf(stderr, "%s\n", err.message);
    exit(1);
}

static inline void fixture_close(struct fixture *fixture)
{
    outlog_err err;
    outlog_close(fixture->log);
    ol_temp_store_close(&fixture->scratch, &err);
    if (*fixture->folder)
        rmdir(fixture->folder);
    free(fixture);
}

/* The suite with each store, after `before` (may be NULL), which needs none. How many failed. */
static inline int run_with_stores(const char *group, const struct CMUnitTest *before,
                                  size_t before_count, const struct CMUnitTest *suite, size_t count)
{
    enum { MOST = 100 };
    static struct CMUnitTest tests[MOST];
    static char names[MOST][80];
    struct fixture *fixtures[2];
    char folder[] = "/tmp/outlog-unit-XXXXXX", url[96];
    const char *postgres = getenv("OUTLOG_TEST_POSTGRES");
    size_t at = 0, stores = 0;

    if (before_count + 2 * count > MOST || !mkdtemp(folder))
        return 1;
    snprintf(url, sizeof url, "sqlite:%s/store", folder);
    fixtures[stores++] = fixture_open(url, folder);
    if (postgres)
        fixtures[stores++] = fixture_open(postgres, "");
    for (; at < before_count; at++)
        tests[at] = before[at];
    for (size_t i = 0; i < stores; i++)
        for (size_t j = 0; j < count; j++, at++) {
            snprintf(names[at], sizeof names[at], "%s: %s", i ? "postgres" : "sqlite",
                     suite[j].name);
            tests[at] = suite[j];
            tests[at].name = names[at];
            tests[at].initial_state = fixtures[i];
        }
    int failed = _cmocka_run_group_tests(group, tests, at, NULL, NULL);
    while (stores > 0)
        fixture_close(fixtures[--stores]);
    return failed;
}

#endif
