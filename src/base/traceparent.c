/* traceparent.c: checking and making W3C trace context. All digits are lower case. */
#include "base/traceparent.h"

#include "base/json/json.h"
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

static bool is_hex(const char *text, size_t bytes)
{
    return strspn(text, "0123456789abcdef") >= bytes;
}

static bool is_zero(const char *text, size_t bytes)
{
    return strspn(text, "0") >= bytes;
}

bool ol_traceparent_is_valid(const char *text)
{
    if (strlen(text) < 55 || !is_hex(text, 2) || memcmp(text, "ff", 2) == 0)
        return false;
    /* A later version may have more fields after the flags; version 00 may not. */
    if (text[55] != '\0' && (text[55] != '-' || memcmp(text, "00", 2) == 0))
        return false;
    return text[2] == '-' && is_hex(text + 3, 32) && !is_zero(text + 3, 32) && text[35] == '-' &&
           is_hex(text + 36, 16) && !is_zero(text + 36, 16) && text[52] == '-' &&
           is_hex(text + 53, 2);
}

bool ol_traceparent_is_sampled(const char *text)
{
    return strchr("13579bdf", text[54]) != NULL;
}

/* The id is never all zeros in practice: it is the start of a hash. */
void ol_traceparent_make_span_id(const char *what, const char *id, int number,
                                 char out[OL_TRACEPARENT_SPAN_TEXT])
{
    char text[160], hash[OL_SHA256_TEXT];
    int bytes = snprintf(text, sizeof text, "%.40s %.80s %d", what, id, number);
    ol_sha256_hex(text, (size_t)bytes, hash);
    snprintf(out, OL_TRACEPARENT_SPAN_TEXT, "%.16s", hash);
}

/* A UUID becomes the trace id as it is, so that people find the one by the other. */
void ol_traceparent_make_trace_id(const char *correlation_id, char out[OL_TRACEPARENT_TRACE_TEXT])
{
    char hash[OL_SHA256_TEXT], digits[OL_TRACEPARENT_TRACE_TEXT];
    size_t count = 0;
    for (const char *c = correlation_id; *c && count < 32; c++)
        if (*c != '-')
            digits[count++] = *c;
    digits[count] = '\0';
    if (strlen(correlation_id) == 36 && count == 32 && is_hex(digits, 32) && !is_zero(digits, 32)) {
        memcpy(out, digits, sizeof digits);
        return;
    }
    ol_sha256_hex(correlation_id, strlen(correlation_id), hash);
    snprintf(out, OL_TRACEPARENT_TRACE_TEXT, "%.32s", hash);
}

/* Made ones are sampled: a receiver that follows its caller's decision must not lose its own spans
 * because nobody traced the append. */
const char *ol_traceparent_of(const char *given, const char *correlation_id, const char *message_id,
                              char made[OL_TRACEPARENT_TEXT])
{
    char trace_id[OL_TRACEPARENT_TRACE_TEXT], span_id[OL_TRACEPARENT_SPAN_TEXT];
    if (given && ol_traceparent_is_valid(given))
        return given;
    ol_traceparent_make_trace_id(correlation_id ? correlation_id : message_id, trace_id);
    ol_traceparent_make_span_id("origin", message_id, 0, span_id);
    snprintf(made, OL_TRACEPARENT_TEXT, "00-%s-%s-01", trace_id, span_id);
    return made;
}

bool ol_traceparent_next(const char *from, const char *message_id, int attempt,
                         char out[OL_TRACEPARENT_TEXT])
{
    char span[OL_TRACEPARENT_SPAN_TEXT];
    if (!from || !ol_traceparent_is_valid(from))
        return false;
    ol_traceparent_make_span_id("publish", message_id, attempt, span);
    snprintf(out, OL_TRACEPARENT_TEXT, "00-%.32s-%s-%.2s", from + 3, span, from + 53);
    return true;
}

const char *ol_traceparent_find(const char *metadata, struct ol_arena *arena)
{
    struct ol_json object, member;
    if (!metadata || ol_json_parse(metadata, strlen(metadata), &object, NULL) < 0)
        return NULL;
    member = ol_json_get(&object, "traceparent");
    return ol_json_string(&member, arena, NULL);
}

const char *ol_traceparent_store(const char *traceparent, const char *metadata,
                                 struct ol_arena *arena)
{
    struct ol_json object;
    struct ol_json_iter it = {0};

    if (!metadata)
        return ol_arena_print(arena, "{\"traceparent\":\"%.55s\"}", traceparent);
    if (ol_json_parse(metadata, strlen(metadata), &object, NULL) < 0 ||
        object.type != OL_JSON_OBJECT || ol_json_get(&object, "traceparent").type != OL_JSON_NONE)
        return metadata;
    return ol_arena_print(arena, "{\"traceparent\":\"%.55s\"%s%.*s", traceparent,
                          ol_json_next(&object, &it) ? "," : "", (int)object.bytes - 1,
                          object.text + 1);
}
