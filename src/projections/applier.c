/* applier.c: reads a page of events, plans the statements of each event, and applies them in one
 * transaction with the position. */
#include "projections/applier.h"

#include "base/fault.h"
#include "log/read.h"
#include "projections/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { STEP_EVENTS_MAX = 10000, STEP_EVENTS_MIN = 10, STEP_BYTES_MAX = 8 << 20 };

static void read_next_page(void *context);

/* --- life --- */

static int load_skips(struct ol_applier *applier, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    size_t capacity = 0;
    if (ol_store_query(applier->conn, OL_Q_SKIP_LIST,
                       OL_PARAMS(ol_value_text(applier->definition.name),
                                 ol_value_int(applier->definition.version)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (applier->skip_count == capacity) {
            capacity = capacity ? capacity * 2 : 16;
            int64_t *wider = ol_arena_array(&applier->arena, capacity, sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            if (applier->skip_count)
                memcpy(wider, applier->skips, applier->skip_count * sizeof *wider);
            applier->skips = wider;
        }
        applier->skips[applier->skip_count++] = ol_rows_int(&rows, 0);
    }
    ol_rows_end(&rows);
    return more;
}

/* The templates in the form in which the store prepares them. */
static int make_program(struct ol_applier *applier, outlog_err *err)
{
    const struct ol_projection *definition = &applier->definition;
    struct ol_user_statement *statements =
        ol_arena_array(&applier->arena, definition->template_count + 1, sizeof *statements);
    if (!statements)
        return ol_no_memory(err);
    for (size_t i = 0; i < definition->template_count; i++) {
        const struct ol_sql_template *template = &definition->templates[i];
        statements[i] =
            (struct ol_user_statement){.texts = template->texts,
                                       .param_count = template->param_count,
                                       .wants_json =
                                           ol_arena_array(&applier->arena,
                                                          (size_t) template->param_count + 1,
                                                          sizeof(bool))};
        if (!statements[i].wants_json)
            return ol_no_memory(err);
    }
    applier->program = (struct ol_user_program){.statements = statements,
                                                .count = definition->template_count,
                                                .overlap = read_next_page,
                                                .context = applier};
    return 0;
}

/* Whether a retry can help. Otherwise the user's SQL is wrong for this event. */
static bool is_transient(const outlog_err *err)
{
    return outlog_code_is_retryable(err->code);
}

int ol_applier_open(struct ol_applier *applier, const char *name, const char *definition,
                    struct ol_buf *stopped, outlog_err *err)
{
    struct ol_json value;
    outlog_err why = {.index = -1};
    const char *copy;

    ol_applier_close(applier);
    applier->limit = STEP_EVENTS_MAX;
    if (!(copy = ol_arena_copy(&applier->arena, definition, strlen(definition))) ||
        !(name = ol_arena_copy(&applier->arena, name, strlen(name))))
        return ol_no_memory(err);
    if (ol_json_parse(copy, strlen(copy), &value, &why) < 0 ||
        ol_projection_read(name, &value, &applier->arena, &applier->definition, &why) < 0)
        goto wrong;
    if (make_program(applier, err) < 0 || load_skips(applier, err) < 0)
        return -1;
    if (applier->conn->store->user_sql->prepare(applier->conn, &applier->program, &why) < 0)
        goto wrong;
    applier->is_open = true;
    return 0;
wrong:
    if (is_transient(&why)) {
        if (err)
            *err = why;
        return -1;
    }
    ol_checkpoint_error(NULL,
                        why.index >= 0 ? applier->definition.templates[why.index].source : NULL,
                        why.message, stopped);
    return 0;
}

void ol_applier_close(struct ol_applier *applier)
{
    if (applier->program.handle)
        applier->conn->store->user_sql->forget(&applier->program);
    outlog_page_clear(&applier->page);
    outlog_page_clear(&applier->readahead);
    ol_arena_clear(&applier->arena);
    ol_arena_clear(&applier->batch);
    free(applier->calls);
    *applier = (struct ol_applier){.conn = applier->conn,
                                   .positions = applier->positions,
                                   .context = applier->context,
                                   .position = applier->position,
                                   .readahead_after = -1};
}

/* --- planning a batch --- */

struct apply_plan {
    size_t *first_call; /* of each event; one more entry at the end */
    size_t count;       /* events to apply; the next one, if any, cannot be applied */
    size_t call_count;
    int64_t to;          /* the position afterwards */
    struct ol_buf error; /* why the next event cannot be applied; empty: there is none */
};

static bool is_skipped(const struct ol_applier *applier, int64_t event_id)
{
    for (size_t i = 0; i < applier->skip_count; i++)
        if (applier->skips[i] == event_id)
            return true;
    return false;
}

static int add_call(struct ol_applier *applier, struct apply_plan *plan, int number,
                    const struct outlog_event *event, outlog_err *err)
{
    const struct ol_sql_template *template = &applier->definition.templates[number];
    struct ol_value *values =
        ol_arena_array(&applier->batch, (size_t) template->param_count + 1, sizeof *values);
    if (plan->call_count == applier->call_capacity) {
        size_t wider = applier->call_capacity ? applier->call_capacity * 2 : 1024;
        struct ol_user_call *calls = realloc(applier->calls, wider * sizeof *calls);
        if (!calls)
            return ol_no_memory(err);
        applier->calls = calls;
        applier->call_capacity = wider;
    }
    if (!values)
        return ol_no_memory(err);
    applier->calls[plan->call_count++] = (struct ol_user_call){number, values};
    return ol_sql_template_values(template, event, applier->program.statements[number].wants_json,
                                  applier->conn->store->user_sql->has_types, &applier->batch,
                                  values, err);
}

/* The statements for an event: those for its stored version, else those for the version to which it
 * is upcast, else those for any version. */
static int find_handler(struct ol_applier *applier, outlog *reader, struct outlog_event *event,
                        const struct ol_projection_handler **out, outlog_err *err)
{
    bool is_typed;
    *out = ol_projection_find(&applier->definition, event->event_type, event->event_version,
                              &is_typed);
    if (!is_typed || (*out && (*out)->event_version))
        return 0;
    if (ol_registry_upcast(&reader->registry, event, applier->page.memory, err) < 0)
        return -1;
    *out = ol_projection_find(&applier->definition, event->event_type, event->event_version,
                              &is_typed);
    return *out ? 0
                : ol_fail(err, OUTLOG_STORE_ERROR,
                          "there is no statement for %.100s@%d, only for other versions",
                          event->event_type, event->event_version);
}

static int plan_event(struct ol_applier *applier, outlog *reader, struct apply_plan *plan, size_t i,
                      outlog_err *err)
{
    struct outlog_event *event = &applier->page.events[i];
    const struct ol_projection_handler *handler;
    plan->first_call[i] = plan->call_count;
    if (is_skipped(applier, event->event_id))
        return 0;
    if (find_handler(applier, reader, event, &handler, err) < 0)
        return -1;
    for (int n = 0; handler && n < handler->count; n++)
        if (add_call(applier, plan, handler->first + n, event, err) < 0)
            return -1;
    return 0;
}

static int make_plan(struct ol_applier *applier, outlog *reader, struct apply_plan *plan,
                     outlog_err *err)
{
    const struct outlog_page *page = &applier->page;
    outlog_err why;
    *plan = (struct apply_plan){.to = page->next_after};
    ol_arena_reset(&applier->batch);
    plan->first_call = ol_arena_array(&applier->batch, page->count + 1, sizeof *plan->first_call);
    if (!plan->first_call)
        return ol_no_memory(err);
    for (; plan->count < page->count; plan->count++)
        if (plan_event(applier, reader, plan, plan->count, &why) < 0) {
            if (is_transient(&why)) {
                if (err)
                    *err = why;
                return -1;
            }
            plan->call_count = plan->first_call[plan->count];
            plan->to = plan->count ? page->events[plan->count - 1].event_id : applier->position;
            ol_checkpoint_error(&page->events[plan->count], NULL, why.message, &plan->error);
            break;
        }
    plan->first_call[plan->count] = plan->call_count;
    return 0;
}

/* --- applying it --- */

static int move_position(struct ol_applier *applier, int64_t to, struct ol_applier_step *out,
                         outlog_err *err)
{
    bool moved;
    if (applier->positions->move(applier, applier->position, to, &moved, err) < 0)
        return -1;
    out->is_lost = !moved;
    return moved ? 0 : ol_fail(err, OUTLOG_UNAVAILABLE, "another worker moved the projection");
}

/* Apply the whole plan at once. *is_user: a statement of the user failed. */
static int apply_at_once(struct ol_applier *applier, const struct apply_plan *plan,
                         struct ol_applier_step *out, bool *is_user, outlog_err *err)
{
    const struct ol_store *store = applier->conn->store;
    *is_user = false;
    if (applier->positions->begin(applier, err) < 0)
        return -1;
    if (move_position(applier, plan->to, out, err) < 0)
        goto failed;
    if (store->user_sql->apply(&applier->program, applier->calls, plan->call_count, false, err) <
        0) {
        *is_user = !is_transient(err);
        goto failed;
    }
    ol_fault("projection.applied");
    if (store->commit(applier->conn, err) < 0)
        return -1;
    ol_fault("projection.committed");
    out->applied = plan->count;
    return 0;
failed:
    store->rollback(applier->conn);
    return -1;
}

/* Apply the statements of event `i` behind a savepoint. 1: done; 0: one of them failed, as *why
 * says; -1: try the step again. */
static int apply_event(struct ol_applier *applier, const struct apply_plan *plan, size_t i,
                       outlog_err *why, outlog_err *err)
{
    const struct ol_store *store = applier->conn->store;
    size_t first = plan->first_call[i], count = plan->first_call[i + 1] - first;
    if (count == 0)
        return 1;
    if (store->mark(applier->conn, err) < 0)
        return -1;
    bool ok = store->user_sql->apply(&applier->program, applier->calls + first, count, true, why) ==
              0;
    if (!ok && is_transient(why)) {
        if (err)
            *err = *why;
        return -1;
    }
    if (store->release(applier->conn, ok, err) < 0)
        return -1;
    return ok;
}

/* End the plan before event `i`, whose statement failed. */
static void cut_plan(struct ol_applier *applier, struct apply_plan *plan, size_t i,
                     const outlog_err *why)
{
    size_t call = plan->first_call[i] + (why->index >= 0 ? (size_t)why->index : 0);
    const char *source = applier->definition.templates[applier->calls[call].statement].source;
    ol_buf_reset(&plan->error);
    ol_checkpoint_error(&applier->page.events[i], source, why->message, &plan->error);
    plan->to = i ? applier->page.events[i - 1].event_id : applier->position;
    plan->count = i;
}

/* Apply event by event, up to the one that cannot be applied (T3). */
static int apply_one_by_one(struct ol_applier *applier, struct apply_plan *plan,
                            struct ol_applier_step *out, outlog_err *err)
{
    const struct ol_store *store = applier->conn->store;
    outlog_err why;

    if (applier->positions->begin(applier, err) < 0)
        return -1;
    if (move_position(applier, applier->position, out, err) < 0)
        goto failed;
    for (size_t i = 0; i < plan->count; i++) {
        int applied = apply_event(applier, plan, i, &why, err);
        if (applied < 0)
            goto failed;
        if (!applied)
            cut_plan(applier, plan, i, &why);
    }
    if (move_position(applier, plan->to, out, err) < 0)
        goto failed;
    if (store->commit(applier->conn, err) < 0)
        return -1;
    out->applied = plan->count;
    return 0;
failed:
    store->rollback(applier->conn);
    return -1;
}

/* --- reading --- */

static int read_page(struct ol_applier *applier, int64_t after, struct outlog_page *page,
                     outlog_err *err)
{
    return ol_read_some(applier->reader, applier->definition.fields, after, applier->limit, page,
                        err);
}

/* Read the next page on the other connection while the server applies this one. If that fails, the
 * next step reads it and reports the error. */
static void read_next_page(void *context)
{
    struct ol_applier *applier = context;
    outlog_err ignored;
    if (applier->page.count == applier->page_limit &&
        read_page(applier, applier->page.next_after, &applier->readahead, &ignored) == 0) {
        applier->readahead_after = applier->page.next_after;
        applier->readahead_limit = applier->limit;
    }
}

static int take_page(struct ol_applier *applier, outlog_err *err)
{
    if (applier->readahead_after == applier->position && applier->readahead.count) {
        struct outlog_page page = applier->page;
        applier->page = applier->readahead;
        applier->readahead = page;
        applier->page_limit = applier->readahead_limit;
        applier->readahead_after = -1;
        return 0;
    }
    applier->readahead_after = -1;
    applier->page_limit = applier->limit;
    return read_page(applier, applier->position, &applier->page, err);
}

/* Read fewer events at once when they are large. */
static void fit_limit(struct ol_applier *applier)
{
    size_t bytes = 0;
    for (size_t i = 0; i < applier->page.count; i++)
        bytes += applier->page.events[i].payload_bytes;
    if (bytes > STEP_BYTES_MAX && applier->limit > STEP_EVENTS_MIN)
        applier->limit /= 2;
    else if (bytes < STEP_BYTES_MAX / 4 && applier->limit * 2 <= STEP_EVENTS_MAX)
        applier->limit *= 2;
}

int ol_applier_step(struct ol_applier *applier, outlog *reader, struct ol_applier_step *out,
                    outlog_err *err)
{
    struct apply_plan plan = {0};
    bool is_user;
    int result = -1;

    *out = (struct ol_applier_step){0};
    applier->reader = reader;
    if (take_page(applier, err) < 0)
        return -1;
    out->is_at_end = applier->page.count < applier->page_limit;
    if (applier->page.next_after == applier->position)
        return 0;
    fit_limit(applier);
    if (make_plan(applier, reader, &plan, err) < 0)
        goto out;
    if (plan.to > applier->position) {
        result = apply_at_once(applier, &plan, out, &is_user, err);
        if (result < 0 && is_user)
            result = apply_one_by_one(applier, &plan, out, err);
        if (result < 0)
            goto out;
        applier->position = plan.to;
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
