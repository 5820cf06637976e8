/* upcast.c: reads the steps, and applies them to the text of a payload.
 *
 * A step cuts and joins text. Nothing is parsed into a tree and printed again, so members that a
 * step does not touch keep their bytes. */
#include "log/upcast.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

enum upcast_op { UPCAST_RENAME, UPCAST_MOVE, UPCAST_DEFAULT };

static const char *const op_names[] =
    {[UPCAST_RENAME] = "rename", [UPCAST_MOVE] = "move", [UPCAST_DEFAULT] = "default"};

/* A JSON pointer split into its parts once, so that the steps need not allocate for it. */
struct upcast_path {
    const char *text;   /* "/a/b~1c" */
    const char *parent; /* "/a" */
    size_t count;
    const char **tokens; /* "/a", "/b~1c": each leads one level down */
    const char **keys;   /* "a", "b/c" */
};

struct upcast_step {
    enum upcast_op op;
    struct upcast_path from, to;
    struct ol_json value; /* of a default, which has no `from` */
};

/* The payload while steps are applied: two buffers in turn, as a step reads one and fills the
 * other. */
struct upcast_work {
    struct ol_json value;
    struct ol_buf buffers[2];
    int next;
    struct ol_arena arena;
};

static int read_step(const struct ol_json *json, struct ol_arena *arena, struct upcast_step *out,
                     outlog_err *err);
static int apply_step(struct upcast_work *w, const struct upcast_step *step, outlog_err *err);

/* --- declarations ------------------------------------------------------------------------- */

/* The version that a key of the upcasters names, without leading zeros; 0: not a version. */
static int parse_version(const struct ol_json *key)
{
    struct ol_json digits = {OL_JSON_NUMBER, key->text + 1, key->bytes - 2};
    int64_t version;

    if (digits.bytes == 0 || digits.bytes > 9 || digits.text[0] == '0' ||
        !ol_json_int(&digits, &version))
        return 0;
    return version > 0 ? (int)version : 0;
}

static int refuse_upcast(const struct ol_json *upcasters, const struct ol_json *at, outlog_err *err,
                         const char *what)
{
    char pointer[sizeof err->pointer];
    ol_json_pointer(upcasters, at->text, pointer, sizeof pointer);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "upcast%s: %s", pointer, what);
}

/* Add the place of a step to the error that reading it gave. */
static int locate_step_error(const struct ol_json *upcasters, const struct ol_json *step,
                             int version, size_t index, outlog_err *err)
{
    if (err && err->code == OUTLOG_INVALID_FIELD) {
        ol_json_pointer(upcasters, step->text, err->pointer, sizeof err->pointer);
        ol_err_prefix(err, "upcast from version %d, step %zu", version, index + 1);
    }
    return -1;
}

int ol_upcast_check(const struct ol_json *upcasters, int current_version, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json_iter it = {0};
    int rc = -1;

    if (upcasters->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "upcast: must be an object from version to a list of steps");
    while (ol_json_next(upcasters, &it)) {
        struct ol_json_iter steps = {0};
        struct upcast_step step;
        int version = parse_version(&it.key);
        if (version == 0 || version >= current_version) {
            refuse_upcast(upcasters, &it.value, err, "must be a version below the current one");
            goto out;
        }
        if (it.value.type != OL_JSON_ARRAY) {
            refuse_upcast(upcasters, &it.value, err, "must be a list of steps");
            goto out;
        }
        for (size_t i = 0; ol_json_next(&it.value, &steps); i++)
            if (read_step(&steps.value, &arena, &step, err) < 0) {
                locate_step_error(upcasters, &steps.value, version, i, err);
                goto out;
            }
    }
    rc = 0;
out:
    ol_arena_clear(&arena);
    return rc;
}

/* Begins with a slash, and has ~ only as ~0 or ~1: it names a member, not the whole payload. */
static bool is_pointer(const char *text, size_t bytes)
{
    if (text[0] != '/' || strlen(text) != bytes)
        return false;
    for (const char *tilde = text; (tilde = strchr(tilde, '~')); tilde++)
        if (tilde[1] != '0' && tilde[1] != '1')
            return false;
    return true;
}

/* Undo ~0 and ~1 in place. */
static void unescape_key(char *key)
{
    char *to = key;
    for (const char *from = key; *from; from++) {
        bool is_escape = *from == '~';
        from += is_escape;
        *to++ = is_escape ? (*from == '0' ? '~' : '/') : *from;
    }
    *to = '\0';
}

/* Split the pointer; -1 when out of memory. */
static int split_path(struct upcast_path *path, struct ol_arena *arena)
{
    for (const char *slash = path->text; (slash = strchr(slash, '/')); slash++)
        path->count++;
    path->parent =
        ol_arena_copy(arena, path->text, (size_t)(strrchr(path->text, '/') - path->text));
    path->tokens = ol_arena_array(arena, path->count, sizeof *path->tokens);
    path->keys = ol_arena_array(arena, path->count, sizeof *path->keys);
    if (!path->parent || !path->tokens || !path->keys)
        return -1;
    const char *at = path->text;
    for (size_t i = 0; i < path->count; i++) {
        size_t bytes = 1 + strcspn(at + 1, "/");
        char *key = ol_arena_copy(arena, at + 1, bytes - 1);
        path->tokens[i] = ol_arena_copy(arena, at, bytes);
        path->keys[i] = key;
        if (!path->tokens[i] || !key)
            return -1;
        unescape_key(key);
        at += bytes;
    }
    return 0;
}

static int read_path(const struct ol_json *json, struct ol_arena *arena, struct upcast_path *out,
                     outlog_err *err)
{
    size_t bytes;

    if (json->type != OL_JSON_STRING)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "a JSON pointer such as \"/total\" is missing");
    out->text = ol_json_string(json, arena, &bytes);
    if (out->text && !is_pointer(out->text, bytes))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "\"%s\" is not a JSON pointer to a member",
                       out->text);
    if (!out->text || split_path(out, arena) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory for a step");
    return 0;
}

/* Whether `inner` is below `outer`. */
static bool is_below(const struct upcast_path *inner, const struct upcast_path *outer)
{
    size_t bytes = strlen(outer->text);
    return strncmp(inner->text, outer->text, bytes) == 0 && inner->text[bytes] == '/';
}

static int check_step(const struct upcast_step *step, outlog_err *err)
{
    const char *from = step->from.text, *to = step->to.text;

    if (step->op == UPCAST_DEFAULT)
        return 0;
    if (strcmp(from, to) == 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "%s is both from and to", from);
    if (step->op == UPCAST_RENAME && strcmp(step->from.parent, step->to.parent) != 0)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "rename stays in one parent; use move for %s to %s", from, to);
    if (is_below(&step->from, &step->to))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "%s is inside %s and cannot replace it", from,
                       to);
    return 0;
}

/* {"rename": [from, to]}: one member, whose name is the operation. */
static int read_step(const struct ol_json *json, struct ol_arena *arena, struct upcast_step *out,
                     outlog_err *err)
{
    struct ol_json_iter it = {0}, args = {0}, rest = {0};
    struct ol_json arg[3] = {{0}};
    size_t op = 0, count = 0;

    *out = (struct upcast_step){0};
    if (json->type != OL_JSON_OBJECT || !ol_json_next(json, &it))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "a step is {\"rename\": …}, move or default");
    while (op <= UPCAST_DEFAULT && !ol_json_equals(&it.key, op_names[op]))
        op++;
    rest = it;
    if (op > UPCAST_DEFAULT || ol_json_next(json, &rest))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "a step is one of rename, move, default");
    while (count < 3 && ol_json_next(&it.value, &args))
        arg[count++] = args.value;
    if (it.value.type != OL_JSON_ARRAY || count != 2)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "%s needs [%s]", op_names[op],
                       op == UPCAST_DEFAULT ? "pointer, value" : "from, to");
    out->op = (enum upcast_op)op;
    out->value = arg[1];
    if (read_path(&arg[0], arena, op == UPCAST_DEFAULT ? &out->to : &out->from, err) < 0)
        return -1;
    if (op != UPCAST_DEFAULT && read_path(&arg[1], arena, &out->to, err) < 0)
        return -1;
    return check_step(out, err);
}

/* --- applying ----------------------------------------------------------------------------- */

/* The steps of the lowest version in [from, to); false when none is left. It searches the
 * declaration and does not count up, so an event_version of two billion does not become as many
 * iterations. */
static bool next_steps(const struct ol_json *upcasters, int *from, int to, struct ol_json *steps)
{
    struct ol_json_iter it = {0};
    int found = INT_MAX;

    while (ol_json_next(upcasters, &it)) {
        int version = upcasters->type == OL_JSON_OBJECT ? parse_version(&it.key) : 0;
        if (version >= *from && version < to && version < found && version > 0) {
            found = version;
            *steps = it.value;
        }
    }
    *from = found;
    return found != INT_MAX;
}

int ol_upcast_apply(const struct ol_json *upcasters, int from_version, int to_version,
                    const struct ol_json *payload, struct ol_buf *out, outlog_err *err)
{
    struct upcast_work w = {.value = *payload};
    struct ol_json steps;
    int rc = -1;

    for (int v = from_version; next_steps(upcasters, &v, to_version, &steps); v++) {
        struct ol_json_iter it = {0};
        for (size_t i = 0; ol_json_next(&steps, &it); i++) {
            struct upcast_step step;
            ol_arena_reset(&w.arena);
            if (read_step(&it.value, &w.arena, &step, err) < 0) {
                locate_step_error(upcasters, &it.value, v, i, err);
                goto out;
            }
            if (apply_step(&w, &step, err) < 0)
                goto out;
        }
    }
    if (w.value.text != payload->text && // a move can nest a value deeper
        ol_json_parse(w.value.text, w.value.bytes, &w.value, err) < 0)
        goto out;
    ol_buf_add(out, w.value.text, w.value.bytes);
    rc = out->failed ? ol_fail(err, OUTLOG_NO_MEMORY, "no memory for the payload") : 0;
out:
    ol_buf_clear(&w.buffers[0]);
    ol_buf_clear(&w.buffers[1]);
    ol_arena_clear(&w.arena);
    return rc;
}

/* Begin the new text of the payload with everything before `until`. */
static struct ol_buf *begin_text(struct upcast_work *w, const char *until)
{
    struct ol_buf *text = &w->buffers[w->next];
    ol_buf_reset(text);
    ol_buf_add(text, w->value.text, (size_t)(until - w->value.text));
    return text;
}

/* End it with everything after `since`. From here on it is the payload. */
static int end_text(struct upcast_work *w, const char *since, outlog_err *err)
{
    struct ol_buf *text = &w->buffers[w->next];
    const char *end = w->value.text + w->value.bytes;

    ol_buf_add(text, since, (size_t)(end - since));
    if (text->failed)
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory for the payload");
    w->value.text = text->data;
    w->value.bytes = text->bytes;
    w->next = !w->next;
    return 0;
}

/* A member and its neighbours, as positions in the text. */
struct member_span {
    struct ol_json key, value;
    const char *previous_end; /* of the sibling before it, or NULL */
    const char *next_start;   /* of the sibling after it, or NULL */
};

/* The member at `path`; false when there is none, or when it is an element of an array. */
static bool find_member(const struct upcast_work *w, const struct upcast_path *path,
                        struct member_span *out)
{
    struct ol_json_iter it = {0};
    struct ol_json found = ol_json_at(&w->value, path->text);
    struct ol_json object = ol_json_at(&w->value, path->parent);

    if (found.type == OL_JSON_NONE || object.type != OL_JSON_OBJECT)
        return false;
    *out = (struct member_span){0};
    while (ol_json_next(&object, &it) && it.value.text != found.text)
        out->previous_end = it.value.text + it.value.bytes;
    out->key = it.key;
    out->value = it.value;
    if (ol_json_next(&object, &it))
        out->next_start = it.key.text;
    return true;
}

/* Where a new member goes: at the end of `object`, which the first `depth` keys of the path lead
 * to; the other keys are missing. */
struct insert_point {
    struct ol_json object;
    size_t depth;
};

/* False when the member exists already, or cannot be reached. */
static bool find_point(const struct upcast_work *w, const struct upcast_path *path,
                       struct insert_point *out)
{
    out->object = w->value;
    for (out->depth = 0; out->depth < path->count; out->depth++) {
        struct ol_json below = ol_json_at(&out->object, path->tokens[out->depth]);
        if (below.type == OL_JSON_NONE)
            return out->object.type == OL_JSON_OBJECT;
        out->object = below;
    }
    return false;
}

/* Append the keys from `depth` on as nested members around `value`: "b":{"c":value}. */
static void write_member(struct ol_buf *text, const struct upcast_path *path, size_t depth,
                         const struct ol_json *value)
{
    for (size_t i = depth; i < path->count; i++) {
        if (i > depth)
            ol_buf_char(text, '{');
        ol_buf_json_text(text, path->keys[i]);
        ol_buf_char(text, ':');
    }
    ol_buf_add(text, value->text, value->bytes);
    for (size_t i = depth + 1; i < path->count; i++)
        ol_buf_char(text, '}');
}

static int insert_member(struct upcast_work *w, const struct upcast_path *path,
                         const struct insert_point *point, const struct ol_json *value,
                         outlog_err *err)
{
    struct ol_json_iter it = {0};
    const char *at = point->object.text + 1; // after the brace, or after the last member
    bool is_empty = true;

    while (ol_json_next(&point->object, &it)) {
        at = it.value.text + it.value.bytes;
        is_empty = false;
    }
    struct ol_buf *text = begin_text(w, at);
    if (!is_empty)
        ol_buf_char(text, ',');
    write_member(text, path, point->depth, value);
    return end_text(w, at, err);
}

static int remove_member(struct upcast_work *w, const struct member_span *span, outlog_err *err)
{
    const char *from = span->key.text, *to = span->value.text + span->value.bytes;

    if (span->previous_end) // the comma before it goes too, or else the one after it
        from = span->previous_end;
    else if (span->next_start)
        to = span->next_start;
    begin_text(w, from);
    return end_text(w, to, err);
}

static int rename_member(struct upcast_work *w, const struct upcast_step *step,
                         const struct member_span *span, outlog_err *err)
{
    struct ol_buf *text = begin_text(w, span->key.text);
    ol_buf_json_text(text, step->to.keys[step->to.count - 1]);
    return end_text(w, span->key.text + span->key.bytes, err);
}

static int move_member(struct upcast_work *w, const struct upcast_step *step,
                       const struct member_span *span, outlog_err *err)
{
    struct ol_json value = span->value;
    struct insert_point point;

    value.text =
        ol_arena_copy(&w->arena, value.text, value.bytes); // its text is about to be removed
    if (!value.text)
        return ol_fail(err, OUTLOG_NO_MEMORY, "no memory for the payload");
    if (remove_member(w, span, err) < 0)
        return -1;
    bool is_free = find_point(w, &step->to, &point); // again, as the text has moved
    assert(is_free);
    return insert_member(w, &step->to, &point, &value, err);
}

static int apply_step(struct upcast_work *w, const struct upcast_step *step, outlog_err *err)
{
    struct member_span span;
    struct insert_point point;

    if (step->op == UPCAST_DEFAULT)
        return find_point(w, &step->to, &point)
                   ? insert_member(w, &step->to, &point, &step->value, err)
                   : 0;
    if (!find_member(w, &step->from, &span))
        return 0;
    if (!is_below(&step->to, &step->from) && !find_point(w, &step->to, &point))
        return 0; // a place below its own old one becomes free when it moves
    return step->op == UPCAST_RENAME ? rename_member(w, step, &span, err)
                                     : move_member(w, step, &span, err);
}
