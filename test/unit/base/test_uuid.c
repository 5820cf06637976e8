/* test_uuid.c: UUIDv7 in order, alone, among threads and after a fork. */
#include "base/uuid.h"

#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void uuid_has_version_7_and_the_time(void **state)
{
    char text[OL_UUID_TEXT], again[OL_UUID_TEXT];
    uint8_t bytes[16];
    uint64_t ms = 0;
    (void)state;
    uint64_t before = (uint64_t)ol_clock_wall_us() / 1000;
    ol_uuid_make(text);
    ol_uuid_to_bytes(text, bytes);
    for (int i = 0; i < 6; i++)
        ms = ms << 8 | bytes[i];
    assert_true(ms >= before && ms <= before + 10000);
    assert_int_equal(bytes[6] >> 4, 7);
    assert_int_equal(bytes[8] >> 6, 2);
    assert_true(ol_uuid_parse(text, again));
    assert_string_equal(text, again);
}

static void later_uuids_sort_higher(void **state)
{
    char last[OL_UUID_TEXT] = "", next[OL_UUID_TEXT];
    (void)state;
    for (int i = 0; i < 200000; i++) {
        ol_uuid_make(next);
        assert_true(strcmp(last, next) < 0);
        memcpy(last, next, sizeof last);
    }
}

enum { THREADS = 4, EACH = 20000 };

static void *make_many(void *out)
{
    char(*texts)[OL_UUID_TEXT] = out;
    for (int i = 0; i < EACH; i++)
        ol_uuid_make(texts[i]);
    return NULL;
}

static int by_text(const void *a, const void *b)
{
    return memcmp(a, b, OL_UUID_TEXT);
}

static void threads_never_make_the_same_uuid(void **state)
{
    char(*texts)[OL_UUID_TEXT] = calloc(THREADS * EACH, sizeof *texts);
    pthread_t threads[THREADS];
    (void)state;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, make_many, texts + i * EACH);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    qsort(texts, THREADS * EACH, sizeof *texts, by_text);
    for (int i = 1; i < THREADS * EACH; i++)
        assert_true(strcmp(texts[i - 1], texts[i]) < 0);
    free(texts);
}

/* Parent and child share the pool's bytes at the fork; they must not use them twice. */
static void fork_does_not_repeat_a_uuid(void **state)
{
    char mine[64][OL_UUID_TEXT], theirs[64][OL_UUID_TEXT];
    int pipes[2];
    (void)state;
    ol_uuid_make(mine[0]);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < COUNT(theirs); i++)
            ol_uuid_make(theirs[i]);
        _exit(write(pipes[1], theirs, sizeof theirs) == (ssize_t)sizeof theirs ? 0 : 1);
    }
    for (size_t i = 0; i < COUNT(mine); i++)
        ol_uuid_make(mine[i]);
    assert_int_equal(read(pipes[0], theirs, sizeof theirs), sizeof theirs);
    waitpid(child, NULL, 0);
    for (size_t i = 0; i < COUNT(mine); i++)
        for (size_t j = 0; j < COUNT(theirs); j++) // not even the random tail
            assert_string_not_equal(mine[i] + 24, theirs[j] + 24);
    close(pipes[0]);
    close(pipes[1]);
}

static void only_the_usual_form_is_a_uuid(void **state)
{
    static const char *const wrong[] = {
        "",
        "018f3a2e",
        "018f3a2e7c1b7d3e9a550c2f6e1b9d10",
        "018f3a2e-7c1b-7d3e-9a55-0c2f6e1b9d1",
        "018f3a2e-7c1b-7d3e-9a55-0c2f6e1b9d100",
        "018f3a2e-7c1b-7d3e-9a550-c2f6e1b9d10",
        "{018f3a2e-7c1b-7d3e-9a55-0c2f6e1b9d10}",
        "018f3a2g-7c1b-7d3e-9a55-0c2f6e1b9d10",
        "018f3a2e-7c1b-7d3e-9a55-0c2f6e1b9d10 ",
        "018f3a2e_7c1b-7d3e-9a55-0c2f6e1b9d10",
    };
    char out[OL_UUID_TEXT];
    (void)state;
    assert_true(ol_uuid_parse("018F3A2E-7c1b-7D3e-9a55-0C2f6e1b9d1F", out));
    assert_string_equal(out, "018f3a2e-7c1b-7d3e-9a55-0c2f6e1b9d1f");
    for (size_t i = 0; i < COUNT(wrong); i++)
        assert_false(ol_uuid_parse(wrong[i], out));
}

static void bytes_and_text_are_the_same_uuid(void **state)
{
    static const uint8_t bytes[16] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77,
                                      0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff};
    uint8_t back[16];
    char text[OL_UUID_TEXT];
    (void)state;
    ol_uuid_from_bytes(bytes, text);
    assert_string_equal(text, "00112233-4455-6677-8899-aabbccddeeff");
    ol_uuid_to_bytes(text, back);
    assert_memory_equal(back, bytes, sizeof bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uuid_has_version_7_and_the_time),
        cmocka_unit_test(later_uuids_sort_higher),
        cmocka_unit_test(threads_never_make_the_same_uuid),
        cmocka_unit_test(fork_does_not_repeat_a_uuid),
        cmocka_unit_test(only_the_usual_form_is_a_uuid),
        cmocka_unit_test(bytes_and_text_are_the_same_uuid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
