/* admin.c: requeue, kill, release.
 *
 * P1  A change begins by touching its lanes, in ascending order: that is the lock, and it makes
 *     the owner reload parked rows (rules 1, 9).
 * P2  The state of a message is read after that, and it changes only from that state.
 * P3  The audit event is in the same transaction (X4): there is no change without an event and no
 *     event without a change. */
#include "outbox/admin.h"

#include "base/buf.h"
#include "outbox/effect.h"
#include "outbox/message_list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids and numbers only: an error text or a header might hold what an event must not. */
static const char *make_audit_payload(const struct ol_message_state *message,
                                      struct ol_arena *arena)
{
    const struct outlog_message *view = &message->view;
    struct ol_buf out = {0};
    ol_buf_print(&out, "{\"message_id\":\"%s\",\"org_id\":", view->event_id);
    ol_buf_json_text(&out, view->org_id);
    ol_buf_text(&out, ",\"destination\":");
    ol_buf_json_text(&out, view->destination);
    ol_buf_text(&out, ",\"event_type\":");
    ol_buf_json_text(&out, view->event_type);
    ol_buf_print(&out, ",\"from\":\"%s\",\"attempts\":%d,\"published_at\":", view->state,
                 view->attempts);
    ol_buf_json_time(&out, view->published_at);
    ol_buf_char(&out, '}');
    const char *copy = out.failed ? NULL : ol_arena_copy(arena, out.data, out.bytes);
    ol_buf_clear(&out);
    return copy;
}

/* --- a change of some messages --- */

struct admin_change {
    outlog *log;
    outlog_tx *tx;
    const struct outlog_operator *by;
    char who[180]; /* "user:u-7" */
    struct ol_arena arena;
    char correlation_id[OL_UUID_TEXT];
    outlog_err *err;
};

static void begin_change(struct admin_change *c, outlog *log, const struct outlog_operator *by,
                         outlog_err *err)
{
    static const struct outlog_operator nobody;
    *c = (struct admin_change){.log = log, .by = by ? by : &nobody, .err = err};
    snprintf(c->who, sizeof c->who, "%.40s:%.120s",
             c->by->actor_type ? c->by->actor_type : "system",
             c->by->actor_id ? c->by->actor_id : "system");
    ol_uuid_make(c->correlation_id);
}

static void end_change(struct admin_change *c)
{
    outlog_rollback(c->tx);
    ol_arena_clear(&c->arena);
}

static int compare_locations(const void *a, const void *b)
{
    const struct ol_message_location *one = a, *two = b;
    if (one->lane != two->lane)
        return one->lane < two->lane ? -1 : 1;
    return one->seq < two->seq ? -1 : one->seq > two->seq;
}

/* P1, P2. Sorts `locations`, which is also the order in which messages are changed. */
static int lock_lanes(struct admin_change *c, struct ol_message_location *locations, size_t count,
                      struct ol_message_state **messages, size_t *found)
{
    if (count)
        qsort(locations, count, sizeof *locations, compare_locations);
    if (outlog_begin(c->log, &c->tx, c->err) < 0)
        return -1;
    struct ol_buf lanes = {0};
    for (size_t i = 0; i < count; i++)
        if (i == 0 || locations[i].lane != locations[i - 1].lane)
            ol_buf_print(&lanes, "%s%d", i ? "," : "[", locations[i].lane);
    ol_buf_text(&lanes, count ? "]" : "[]");
    int touched = ol_store_exec(c->tx->conn, OL_Q_LANES_TOUCH, OL_PARAMS(ol_value_text(lanes.data)),
                                NULL, c->err);
    ol_buf_clear(&lanes);
    if (touched < 0)
        return -1;
    return ol_message_list_states(c->tx->conn, locations, count, false, &c->arena, messages, found,
                                  c->err);
}

static int commit_change(struct admin_change *c)
{
    outlog_tx *tx = c->tx;
    c->tx = NULL;
    return outlog_commit(tx, c->err);
}

/* Exactly one row must change: the lane is locked. */
static int change_row(struct admin_change *c, enum ol_query_id query, const struct ol_value *params,
                      const struct ol_message_state *message)
{
    int64_t changed;
    if (ol_store_exec(c->tx->conn, query, params, &changed, c->err) < 0)
        return -1;
    return changed == 1 ? 0
                        : ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                                  "message %s is not %s any more; read it again",
                                  message->view.event_id, message->view.state);
}

static int write_effect(struct admin_change *c, const struct ol_message_state *message,
                        enum ol_effect_step step, char *why)
{
    struct ol_claimed_message claimed = {
        .message = {.event_id = message->view.event_id,
                    .aggregate_type = message->view.aggregate_type}};
    bool is_written; // an operator's word counts even if the log refuses the effect's event (L8)
    if (!ol_effect_is_message(&claimed))
        return 0;
    claimed.outcome.kind = OUTLOG_PUBLISH_FAILED;
    claimed.error = why;
    return ol_effect_try(c->tx, &claimed, step, 0, &is_written, c->err);
}

/* P3: one event per message, all with the same correlation_id. */
static int append_audit(struct admin_change *c, const struct ol_message_state *messages,
                        size_t count, const char *(*event_type)(const struct ol_message_state *))
{
    struct outlog_new_event *events = ol_arena_array(&c->arena, count, sizeof *events);
    struct outlog_appended *appended = ol_arena_array(&c->arena, count, sizeof *appended);
    if (count == 0)
        return 0;
    if (!events || !appended)
        return ol_no_memory(c->err);
    for (size_t i = 0; i < count; i++) {
        events[i] =
            (struct outlog_new_event){.is_infrastructure = true,
                                      .aggregate_type = "outlog.message",
                                      .aggregate_id = messages[i].view.event_id,
                                      .event_type = event_type(&messages[i]),
                                      .payload = make_audit_payload(&messages[i], &c->arena),
                                      .actor_type = c->by->actor_type,
                                      .actor_id = c->by->actor_id,
                                      .request_id = c->by->request_id,
                                      .correlation_id = c->correlation_id};
        if (!events[i].payload)
            return ol_no_memory(c->err);
    }
    return ol_append_own(c->tx, events, count, appended, c->err);
}

/* Find messages by id, each once; one that does not exist fails the call. */
static int find_messages(struct admin_change *c, const char *const *ids, size_t count,
                         struct ol_message_location **locations, size_t *found)
{
    if (count > OL_ADMIN_IDS)
        return ol_fail(c->err, OUTLOG_INVALID_FIELD, "at most %d messages at a time", OL_ADMIN_IDS);
    if (ol_log_ready(c->log, c->err) < 0 ||
        ol_message_list_locate(c->log->conn, ids, count, &c->arena, locations, found, c->err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        char id[OL_UUID_TEXT];
        bool is_there = false;
        ol_uuid_parse(ids[i], id);
        for (size_t j = 0; j < *found && !is_there; j++)
            is_there = strcmp((*locations)[j].event_id, id) == 0;
        if (!is_there)
            return ol_fail(c->err, OUTLOG_NOT_FOUND, "there is no message %s", id);
    }
    qsort(*locations, *found, sizeof **locations, compare_locations);
    size_t kept = 0;
    for (size_t i = 0; i < *found; i++)
        if (kept == 0 || compare_locations(&(*locations)[kept - 1], &(*locations)[i]) != 0)
            (*locations)[kept++] = (*locations)[i];
    *found = kept;
    return 0;
}

/* --- requeue --- */

/* Numbers differ from message to message, so a group shows them as #; but a status is part of the
 * error. */
const char *ol_admin_error_pattern(const char *error, struct ol_arena *arena)
{
    char *text = ol_arena_copy(arena, error, strlen(error)), *to = text;
    for (const char *from = text; from && *from; from++) {
        bool is_status = from - text >= 5 && memcmp(from - 5, "HTTP ", 5) == 0;
        while (is_status && isdigit((unsigned char)*from))
            *to++ = *from++;
        if (!*from)
            break;
        if (isdigit((unsigned char)*from) && to > text && to[-1] == '#')
            continue;
        *to++ = isdigit((unsigned char)*from) ? '#' : *from;
    }
    if (text)
        *to = '\0';
    return text;
}

/* Is this the wanted error, exactly or as its group shows it? */
static bool has_error(struct admin_change *c, const struct ol_message_state *message,
                      const char *wanted)
{
    const char *error = message->view.last_error ? message->view.last_error : "";
    if (!wanted || strcmp(error, wanted) == 0)
        return true;
    const char *general = ol_admin_error_pattern(error, &c->arena);
    return general && strcmp(general, wanted) == 0;
}

static bool is_in(const struct ol_message_state *message, const char *state)
{
    return strcmp(message->view.state, state) == 0;
}

static int check_requeue(const struct ol_message_state *message, const struct outlog_requeue *how,
                         outlog_err *err)
{
    const struct outlog_message *view = &message->view;
    if (!is_in(message, "DEAD") && !is_in(message, "PUBLISHED"))
        return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION,
                       "message %s is %s: only DEAD and PUBLISHED messages are requeued",
                       view->event_id, view->state);
    if (message->is_unknown && !how->even_if_unknown)
        return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION,
                       "message %s is sent at most once and it is not known whether it arrived; "
                       "ask the receiver, then send it again with --even-if-unknown",
                       view->event_id);
    return 0;
}

static const char *requeue_event(const struct ol_message_state *message)
{
    return is_in(message, "PUBLISHED") ? "outlog.message.replayed" : "outlog.message.requeued";
}

static int requeue_message(struct admin_change *c, const struct ol_message_state *message)
{
    struct ol_value lane = ol_value_int(message->lane), seq = ol_value_int(message->seq);
    int result = message->is_parked
                     ? change_row(c, OL_Q_PARKED_REQUEUE,
                                  OL_PARAMS(lane, seq, ol_value_text(message->view.state)), message)
                     : change_row(c, OL_Q_PARKED_REPLAY, OL_PARAMS(lane, seq), message);
    return result < 0 ? -1 : write_effect(c, message, OL_EFFECT_REQUEUED, NULL);
}

/* What is done to each message that matches: whether it is allowed, the change, the type of its
 * audit event, and which of the others are counted as skipped. */
struct admin_operation {
    int (*check)(const struct ol_message_state *, const struct outlog_requeue *, outlog_err *);
    int (*apply)(struct admin_change *, const struct ol_message_state *);
    const char *(*event_type)(const struct ol_message_state *);
    bool (*is_skipped)(const struct ol_message_state *);
};

static bool has_unknown_outcome(const struct ol_message_state *message)
{
    return message->is_unknown;
}

static const struct admin_operation requeue_operation = {check_requeue, requeue_message,
                                                         requeue_event, has_unknown_outcome};

/* Apply an operation to these messages that have the error, if one is given, in one transaction. If
 * `skipped` is not NULL, messages that may not be changed are left alone and perhaps counted;
 * otherwise they fail the call. */
static int apply_operation(struct admin_change *c, struct ol_message_location *locations,
                           size_t count, const char *error, const struct admin_operation *operation,
                           const struct outlog_requeue *how, int64_t *done, int64_t *skipped)
{
    struct ol_message_state *messages;
    size_t found, kept = 0;
    if (lock_lanes(c, locations, count, &messages, &found) < 0)
        return -1;
    for (size_t i = 0; i < found; i++) {
        if (!has_error(c, &messages[i], error))
            continue;
        if (operation->check(&messages[i], how, c->err) < 0) {
            if (!skipped)
                return -1;
            *skipped += operation->is_skipped(&messages[i]);
            continue;
        }
        if (!how->dry_run && operation->apply(c, &messages[i]) < 0)
            return -1;
        messages[kept++] = messages[i];
    }
    if (how->dry_run) {
        outlog_rollback(c->tx);
        c->tx = NULL;
    } else if (append_audit(c, messages, kept, operation->event_type) < 0 || commit_change(c) < 0) {
        return -1;
    }
    for (size_t i = 0; i < kept && how->on_message; i++)
        how->on_message(how->user, messages[i].view.event_id);
    *done += (int64_t)kept;
    return 0;
}

int outlog_requeue_ids(outlog *log, const char *const *event_ids, size_t count,
                       const struct outlog_requeue *how, outlog_err *err)
{
    static const struct outlog_requeue plain;
    struct admin_change c;
    struct ol_message_location *locations = NULL;
    size_t found = 0;
    int64_t requeued = 0;
    int result = -1;

    if (!how)
        how = &plain;
    begin_change(&c, log, &how->by, err);
    if (find_messages(&c, event_ids, count, &locations, &found) == 0)
        result =
            apply_operation(&c, locations, found, NULL, &requeue_operation, how, &requeued, NULL);
    end_change(&c);
    return result;
}

/* The next chunk of a lane, in the order in which messages were created. */
static int read_chunk(struct admin_change *c, const struct outlog_message_filter *filter, int lane,
                      int64_t after, int64_t upto, struct ol_message_location *locations,
                      size_t *count)
{
    const struct ol_value destination = ol_value_optional(filter->destination),
                          type = ol_value_optional(filter->event_type),
                          since = filter->since ? ol_value_time(filter->since) : ol_value_absent(),
                          until = filter->until ? ol_value_time(filter->until) : ol_value_absent(),
                          retrying = filter->is_retrying ? ol_value_int(1) : ol_value_absent();
    // Only pending_after takes the last one.
    const struct ol_value params[] = {ol_value_int(lane),
                                      ol_value_int(after),
                                      ol_value_int(upto),
                                      ol_value_int(OL_ADMIN_CHUNK),
                                      destination,
                                      type,
                                      since,
                                      until,
                                      retrying};
    enum ol_query_id query = strcmp(filter->state, "DEAD") == 0        ? OL_Q_DEAD_AFTER
                             : strcmp(filter->state, "PUBLISHED") == 0 ? OL_Q_PUBLISHED_AFTER
                                                                       : OL_Q_PENDING_AFTER;
    struct ol_rows rows;
    int more;
    *count = 0;
    if (ol_store_query(c->log->conn, query, params, &rows, c->err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, c->err)) > 0 && *count < OL_ADMIN_CHUNK) {
        struct ol_message_location *location = &locations[(*count)++];
        ol_rows_uuid(&rows, 0, location->event_id);
        location->lane = lane;
        location->seq = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int apply_to_lane(struct admin_change *c, const struct outlog_message_filter *filter,
                         int lane, const struct admin_operation *operation,
                         const struct outlog_requeue *how, int64_t *done, int64_t *skipped)
{
    struct ol_message_location locations[OL_ADMIN_CHUNK];
    int64_t after = 0, upto;
    size_t count;
    // Messages that are created, die or are published from here on are not meant.
    if (ol_store_number(c->log->conn, OL_Q_LANE_NEWEST, OL_PARAMS(ol_value_int(lane)), &upto,
                        c->err) < 0)
        return -1;
    if (filter->since) {
        if (ol_message_list_seq_at(c->log->conn, lane, filter->since, &after, c->err) < 0)
            return -1;
        after--;
    }
    do {
        if (read_chunk(c, filter, lane, after, upto, locations, &count) < 0)
            return -1;
        if (count == 0)
            break;
        after = locations[count - 1].seq;
        if (apply_operation(c, locations, count, filter->error, operation, how, done, skipped) < 0)
            return -1;
        ol_arena_reset(&c->arena);
    } while (count == OL_ADMIN_CHUNK);
    return 0;
}

/* All that match, lane by lane; sets *done and *skipped (either may be NULL) also after an
 * error. */
static int apply_to_all(outlog *log, const struct outlog_message_filter *filter,
                        const struct admin_operation *operation, const struct outlog_requeue *how,
                        int64_t *done, int64_t *skipped, outlog_err *err)
{
    struct admin_change c;
    int lanes[OL_LANE_MAX], result = -1;
    size_t count = 0;
    int64_t moved = 0, left = 0;

    begin_change(&c, log, &how->by, err);
    if (ol_log_ready(log, err) < 0 || ol_message_list_lanes(log->conn, lanes, &count, err) < 0)
        goto out;
    for (size_t i = 0; i < count; i++)
        if (apply_to_lane(&c, filter, lanes[i], operation, how, &moved, &left) < 0)
            goto out;
    result = 0;
out:
    if (done)
        *done = moved;
    if (skipped)
        *skipped = left;
    end_change(&c);
    return result;
}

int outlog_requeue_all(outlog *log, const struct outlog_message_filter *filter,
                       const struct outlog_requeue *how, int64_t *requeued, int64_t *skipped,
                       outlog_err *err)
{
    static const struct outlog_requeue plain;
    struct outlog_message_filter which = *filter;

    if (!which.state)
        which.state = "DEAD";
    if (strcmp(which.state, "DEAD") != 0 && strcmp(which.state, "PUBLISHED") != 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/state",
                          "only DEAD and PUBLISHED messages are requeued, not '%.40s'",
                          which.state);
    return apply_to_all(log, &which, &requeue_operation, how ? how : &plain, requeued, skipped,
                        err);
}

/* --- kill --- */

static const char *kill_event(const struct ol_message_state *message)
{
    (void)message;
    return "outlog.message.killed";
}

static int check_kill(const struct ol_message_state *message, const struct outlog_requeue *how,
                      outlog_err *err)
{
    (void)how;
    return is_in(message, "PENDING")
               ? 0
               : ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "message %s is %s: %s",
                         message->view.event_id, message->view.state,
                         is_in(message, "CLAIMED") ? "it is being sent; wait for its outcome"
                                                   : "only PENDING messages can be killed");
}

/* A message becomes DEAD only from CLAIMED. Nobody sees it in that state: it is one transaction. */
static int kill_message(struct admin_change *c, const struct ol_message_state *message)
{
    struct ol_value lane = ol_value_int(message->lane), seq = ol_value_int(message->seq);
    if (check_kill(message, NULL, c->err) < 0)
        return -1;
    char *why = ol_arena_print(&c->arena, "killed by %s", c->who);
    const char *operator= ol_arena_print(&c->arena, "operator:%s", c->who);
    if (!operator|| !why)
        return ol_no_memory(c->err);
    if ((!message->is_parked &&
         change_row(c, OL_Q_PARKED_WAITING, OL_PARAMS(lane, seq), message) < 0) ||
        change_row(c, OL_Q_PARKED_KILL_BEGIN, OL_PARAMS(lane, seq, ol_value_text(operator)),
                   message) < 0 ||
        change_row(c, OL_Q_PARKED_KILL_END,
                   OL_PARAMS(lane, seq, ol_value_text(operator), ol_value_text(why)), message) < 0)
        return -1;
    return write_effect(c, message, OL_EFFECT_KILLED, why);
}

static bool is_claimed(const struct ol_message_state *message)
{
    return is_in(message, "CLAIMED");
}

int outlog_kill_all(outlog *log, const struct outlog_message_filter *filter,
                    const struct outlog_requeue *how, int64_t *killed, int64_t *skipped,
                    outlog_err *err)
{
    static const struct admin_operation kill_operation = {check_kill, kill_message, kill_event,
                                                          is_claimed};
    static const struct outlog_requeue plain;
    struct outlog_message_filter which = *filter;

    if (which.state && strcmp(which.state, "PENDING") != 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/state",
                          "only PENDING messages are killed, not '%.40s'", which.state);
    which.state = "PENDING";
    return apply_to_all(log, &which, &kill_operation, how ? how : &plain, killed, skipped, err);
}

/* --- release --- */

static const char *release_event(const struct ol_message_state *message)
{
    (void)message;
    return "outlog.key.released";
}

static int release_key(struct admin_change *c, const struct ol_message_state *message)
{
    if (!message->view.is_held)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION, "message %s holds no key back: it is %s",
                       message->view.event_id, message->view.state);
    return change_row(c, OL_Q_PARKED_RELEASE,
                      OL_PARAMS(ol_value_int(message->lane), ol_value_int(message->seq)), message);
}

static int apply_to_ids(outlog *log, const char *const *ids, size_t count,
                        const struct outlog_operator *by,
                        int (*apply)(struct admin_change *, const struct ol_message_state *),
                        const char *(*event_type)(const struct ol_message_state *), outlog_err *err)
{
    struct admin_change c;
    struct ol_message_location *locations = NULL;
    struct ol_message_state *messages = NULL;
    size_t found = 0, message_count = 0;
    int result = -1;

    begin_change(&c, log, by, err);
    if (find_messages(&c, ids, count, &locations, &found) < 0 ||
        lock_lanes(&c, locations, found, &messages, &message_count) < 0)
        goto out;
    for (size_t i = 0; i < message_count; i++)
        if (apply(&c, &messages[i]) < 0)
            goto out;
    if (append_audit(&c, messages, message_count, event_type) == 0)
        result = commit_change(&c);
out:
    end_change(&c);
    return result;
}

int outlog_kill(outlog *log, const char *const *event_ids, size_t count,
                const struct outlog_operator *by, outlog_err *err)
{
    return apply_to_ids(log, event_ids, count, by, kill_message, kill_event, err);
}

int outlog_release_keys(outlog *log, const char *const *event_ids, size_t count,
                        const struct outlog_operator *by, outlog_err *err)
{
    return apply_to_ids(log, event_ids, count, by, release_key, release_event, err);
}
