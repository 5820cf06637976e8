/* command.c: reads and checks a command and makes it idempotent. A function of the database then
 * changes the rows where the store has functions, transition.c elsewhere. */
#include "runs/command.h"

#include "base/uuid.h"
#include "run_transitions.h"
#include "runs/transition.h"
#include "store/store.h"

#include <stdio.h>
#include <string.h>

/* --- the verbs and their bodies --- */

enum body_type { BODY_TEXT, BODY_COUNT, BODY_FROM_1, BODY_ANY, BODY_OBJECT };

struct body_member {
    const char *name; /* NULL ends the list */
    enum body_type type;
    bool is_required;
    size_t max; /* bytes of a text; 0: those of a payload. The largest number; 0: any */
};

/* From sql/schema/run_transitions.json. */
static const struct run_verb {
    const char *name, *target;
    struct body_member members[10];
} verbs[OL_RUN_VERB_COUNT] = {OL_RUN_VERBS};

int ol_run_verb(const char *name)
{
    for (int i = 0; i < OL_RUN_VERB_COUNT; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return i;
    return -1;
}

const char *ol_run_verb_target(enum ol_run_verb verb)
{
    return verbs[verb].target;
}

/* --- the body --- */

static const struct body_member *find_member(const struct run_verb *verb, const struct ol_json *key)
{
    const struct body_member *member = verb->members;
    while (member->name && !ol_json_equals(key, member->name))
        member++;
    return member->name ? member : NULL;
}

static int fail_member(const char *name, const char *wanted, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", name);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s %s", name, wanted);
}

static int check_text(const struct body_member *member, const struct ol_json *value,
                      struct ol_arena *arena, outlog_err *err)
{
    char wanted[64];
    size_t bytes;
    const char *text = ol_json_string(value, arena, &bytes);
    if (!text)
        return fail_member(member->name, "must be a string", err);
    if (bytes >= 1 && (!member->max || bytes <= member->max))
        return 0;
    if (bytes == 0 && strcmp(member->name, "org_id") == 0) // the same error as for an event
        return ol_fail_at(err, OUTLOG_ORG_REQUIRED, "/org_id",
                          "org_id is missing; give one, or null for an infrastructure event");
    snprintf(wanted, sizeof wanted, "must have 1 to %zu bytes, it has %zu",
             member->max ? member->max : 262144, bytes);
    return fail_member(member->name, wanted, err);
}

static int check_number(const struct body_member *member, const struct ol_json *value,
                        outlog_err *err)
{
    int64_t number, min = member->type == BODY_FROM_1 ? 1 : 0;
    char wanted[64], to[32] = "";
    if (ol_json_int(value, &number) && number >= min &&
        (!member->max || number <= (int64_t)member->max))
        return 0;
    if (member->max)
        snprintf(to, sizeof to, " to %zu", member->max);
    snprintf(wanted, sizeof wanted, "must be a whole number from %lld%s", (long long)min, to);
    return fail_member(member->name, wanted, err);
}

static int check_member(const struct body_member *member, const struct ol_json *value,
                        struct ol_arena *arena, outlog_err *err)
{
    if (member->type == BODY_ANY)
        return 0;
    if (value->type == OL_JSON_NULL)
        return member->is_required ? fail_member(member->name, "is required", err) : 0;
    if (member->type == BODY_COUNT || member->type == BODY_FROM_1)
        return check_number(member, value, err);
    if (member->type == BODY_OBJECT && value->type != OL_JSON_OBJECT)
        return fail_member(member->name, "must be a JSON object", err);
    return member->type == BODY_TEXT ? check_text(member, value, arena, err) : 0;
}

static int check_body(const struct run_verb *verb, const struct ol_json *body,
                      struct ol_arena *arena, outlog_err *err)
{
    struct ol_json_iter it = {0};
    if (body->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "the body of %s is a JSON object", verb->name);
    while (ol_json_next(body, &it)) {
        const struct body_member *member = find_member(verb, &it.key);
        if (!member)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "%s has no field %.*s", verb->name,
                           (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
        if (check_member(member, &it.value, arena, err) < 0)
            return -1;
    }
    for (const struct body_member *member = verb->members; member->name; member++)
        if (member->is_required && ol_json_get(body, member->name).type == OL_JSON_NONE)
            return fail_member(member->name, "is required", err);
    return 0;
}

/* A caller that is bound to an org creates nothing in another org, nor without one. */
static int check_org(const struct ol_run_call *call, const struct ol_json *body, outlog_err *err)
{
    struct ol_json given = ol_json_get(body, "org_id");
    if (!call->org_id || given.type == OL_JSON_NONE || ol_json_equals(&given, call->org_id))
        return 0;
    return fail_member("org_id", "is another org than the caller's", err);
}

/* --- executing it --- */

/* The command is a function of the database. */
static int call_function(outlog_tx *tx, const struct ol_run_call *call, const struct ol_json *body,
                         struct ol_buf *answer, bool *replayed, outlog_err *err)
{
    struct ol_rows rows;
    size_t bytes;
    if (call->traceparent &&
        ol_store_exec(tx->conn, OL_Q_TRACE_SET, OL_PARAMS(ol_value_text(call->traceparent)), NULL,
                      err) < 0)
        return -1;
    if (ol_store_query(tx->conn, OL_Q_RUN_COMMAND,
                       OL_PARAMS(ol_value_text(verbs[call->verb].name), ol_value_text(call->id),
                                 ol_value_text(call->org_id), ol_value_text(call->actor_type),
                                 ol_value_text(call->actor_id), ol_value_text(call->request_id),
                                 ol_value_text(call->idempotency_key),
                                 ol_value_bytes(body->text, body->bytes)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        const char *text = ol_rows_text(&rows, 0, &bytes);
        ol_buf_add(answer, text, bytes);
        *replayed = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return got > 0   ? 0
           : got < 0 ? -1
                     : ol_fail(err, OUTLOG_STORE_ERROR, "the store returned no row");
}

static int transition_once(outlog_tx *tx, struct ol_transition *transition, const char *key,
                           struct ol_buf *answer, bool *replayed, outlog_err *err)
{
    struct ol_buf request = {0};
    const char *stored;
    int result = -1;

    ol_buf_text(&request, "{\"id\":");
    ol_buf_json_text(&request, transition->id);
    ol_buf_text(&request, ",\"body\":");
    ol_buf_add(&request, transition->body.text, transition->body.bytes);
    ol_buf_char(&request, '}');
    const char *actor_id = transition->actor_id ? transition->actor_id : "system";
    struct outlog_idempotency idempotency = {.org_id = transition->org_id,
                                             .actor_id = actor_id,
                                             .endpoint = verbs[transition->verb].name,
                                             .key = key,
                                             .request = request.data};
    if (request.failed) {
        ol_no_memory(err);
        goto out;
    }
    if (outlog_idempotent_begin(tx, &idempotency, &stored, err) < 0)
        goto out;
    if (stored) {
        ol_buf_text(answer, stored);
        *replayed = true;
        result = 0;
        goto out;
    }
    if (ol_transition_apply(tx, transition, answer, err) < 0)
        goto out;
    result = answer->failed ? ol_no_memory(err)
                            : outlog_idempotent_end(tx, &idempotency, answer->data, err);
out:
    ol_buf_clear(&request);
    return result;
}

static int run_transition(outlog_tx *tx, const struct ol_run_call *call, const struct ol_json *body,
                          struct ol_arena *arena, struct ol_buf *answer, bool *replayed,
                          outlog_err *err)
{
    struct ol_transition transition = {.verb = call->verb,
                                       .verb_name = verbs[call->verb].name,
                                       .id = call->id,
                                       .actor_type = call->actor_type,
                                       .actor_id = call->actor_id,
                                       .request_id = call->request_id,
                                       .traceparent = call->traceparent,
                                       .body = *body,
                                       .arena = arena};
    if (ol_transition_find(tx, &transition, call->org_id, err) < 0)
        return -1;
    if (call->idempotency_key)
        return transition_once(tx, &transition, call->idempotency_key, answer, replayed, err);
    return ol_transition_apply(tx, &transition, answer, err);
}

int ol_run_command(outlog_tx *tx, const struct ol_run_call *call, struct ol_buf *answer,
                   bool *replayed, outlog_err *err)
{
    const struct ol_store *store = tx->conn->store;
    const struct run_verb *verb = &verbs[call->verb];
    struct ol_run_call lower = *call;
    struct ol_arena arena = {0};
    struct ol_json body;
    bool was_replayed = false;
    char id[OL_UUID_TEXT];
    int result = -1;

    if (tx->has_failed)
        return ol_fail(err, OUTLOG_MISUSE,
                       "an earlier command of this transaction failed; roll it back");
    if (ol_json_parse_wrapped(call->body ? call->body : "{}", call->body ? call->body_bytes : 2,
                              &body, err) < 0 ||
        check_body(verb, &body, &arena, err) < 0 || check_org(call, &body, err) < 0)
        goto out;
    if (verb->target && !call->id) {
        fail_member(verb->target, "is required", err);
        goto out;
    }
    if (call->id && ol_uuid_parse(call->id, id)) // ids are lower case
        lower.id = id;
    // A caller's own transaction must stay usable when the command fails.
    if (!tx->log && store->mark(tx->conn, err) < 0)
        goto out;
    result = store->has_functions
                 ? call_function(tx, &lower, &body, answer, &was_replayed, err)
                 : run_transition(tx, &lower, &body, &arena, answer, &was_replayed, err);
    if (!tx->log && store->release(tx->conn, result == 0, result == 0 ? err : NULL) < 0)
        result = -1;
    tx->has_failed = tx->log && result < 0;
    if (replayed)
        *replayed = was_replayed;
    if (result == 0 && answer->failed)
        result = ol_no_memory(err);
out:
    ol_arena_clear(&arena);
    return result;
}

/* --- a call as one flat object --- */

/* The field of the call that this member sets; NULL for a member of the body. */
static const char **find_call_field(struct ol_run_call *call, const struct ol_json *key)
{
    const char *target = verbs[call->verb].target;
    if (target && ol_json_equals(key, target))
        return &call->id;
    if (ol_json_equals(key, "actor_type"))
        return &call->actor_type;
    if (ol_json_equals(key, "actor_id"))
        return &call->actor_id;
    if (ol_json_equals(key, "request_id"))
        return &call->request_id;
    if (ol_json_equals(key, "idempotency_key") && call->verb != OL_REQUEST_EFFECT)
        return &call->idempotency_key;
    return NULL;
}

/* The verb of end_run or end_tool: `status` decides, or without one whether there is an error. */
static int find_ending(const char *name, const struct ol_json *whole, outlog_err *err)
{
    struct ol_json status = ol_json_get(whole, "status"), code = ol_json_get(whole, "error_code");
    bool is_run = strcmp(name, "end_run") == 0;
    bool has_status = status.type == OL_JSON_STRING;
    bool has_error = code.type == OL_JSON_STRING;

    if (has_status ? ol_json_equals(&status, "COMPLETED") : !has_error)
        return is_run ? OL_COMPLETE_RUN : OL_COMPLETE_TOOL;
    if (has_status ? ol_json_equals(&status, "FAILED") : has_error)
        return is_run ? OL_FAIL_RUN : OL_FAIL_TOOL;
    if (is_run && ol_json_equals(&status, "CANCELLED"))
        return OL_CANCEL_RUN;
    return fail_member("status",
                       is_run ? "must be COMPLETED, FAILED or CANCELLED"
                              : "must be COMPLETED or FAILED",
                       err);
}

/* Add a member to a JSON object that is being written. */
static void add_member(struct ol_buf *out, const struct ol_json_iter *it)
{
    if (out->bytes > 1)
        ol_buf_char(out, ',');
    ol_buf_add(out, it->key.text, it->key.bytes);
    ol_buf_char(out, ':');
    ol_buf_add(out, it->value.text, it->value.bytes);
}

/* Move one member of the flat object into the call, or append it to the body. A null sets nothing
 * in the call. */
static int read_call_member(const struct ol_json_iter *it, struct ol_arena *arena,
                            struct ol_run_call *call, struct ol_buf *body, outlog_err *err)
{
    const char **field = find_call_field(call, &it->key);
    if (!field) {
        add_member(body, it);
        return 0;
    }
    if (it->value.type == OL_JSON_NULL)
        return 0;
    *field = ol_json_string(&it->value, arena, NULL);
    if (*field)
        return 0;
    return ol_fail(err, OUTLOG_INVALID_FIELD, "%.*s must be a string", (int)it->key.bytes,
                   it->key.text);
}

int ol_run_call_read(const char *name, const char *text, size_t bytes, struct ol_arena *arena,
                     struct ol_run_call *out, outlog_err *err)
{
    struct ol_buf body = {0};
    struct ol_json whole;
    struct ol_json_iter it = {0};
    bool is_ending = strcmp(name, "end_run") == 0 || strcmp(name, "end_tool") == 0;
    int result = -1;

    *out = (struct ol_run_call){0};
    if (ol_json_parse_wrapped(text, bytes, &whole, err) < 0)
        return -1;
    if (whole.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "the argument is one JSON object");
    int verb = is_ending ? find_ending(name, &whole, err) : ol_run_verb(name);
    if (verb < 0)
        return is_ending ? -1 : ol_fail(err, OUTLOG_MISUSE, "there is no command %s", name);
    out->verb = (enum ol_run_verb)verb;
    ol_buf_char(&body, '{');
    while (ol_json_next(&whole, &it)) {
        bool is_status = is_ending && ol_json_equals(&it.key, "status");
        if (!is_status && read_call_member(&it, arena, out, &body, err) < 0)
            goto out;
    }
    ol_buf_char(&body, '}');
    out->body_bytes = body.bytes;
    out->body = body.failed ? NULL : ol_arena_copy(arena, body.data, body.bytes);
    result = out->body ? 0 : ol_no_memory(err);
out:
    ol_buf_clear(&body);
    return result;
}
