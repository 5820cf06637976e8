/* fuzz_upcast.c: whatever the steps and the payload, the result is JSON and no value is lost.
 *
 * Input of the form "upcasters NUL payload" is taken as it is; other bytes are
 * instructions that build both from few keys, so that the keys of steps often exist. */
#include "log/upcast.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(what) \
    do {              \
        if (!(what))  \
            abort();  \
    } while (0)

struct notes {
    const uint8_t *at, *end;
};

static unsigned next(struct notes *notes, unsigned below)
{
    return notes->at < notes->end ? *notes->at++ % below : 0;
}

static const char *const keys[] = {"a", "b", "c", "0", "x~1y", "\\u0061", "k~0"};
static const char *const raw_keys[] = {"a", "b", "c", "0", "x/y", "\\u0064", "k~"};
static const char *const spaces[] = {"", "", " ", "\n\t"};

static void play_value(struct notes *notes, struct ol_buf *out, int depth)
{
    unsigned kind = depth > 5 ? 0 : next(notes, 5), members = next(notes, 4),
             first = next(notes, 7);

    if (kind < 2) {
        ol_buf_text(out, kind ? "\"}\\\"{\"" : "1");
        return;
    }
    ol_buf_char(out, kind == 2 ? '[' : '{');
    for (unsigned i = 0; i < members; i++) {
        ol_buf_print(out, "%s%s", i ? "," : "", spaces[next(notes, 4)]);
        if (kind > 2)
            ol_buf_print(out, "\"%s\"%s:", raw_keys[(first + i) % 7], spaces[next(notes, 4)]);
        play_value(notes, out, depth + 1);
        ol_buf_text(out, spaces[next(notes, 4)]);
    }
    ol_buf_char(out, kind == 2 ? ']' : '}');
}

static void play_pointer(struct notes *notes, struct ol_buf *out)
{
    ol_buf_char(out, '"');
    for (unsigned left = 1 + next(notes, 3); left > 0; left--)
        ol_buf_print(out, "/%s", keys[next(notes, 7)]);
    ol_buf_char(out, '"');
}

static void play_steps(struct notes *notes, struct ol_buf *out)
{
    static const char *const ops[] = {"rename", "move", "move", "default"};

    ol_buf_text(out, "{\"1\":[");
    for (unsigned i = 0, count = 1 + next(notes, 4); i < count; i++) {
        unsigned op = next(notes, 4);
        ol_buf_print(out, "%s{\"%s\":[", i ? "," : "", ops[op]);
        play_pointer(notes, out);
        ol_buf_char(out, ',');
        if (op == 3)
            play_value(notes, out, 3);
        else
            play_pointer(notes, out);
        ol_buf_text(out, "]}");
    }
    ol_buf_text(out, "]}");
}

static size_t count_scalars(const struct ol_json *value)
{
    struct ol_json_iter it = {0};
    size_t count = value->type != OL_JSON_OBJECT && value->type != OL_JSON_ARRAY;

    while (ol_json_next(value, &it))
        count += count_scalars(&it.value);
    return count;
}

static void check(const struct ol_json *upcasters, const struct ol_json *payload)
{
    struct ol_buf out = {0};
    struct ol_json result;
    outlog_err err;
    bool is_right = ol_upcast_check(upcasters, 9, &err) == 0;

    if (ol_upcast_apply(upcasters, 1, 9, payload, &out, &err) == 0) {
        REQUIRE(ol_json_parse(out.data, out.bytes, &result, NULL) == 0);
        REQUIRE(result.bytes == out.bytes && result.type == payload->type);
        REQUIRE(count_scalars(&result) >= count_scalars(payload));
    } else {
        REQUIRE(!is_right || strncmp(err.message, "nesting too deep", 16) == 0);
        REQUIRE(out.bytes == 0);
    }
    ol_buf_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *text = (const char *)data, *nul = bytes ? memchr(text, '\0', bytes) : NULL;
    struct ol_json upcasters, payload;
    struct ol_buf steps = {0}, value = {0};

    if (nul && ol_json_parse(text, (size_t)(nul - text), &upcasters, NULL) == 0 &&
        ol_json_parse(nul + 1, bytes - (size_t)(nul + 1 - text), &payload, NULL) == 0) {
        check(&upcasters, &payload);
        return 0;
    }
    struct notes notes = {data, data + bytes};
    play_steps(&notes, &steps);
    play_value(&notes, &value, 0);
    if (ol_json_parse(steps.data, steps.bytes, &upcasters, NULL) == 0 &&
        ol_json_parse(value.data, value.bytes, &payload, NULL) == 0)
        check(&upcasters, &payload);
    ol_buf_clear(&steps);
    ol_buf_clear(&value);
    return 0;
}
