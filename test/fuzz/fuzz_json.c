/* fuzz_json.c: our JSON parser compared with jansson, and with its own output. `scripts/fuzz json`
 * runs it. */
#include "base/json/json.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(what) \
    do {              \
        if (!(what))  \
            abort();  \
    } while (0)

/* Whole numbers as reals: jansson has no others beyond 64 bits. */
enum { FLAGS = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL };

static json_t *peer_parse(const char *text, size_t bytes, bool *is_overflow)
{
    json_error_t error;
    json_t *json = json_loadb(text, bytes, FLAGS, &error);
    *is_overflow = !json && json_error_code(&error) == json_error_numeric_overflow;
    return json;
}

/* Every value can be found again by its pointer, and is a text of its own. */
static void walk(const struct ol_json *root, const struct ol_json *value, int depth)
{
    struct ol_json_iter it = {0};
    struct ol_arena arena = {0};
    char pointer[4096];

    while (ol_json_next(value, &it)) {
        struct ol_json again;
        REQUIRE(ol_json_parse(it.value.text, it.value.bytes, &again, NULL) == 0);
        REQUIRE(again.text == it.value.text && again.bytes == it.value.bytes);
        ol_json_pointer(root, it.value.text, pointer, sizeof pointer);
        if (strlen(pointer) < sizeof pointer / 2)
            REQUIRE(ol_json_at(root, pointer).text == it.value.text);
        if (value->type == OL_JSON_OBJECT) {
            char *key = ol_json_string(&it.key, &arena, NULL);
            REQUIRE(key && ol_json_equals(&it.key, key));
            REQUIRE(ol_json_get(value, key).text == it.value.text);
        }
        if (depth < 6)
            walk(root, &it.value, depth + 1);
    }
    ol_arena_clear(&arena);
}

static void check_normal_form(const struct ol_json *value, json_t *peer)
{
    struct ol_buf once = {0}, twice = {0};
    struct ol_json normal;
    bool is_overflow;

    REQUIRE(ol_json_canonical(value, &once) == 0);
    REQUIRE(ol_json_parse(once.data, once.bytes, &normal, NULL) == 0);
    REQUIRE(ol_json_canonical(&normal, &twice) == 0);
    REQUIRE(once.bytes == twice.bytes && memcmp(once.data, twice.data, once.bytes) == 0);
    if (peer) {
        json_t *other = peer_parse(once.data, once.bytes, &is_overflow);
        REQUIRE(json_equal(peer, other));
        json_decref(other);
    }
    ol_buf_clear(&once);
    ol_buf_clear(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data;
    struct ol_json value;
    outlog_err err;
    bool is_overflow;

    if (bytes == 0)
        return 0;
    json_t *peer = peer_parse(text, bytes, &is_overflow);
    if (ol_json_parse(text, bytes, &value, &err) == 0) {
        REQUIRE(peer || is_overflow);
        check_normal_form(&value, peer);
        if (bytes < 4096)
            walk(&value, &value, 0);
    } else {
        REQUIRE(err.code == OUTLOG_INVALID_JSON && err.message[0] && strlen(err.pointer) < 160);
        REQUIRE(!peer || strncmp(err.message, "nesting too deep", 16) == 0 ||
                memchr(text, '\0', bytes)); // jansson takes a NUL after the value for the end
    }
    json_decref(peer);
    return 0;
}
