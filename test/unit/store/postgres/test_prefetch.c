/* test_prefetch.c: queries that run behind another statement. Needs PostgreSQL. */
#include "store/postgres/prefetch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ol_prefetch_key lane_7 = {.id = 1, .count = 1, .numbers = {7}};

static int connect_postgres(void **state)
{
    PGconn *pg = PQconnectdb(getenv("OUTLOG_TEST_POSTGRES"));
    if (PQstatus(pg) != CONNECTION_OK)
        return -1;
    PQclear(PQexec(pg, "create temporary table rows (n bigint)"));
    PQclear(PQprepare(pg, "put", "insert into rows values (1)", 0, NULL));
    PQclear(PQprepare(pg, "count", "select count(*) + $1 from rows", 1, (const Oid[]){20}));
    PQclear(PQprepare(pg, "fail", "select 1 / $1", 1, (const Oid[]){20}));
    *state = pg;
    return 0;
}

static int disconnect(void **state)
{
    PQfinish(*state);
    return 0;
}

static void run_put(struct ol_prefetch *prefetch, PGconn *pg)
{
    PGresult *result =
        ol_prefetch_execute(prefetch, pg, &(struct ol_prefetch_statement){.name = "put"});
    assert_int_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
}

static void assert_count(PGresult *answer, unsigned char count)
{
    assert_non_null(answer);
    assert_int_equal(PQgetvalue(answer, 0, 0)[7], count); // bigint, big-endian
    PQclear(answer);
}

static void a_prefetched_answer_sees_the_statement_before_it(void **state)
{
    struct ol_prefetch prefetch = {0};
    PGconn *pg = *state;
    ol_prefetch_request(&prefetch, "count", &lane_7);
    assert_true(ol_prefetch_is_busy(&prefetch));
    run_put(&prefetch, pg);
    assert_count(ol_prefetch_take(&prefetch, pg, &lane_7), 1 + 7);
    assert_null(ol_prefetch_take(&prefetch, pg, &lane_7)); // it is given away once
    assert_false(ol_prefetch_is_busy(&prefetch));
    ol_prefetch_finish(&prefetch, pg);
    assert_int_equal(PQpipelineStatus(pg), PQ_PIPELINE_OFF);
}

static void another_query_of_the_same_subject_drops_the_answer(void **state)
{
    struct ol_prefetch prefetch = {0};
    struct ol_prefetch_key other = lane_7;
    PGconn *pg = *state;
    other.statement_key = 1;
    ol_prefetch_request(&prefetch, "count", &lane_7);
    run_put(&prefetch, pg);
    assert_null(ol_prefetch_take(&prefetch, pg, &other));
    assert_null(ol_prefetch_take(&prefetch, pg, &lane_7));
    ol_prefetch_finish(&prefetch, pg);
}

static void a_failed_prefetch_fails_nothing_else(void **state)
{
    struct ol_prefetch prefetch = {0};
    struct ol_prefetch_key zero = {.id = 2, .count = 1};
    PGconn *pg = *state;
    ol_prefetch_request(&prefetch, "fail", &zero);
    run_put(&prefetch, pg);
    run_put(&prefetch, pg);
    assert_null(ol_prefetch_take(&prefetch, pg, &zero));
    ol_prefetch_finish(&prefetch, pg);
}

static void finish_leaves_a_usable_connection(void **state)
{
    struct ol_prefetch prefetch = {0};
    PGconn *pg = *state;
    ol_prefetch_request(&prefetch, "count", &lane_7);
    run_put(&prefetch, pg);
    ol_prefetch_finish(&prefetch, pg); // with an answer in flight
    PGresult *result = PQexec(pg, "select 1");
    assert_int_equal(PQresultStatus(result), PGRES_TUPLES_OK);
    PQclear(result);
    ol_prefetch_drop(&prefetch);
    assert_null(ol_prefetch_take(&prefetch, pg, &lane_7));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_prefetched_answer_sees_the_statement_before_it,
                                        connect_postgres, disconnect),
        cmocka_unit_test_setup_teardown(another_query_of_the_same_subject_drops_the_answer,
                                        connect_postgres, disconnect),
        cmocka_unit_test_setup_teardown(a_failed_prefetch_fails_nothing_else, connect_postgres,
                                        disconnect),
        cmocka_unit_test_setup_teardown(finish_leaves_a_usable_connection, connect_postgres,
                                        disconnect),
    };
    size_t count = getenv("OUTLOG_TEST_POSTGRES") ? sizeof tests / sizeof *tests : 0;
    return _cmocka_run_group_tests("prefetch", tests, count, NULL, NULL);
}
