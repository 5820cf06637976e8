/* Reading the command line: options, words, and the values that commands share. */
#include "cli/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS_MAX = 16 };

/* A command line, and where its options go. */
struct fixture {
    struct ol_cli cli;
    char *argv[WORDS_MAX];
    const char *org;
    int64_t limit;
    bool follow, has_limit;
};

static int read_line(struct fixture *f, const char *const *words)
{
    *f = (struct fixture){.limit = 100};
    f->cli = (struct ol_cli){.store = "sqlite:outlog.db", .argv = f->argv};
    for (int i = 0; words[i]; i++)
        f->argv[f->cli.argc++] = (char *)(uintptr_t)words[i];
    const struct ol_option options[] = {{"org", OL_OPTION_STRING, &f->org, NULL},
                                        {"limit", OL_OPTION_NUMBER, &f->limit, &f->has_limit},
                                        {"follow", OL_OPTION_FLAG, &f->follow, NULL},
                                        {"f", OL_OPTION_STRING, &f->org, NULL},
                                        {0}};
    return ol_cli_options(&f->cli, options);
}
#define READ(f, ...) read_line(f, (const char *const[]){__VA_ARGS__, NULL})

static void options_are_read_before_and_after_words(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "--org", "acme", "show", "--limit=7", "o-1", "--follow"), 0);
    assert_string_equal(f.org, "acme");
    assert_int_equal(f.limit, 7);
    assert_true(f.follow && f.has_limit);
    assert_int_equal(f.cli.argc, 2);
    assert_string_equal(f.cli.argv[0], "show");
    assert_string_equal(f.cli.argv[1], "o-1");
}

static void an_option_that_is_not_given_keeps_its_value(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "show"), 0);
    assert_int_equal(f.limit, 100);
    assert_false(f.follow || f.has_limit);
    assert_null(f.org);
    assert_int_equal(f.cli.store_from, OL_FROM_DEFAULT);
}

static void global_options_belong_to_every_command(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "--store", "postgres://db/app", "--json"), 0);
    assert_string_equal(f.cli.store, "postgres://db/app");
    assert_int_equal(f.cli.store_from, OL_FROM_FLAG);
    assert_true(f.cli.json);
}

static void two_dashes_end_the_options(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "--follow", "--", "--org", "-x"), 0);
    assert_true(f.follow);
    assert_int_equal(f.cli.argc, 2);
    assert_string_equal(f.cli.argv[0], "--org");
    assert_string_equal(f.cli.argv[1], "-x");
}

static void one_letter_is_an_option_only_where_the_command_has_it(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "-f", "file.yaml"), 0);
    assert_string_equal(f.org, "file.yaml");
    assert_int_equal(READ(&f, "-x"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "-"), 0); // standard input
    assert_int_equal(f.cli.argc, 1);
}

static void wrong_options_are_wrong_usage(void **state)
{
    struct fixture f;
    (void)state;
    assert_int_equal(READ(&f, "--unknown"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--org"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--follow=yes"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--limit", "many"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--limit", "7x"), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--limit="), OL_EXIT_USAGE);
    assert_int_equal(READ(&f, "--limit", "99999999999999999999"), OL_EXIT_USAGE);
}

static void aggregates_and_actors_are_split_at_the_first_separator(void **state)
{
    struct ol_cli cli = {0};
    const char *type = NULL, *id = NULL;
    (void)state;
    assert_int_equal(ol_cli_aggregate(&cli, "order/o-1/a", &type, &id), 0);
    assert_string_equal(type, "order");
    assert_string_equal(id, "o-1/a");
    assert_int_equal(ol_cli_actor(&cli, "user:u:7", &type, &id), 0);
    assert_string_equal(type, "user");
    assert_string_equal(id, "u:7");
    assert_int_equal(ol_cli_actor(&cli, NULL, &type, &id), 0);
    assert_string_equal(type, "user");
    static const char *const wrong[] = {"order", "/o-1", "order/", ""};
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(ol_cli_aggregate(&cli, wrong[i], &type, &id), OL_EXIT_USAGE);
    ol_arena_clear(&cli.arena);
}

static void an_event_id_is_a_whole_number_from_zero(void **state)
{
    int64_t id;
    (void)state;
    assert_true(ol_cli_event_id("0", &id) && id == 0);
    assert_true(ol_cli_event_id("9223372036854775807", &id) && id == INT64_MAX);
    assert_false(ol_cli_event_id("-1", &id));
    assert_false(ol_cli_event_id("1a", &id));
    assert_false(ol_cli_event_id("", &id));
    assert_false(ol_cli_event_id("9223372036854775808", &id));
}

static void a_time_is_rfc_3339_or_a_span_back_from_now(void **state)
{
    int64_t at, hour_ago, now;
    (void)state;
    assert_int_equal(ol_cli_time("1970-01-01T00:00:01Z", &at), 0);
    assert_int_equal(at, 1000000);
    assert_int_equal(ol_cli_time("1h", &hour_ago), 0);
    assert_int_equal(ol_cli_time("0s", &now), 0);
    assert_true(now - hour_ago >= INT64_C(3600000000) && now - hour_ago < INT64_C(3660000000));
    assert_int_equal(ol_cli_time("yesterday", &at), -1);
}

static int run_nothing(struct ol_cli *cli, outlog *log, void *args, outlog_err *err)
{
    (void)cli;
    (void)log;
    (void)args;
    (void)err;
    return 0;
}

static int find_verb(const char *const *words, const struct ol_cli_verb **out, int64_t *event_id)
{
    static const struct ol_cli_verb verbs[] = {
        {"create", 2, run_nothing, "consumers create NAME"},
        {"commit", 3, run_nothing, "consumers commit NAME EVENT_ID"},
        {NULL, 0, run_nothing, NULL},
    };
    struct ol_cli cli = {.argv = (char **)(uintptr_t)words};
    while (words[cli.argc])
        cli.argc++;
    return ol_cli_verb(&cli, verbs, out, event_id);
}
#define VERB(...) find_verb((const char *const[]){__VA_ARGS__}, &verb, &event_id)

static void a_verb_is_found_by_its_words(void **state)
{
    const struct ol_cli_verb *verb;
    int64_t event_id = -1;
    (void)state;
    assert_int_equal(VERB("create", "billing", NULL), 0);
    assert_string_equal(verb->name, "create");
    assert_int_equal(event_id, -1);
    assert_int_equal(VERB("commit", "billing", "42", NULL), 0);
    assert_int_equal(event_id, 42);
    assert_int_equal(VERB(NULL), 0);
    assert_null(verb->name);
    assert_int_equal(VERB("create", NULL), OL_EXIT_USAGE);
    assert_int_equal(VERB("commit", "billing", "x", NULL), OL_EXIT_USAGE);
    assert_int_equal(VERB("destroy", "billing", NULL), OL_EXIT_USAGE);
}

static void a_value_may_be_restricted_to_words(void **state)
{
    static const char *const words[] = {"PENDING", "DEAD", NULL};
    (void)state;
    assert_int_equal(ol_cli_one_of("state", "DEAD", words), 0);
    assert_int_equal(ol_cli_one_of("state", NULL, words), 0);
    assert_int_equal(ol_cli_one_of("state", "dead", words), OL_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_read_before_and_after_words),
        cmocka_unit_test(an_option_that_is_not_given_keeps_its_value),
        cmocka_unit_test(global_options_belong_to_every_command),
        cmocka_unit_test(two_dashes_end_the_options),
        cmocka_unit_test(one_letter_is_an_option_only_where_the_command_has_it),
        cmocka_unit_test(wrong_options_are_wrong_usage),
        cmocka_unit_test(aggregates_and_actors_are_split_at_the_first_separator),
        cmocka_unit_test(an_event_id_is_a_whole_number_from_zero),
        cmocka_unit_test(a_time_is_rfc_3339_or_a_span_back_from_now),
        cmocka_unit_test(a_verb_is_found_by_its_words),
        cmocka_unit_test(a_value_may_be_restricted_to_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
