/* applier.c: see applier.h. */
#include "projections/applier.h"

#include "base/fault.h"
#include "log/read.h"
#include "projections/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_EVENTS = 10000, LEAST_EVENTS = 10, BATCH_BYTES = 8 << 20 };

static void read_ahead(void *context);

/* --- life --- */

static int load_skips(struct ol_applier *track, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    size_t room = 0;
    if (ol_store_query(track->conn, OL_Q_SKIP_LIST,
                       OL_PARAMS(ol_value_text(track->definition.name),
                                 ol_value_int(track->definition.version)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (track->skip_count == room) {
            room = room ? room * 2 : 16;
            int64_t *wider = ol_arena_array(&track->arena, room, sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            if (track->skip_count)
                memcpy(wider, track->skips, track->skip_count * sizeof *wider);
            track->skips = wider;
        }
        track->skips[track->skip_count++] = ol_rows_int(&rows, 0);
    }
    ol_rows_end(&rows);
    return more;
}

/* The templates as the store wants them. */
static int make_program(struct ol_applier *track, outlog_err *err)
{
    const struct ol_projection *definition = &track->definition;
    struct ol_user_statement *statements =
        ol_arena_array(&track->arena, definition->template_count + 1, sizeof *statements);
    if (!statements)
        return ol_no_memory(err);
    for (size_t i = 0; i < definition->template_count; i++) {
        const struct ol_sql_template *template = &definition->templates[i];
        statements[i] =
            (struct ol_user_statement){.texts = template->texts,
                                       .param_count = template->param_count,
                                       .wants_json =
                                           ol_arena_array(&track->arena,
                                                          (size_t) template->param_count + 1,
                                                          sizeof(bool))};
        if (!statements[i].wants_json)
            return ol_no_memory(err);
    }
    track->program = (struct ol_user_program){.statements = statements,
                                              .count = definition->template_count,
                                              .overlap = read_ahead,
                                              .context = track};
    return 0;
}

/* Whose fault: ours and passing, or what the user wrote? */
static bool is_passing(const outlog_err *err)
{
    return outlog_code_is_retryable(err->code);
}

int ol_applier_open(struct ol_applier *track, const char *name, const char *definition,
                    struct ol_buf *stopped, outlog_err *err)
{
    struct ol_json value;
    outlog_err why = {.index = -1};
    const char *copy;

    ol_applier_close(track);
    track->limit = MOST_EVENTS;
    if (!(copy = ol_arena_copy(&track->arena, definition, strlen(definition))) ||
        !(name = ol_arena_copy(&track->arena, name, strlen(name))))
        return ol_no_memory(err);
    if (ol_json_parse(copy, strlen(copy), &value, &why) < 0 ||
        ol_projection_read(name, &value, &track->arena, &track->definition, &why) < 0)
        goto wrong;
    if (make_program(track, err) < 0 || load_skips(track, err) < 0)
        return -1;
    if (track->conn->store->user_sql->prepare(track->conn, &track->program, &why) < 0)
        goto wrong;
    track->is_open = true;
    return 0;
wrong:
    if (is_passing(&why)) {
        if (err)
            *err = why;
        return -1;
    }
    ol_checkpoint_error(NULL, why.index >= 0 ? track->definition.templates[why.index].source : NULL,
                        why.message, stopped);
    return 0;
}

void ol_applier_close(struct ol_applier *track)
{
    if (track->program.handle)
        track->conn->store->user_sql->forget(&track->program);
    outlog_page_clear(&track->page);
    outlog_page_clear(&track->ahead);
    ol_arena_clear(&track->arena);
    ol_arena_clear(&track->batch);
    free(track->calls);
    *track = (struct ol_applier){.conn = track->conn,
                                 .keeper = track->keeper,
                                 .context = track->context,
                                 .position = track->position,
                                 .ahead_of = -1};
}

/* --- planning a batch --- */

struct plan {
    size_t *first_call; /* of each event; one more at the end */
    size_t count;       /* events to apply; the next one, if any, cannot be */
    size_t call_count;
    int64_t to;
    struct ol_buf error; /* why the next one cannot be */
};

static bool is_skipped(const struct ol_applier *track, int64_t event_id)
{
    for (size_t i = 0; i < track->skip_count; i++)
        if (track->skips[i] == event_id)
            return true;
    return false;
}

static int add_call(struct ol_applier *track, struct plan *plan, int number,
                    const struct outlog_event *event, outlog_err *err)
{
    const struct ol_sql_template *template = &track->definition.templates[number];
    struct ol_value *values =
        ol_arena_array(&track->batch, (size_t) template->param_count + 1, sizeof *values);
    if (plan->call_count == track->call_room) {
        size_t wider = track->call_room ? track->call_room * 2 : 1024;
        struct ol_user_call *calls = realloc(track->calls, wider * sizeof *calls);
        if (!calls)
            return ol_no_memory(err);
        track->calls = calls;
        track->call_room = wider;
    }
    if (!values)
        return ol_no_memory(err);
    track->calls[plan->call_count++] = (struct ol_user_call){number, values};
    return ol_sql_template_values(template, event, track->program.statements[number].wants_json,
                                  track->conn->store->user_sql->has_types, &track->batch, values,
                                  err);
}

/* Which statements an event runs: those for its version as it is stored, else those for the version
 * it is brought to, else those for any. */
static int find_handler(struct ol_applier *track, outlog *reader, struct outlog_event *event,
                        const struct ol_projection_handler **out, outlog_err *err)
{
    bool is_typed;
    *out =
        ol_projection_find(&track->definition, event->event_type, event->event_version, &is_typed);
    if (!is_typed || (*out && (*out)->event_version))
        return 0;
    if (ol_registry_upcast(&reader->registry, event, track->page.memory, err) < 0)
        return -1;
    *out =
        ol_projection_find(&track->definition, event->event_type, event->event_version, &is_typed);
    return *out ? 0
                : ol_fail(err, OUTLOG_STORE_ERROR,
                          "there is no statement for %.100s@%d, only for other versions",
                          event->event_type, event->event_version);
}

static int plan_event(struct ol_applier *track, outlog *reader, struct plan *plan, size_t i,
                      outlog_err *err)
{
    struct outlog_event *event = &track->page.events[i];
    const struct ol_projection_handler *handler;
    plan->first_call[i] = plan->call_count;
    if (is_skipped(track, event->event_id))
        return 0;
    if (find_handler(track, reader, event, &handler, err) < 0)
        return -1;
    for (int n = 0; handler && n < handler->count; n++)
        if (add_call(track, plan, handler->first + n, event, err) < 0)
            return -1;
    return 0;
}

static int make_plan(struct ol_applier *track, outlog *reader, struct plan *plan, outlog_err *err)
{
    const struct outlog_page *page = &track->page;
    outlog_err why;
    *plan = (struct plan){.to = page->next_after};
    ol_arena_reset(&track->batch);
    plan->first_call = ol_arena_array(&track->batch, page->count + 1, sizeof *plan->first_call);
    if (!plan->first_call)
        return ol_no_memory(err);
    for (; plan->count < page->count; plan->count++)
        if (plan_event(track, reader, plan, plan->count, &why) < 0) {
            if (is_passing(&why)) {
                if (err)
                    *err = why;
                return -1;
            }
            plan->call_count = plan->first_call[plan->count];
            plan->to = plan->count ? page->events[plan->count - 1].event_id : track->position;
            ol_checkpoint_error(&page->events[plan->count], NULL, why.message, &plan->error);
            break;
        }
    plan->first_call[plan->count] = plan->call_count;
    return 0;
}

/* --- applying it --- */

static int move(struct ol_applier *track, int64_t to, struct ol_applier_step *out, outlog_err *err)
{
    bool moved;
    if (track->keeper->move(track, track->position, to, &moved, err) < 0)
        return -1;
    out->is_lost = !moved;
    return moved ? 0 : ol_fail(err, OUTLOG_UNAVAILABLE, "the projection was moved by another");
}

/* All at once. *is_user: it failed for what a statement said. */
static int apply_fast(struct ol_applier *track, const struct plan *plan,
                      struct ol_applier_step *out, bool *is_user, outlog_err *err)
{
    const struct ol_store *store = track->conn->store;
    *is_user = false;
    if (track->keeper->begin(track, err) < 0)
        return -1;
    if (move(track, plan->to, out, err) < 0)
        goto failed;
    if (store->user_sql->apply(&track->program, track->calls, plan->call_count, false, err) < 0) {
        *is_user = !is_passing(err);
        goto failed;
    }
    ol_fault("projection.applied");
    if (store->commit(track->conn, err) < 0)
        return -1;
    ol_fault("projection.committed");
    out->applied = plan->count;
    return 0;
failed:
    store->rollback(track->conn);
    return -1;
}

/* Event by event, up to the one that cannot be applied (T3). */
static int apply_slow(struct ol_applier *track, struct plan *plan, struct ol_applier_step *out,
                      outlog_err *err)
{
    const struct ol_store *store = track->conn->store;
    outlog_err why;
    size_t i;

    if (track->keeper->begin(track, err) < 0)
        return -1;
    if (move(track, track->position, out, err) < 0)
        goto failed;
    for (i = 0; i < plan->count; i++) {
        size_t first = plan->first_call[i], count = plan->first_call[i + 1] - first;
        if (count == 0)
            continue;
        if (store->mark(track->conn, err) < 0)
            goto failed;
        bool ok =
            store->user_sql->apply(&track->program, track->calls + first, count, true, &why) == 0;
        if (!ok && is_passing(&why)) {
            if (err)
                *err = why;
            goto failed;
        }
        if (store->release(track->conn, ok, err) < 0)
            goto failed;
        if (ok)
            continue;
        size_t call = first + (why.index >= 0 ? (size_t)why.index : 0);
        ol_buf_reset(&plan->error);
        ol_checkpoint_error(&track->page.events[i],
                            track->definition.templates[track->calls[call].statement].source,
                            why.message, &plan->error);
        plan->to = i ? track->page.events[i - 1].event_id : track->position;
        break;
    }
    plan->count = i;
    if (move(track, plan->to, out, err) < 0)
        goto failed;
    if (store->commit(track->conn, err) < 0)
        return -1;
    out->applied = i;
    return 0;
failed:
    store->rollback(track->conn);
    return -1;
}

/* --- reading --- */

static int read_page(struct ol_applier *track, int64_t after, struct outlog_page *page,
                     outlog_err *err)
{
    return ol_read_some(track->reader, track->definition.fields, after, track->limit, page, err);
}

/* While a page is applied, the next one comes by the other connection. If that fails, the next
 * step reads it and says why. */
static void read_ahead(void *context)
{
    struct ol_applier *track = context;
    outlog_err ignored;
    if (track->page.count == track->limit_read &&
        read_page(track, track->page.next_after, &track->ahead, &ignored) == 0) {
        track->ahead_of = track->page.next_after;
        track->ahead_limit = track->limit;
    }
}

static int next_page(struct ol_applier *track, outlog_err *err)
{
    if (track->ahead_of == track->position && track->ahead.count) {
        struct outlog_page page = track->page;
        track->page = track->ahead;
        track->ahead = page;
        track->limit_read = track->ahead_limit;
        track->ahead_of = -1;
        return 0;
    }
    track->ahead_of = -1;
    track->limit_read = track->limit;
    return read_page(track, track->position, &track->page, err);
}

/* A page of large events becomes a smaller one. */
static void fit_limit(struct ol_applier *track)
{
    size_t bytes = 0;
    for (size_t i = 0; i < track->page.count; i++)
        bytes += track->page.events[i].payload_bytes;
    if (bytes > BATCH_BYTES && track->limit > LEAST_EVENTS)
        track->limit /= 2;
    else if (bytes < BATCH_BYTES / 4 && track->limit * 2 <= MOST_EVENTS)
        track->limit *= 2;
}

int ol_applier_step(struct ol_applier *track, outlog *reader, struct ol_applier_step *out,
                    outlog_err *err)
{
    struct plan plan = {0};
    bool is_user;
    int result = -1;

    *out = (struct ol_applier_step){0};
    track->reader = reader;
    if (next_page(track, err) < 0)
        return -1;
    out->is_at_end = track->page.count < track->limit_read;
    if (track->page.next_after == track->position)
        return 0;
    fit_limit(track);
    if (make_plan(track, reader, &plan, err) < 0)
        goto out;
    if (plan.to > track->position) {
        result = apply_fast(track, &plan, out, &is_user, err);
        if (result < 0 && is_user)
            result = apply_slow(track, &plan, out, err);
        if (result < 0)
            goto out;
        track->position = plan.to;
    }
    result = 0;
    if (plan.error.bytes) {
        out->is_stopped = true;
        out->error = plan.error;
        plan.error = (struct ol_buf){0};
    }
out:
    ol_buf_clear(&plan.error);
    if (result < 0 && out->is_lost)
        return 0;
    return result;
}
