/* err.c: the one table of error codes, and the functions that fill an error. */
#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct code_info {
    const char *name; /* public and stable: SQL, CLI and HTTP show it */
    int http_status;
    bool is_retryable;
};

static const struct code_info codes[OUTLOG_CODE_COUNT] = {
    [OUTLOG_OK] = {"ok", 200, false},
    [OUTLOG_INVALID_JSON] = {"invalid_json", 400, false},
    [OUTLOG_INVALID_FIELD] = {"invalid_field", 400, false},
    [OUTLOG_UNKNOWN_FIELD] = {"unknown_field", 400, false},
    [OUTLOG_ORG_REQUIRED] = {"org_required", 400, false},
    [OUTLOG_UNKNOWN_CAUSATION] = {"unknown_causation", 400, false},
    [OUTLOG_TOO_LARGE] = {"too_large", 413, false},
    [OUTLOG_NOT_FOUND] = {"not_found", 404, false},
    [OUTLOG_SECRET_MATERIAL] = {"secret_material", 422, false},
    [OUTLOG_UNKNOWN_EVENT_TYPE] = {"unknown_event_type", 422, false},
    [OUTLOG_SEQUENCE_CONFLICT] = {"sequence_conflict", 409, false},
    [OUTLOG_ID_CONFLICT] = {"id_conflict", 409, false},
    [OUTLOG_IDEMPOTENCY_KEY_REUSE] = {"idempotency_key_reuse", 409, false},
    [OUTLOG_IDEMPOTENCY_IN_PROGRESS] = {"idempotency_in_progress", 409, true},
    [OUTLOG_ILLEGAL_TRANSITION] = {"illegal_transition", 409, false},
    [OUTLOG_BEYOND_SETTLED] = {"beyond_settled", 409, true},
    [OUTLOG_BEYOND_LOG] = {"beyond_log", 409, false},
    [OUTLOG_PROJECTION_BEHIND] = {"projection_behind", 504, true},
    [OUTLOG_NO_SCHEMA] = {"no_schema", 503, false},
    [OUTLOG_NEWER_SCHEMA] = {"newer_schema", 503, false},
    [OUTLOG_READ_ONLY] = {"read_only", 503, true},
    [OUTLOG_UNAVAILABLE] = {"unavailable", 503, true},
    [OUTLOG_OUTCOME_UNKNOWN] = {"outcome_unknown", 503, true},
    [OUTLOG_STORE_ERROR] = {"store_error", 500, false},
    [OUTLOG_NO_MEMORY] = {"no_memory", 503, true},
    [OUTLOG_MISUSE] = {"misuse", 500, false},
};

const char *outlog_code_name(enum outlog_code code)
{
    return (unsigned)code < OUTLOG_CODE_COUNT ? codes[code].name : "unknown_code";
}

bool outlog_code_is_retryable(enum outlog_code code)
{
    return (unsigned)code < OUTLOG_CODE_COUNT && codes[code].is_retryable;
}

int ol_err_http_status(enum outlog_code code)
{
    return (unsigned)code < OUTLOG_CODE_COUNT ? codes[code].http_status : 500;
}

enum outlog_code ol_err_code_by_name(const char *name, size_t bytes)
{
    for (int code = 1; code < OUTLOG_CODE_COUNT; code++)
        if (strlen(codes[code].name) == bytes && memcmp(codes[code].name, name, bytes) == 0)
            return (enum outlog_code)code;
    return OUTLOG_OK;
}

/* Text that was cut to fit must not end inside a UTF-8 character: it is sent as JSON later. */
static void trim_utf8(char *text)
{
    size_t bytes = strlen(text), at = bytes;

    while (at > 0 && bytes - at < 4 && ((unsigned char)text[at - 1] & 0xC0) == 0x80)
        at--;
    if (at == 0)
        return;
    unsigned char lead = (unsigned char)text[at - 1];
    size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (bytes - (at - 1) < wanted)
        text[at - 1] = '\0';
}

/* A pointer that does not fit loses whole tokens: it names an ancestor, never another field. */
static void copy_pointer(char *to, size_t size, const char *pointer)
{
    size_t bytes = strlen(pointer);

    if (bytes >= size)
        for (bytes = size - 1; bytes > 0 && pointer[bytes] != '/'; bytes--)
            ;
    memcpy(to, pointer, bytes);
    to[bytes] = '\0';
}

__attribute__((format(printf, 4, 0))) static void fill_err(outlog_err *err, enum outlog_code code,
                                                           const char *pointer, const char *format,
                                                           va_list args)
{
    if (!err)
        return;
    *err = (outlog_err){.code = code, .index = -1};
    if (vsnprintf(err->message, sizeof err->message, format, args) >= (int)sizeof err->message)
        trim_utf8(err->message);
    ol_utf8_repair(err->message, strlen(err->message));
    copy_pointer(err->pointer, sizeof err->pointer, pointer);
    ol_utf8_repair(err->pointer, strlen(err->pointer));
}

int ol_fail(outlog_err *err, enum outlog_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill_err(err, code, "", format, args);
    va_end(args);
    return -1;
}

int ol_fail_at(outlog_err *err, enum outlog_code code, const char *pointer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fill_err(err, code, pointer, format, args);
    va_end(args);
    return -1;
}

int ol_no_memory(outlog_err *err)
{
    return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
}

void ol_err_prefix(outlog_err *err, const char *format, ...)
{
    if (!err)
        return;
    char prefix[160];
    va_list args;
    va_start(args, format);
    if (vsnprintf(prefix, sizeof prefix - 2, format, args) >= (int)sizeof prefix - 2)
        trim_utf8(prefix);
    va_end(args);
    size_t more = strlen(prefix);
    memcpy(prefix + more, ": ", sizeof ": "); // two bytes were left for it
    more += strlen(": ");
    size_t bytes = strlen(err->message);
    bool fits = more + bytes < sizeof err->message;
    if (!fits)
        bytes = sizeof err->message - 1 - more;
    memmove(err->message + more, err->message, bytes);
    memcpy(err->message, prefix, more);
    err->message[more + bytes] = '\0';
    if (!fits)
        trim_utf8(err->message);
    ol_utf8_repair(err->message, strlen(err->message));
}

void ol_err_point_below(outlog_err *err, const char *base)
{
    char pointer[2 * sizeof err->pointer];
    if (!err)
        return;
    snprintf(pointer, sizeof pointer, "%s%s", base, err->pointer);
    copy_pointer(err->pointer, sizeof err->pointer, pointer);
}
