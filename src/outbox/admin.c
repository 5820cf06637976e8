/* admin.c: requeue, kill, release.
 *
 * P1  A change begins by touching the lanes it is about, in ascending order: that is the lock, and
 * it tells the owner that parked rows are not as it knows them (rules 1, 9). P2  What a message is,
 * is read after that, and it moves only from there. P3  The audit event is in the same transaction
 * (X4): no change without it, and none without a change. */
#include "outbox/admin.h"

#include "base/buf.h"
#include "outbox/effect.h"
#include "outbox/message_list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ids and numbers only: an error text or a header might hold what an event must not. */
static const char *message_payload(const struct ol_message_state *standing, struct ol_arena *arena)
{
    const struct outlog_message *view = &standing->view;
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

struct change {
    outlog *log;
    outlog_tx *tx;
    const struct outlog_operator *by;
    char who[180]; /* "user:u-7" */
    struct ol_arena arena;
    char correlation_id[OL_UUID_TEXT];
    outlog_err *err;
};

static void change_open(struct change *c, outlog *log, const struct outlog_operator *by,
                        outlog_err *err)
{
    static const struct outlog_operator nobody;
    *c = (struct change){.log = log, .by = by ? by : &nobody, .err = err};
    snprintf(c->who, sizeof c->who, "%.40s:%.120s",
             c->by->actor_type ? c->by->actor_type : "system",
             c->by->actor_id ? c->by->actor_id : "system");
    ol_uuid_make(c->correlation_id);
}

static void change_close(struct change *c)
{
    outlog_rollback(c->tx);
    ol_arena_clear(&c->arena);
}

static int by_place(const void *a, const void *b)
{
    const struct ol_message_location *one = a, *two = b;
    if (one->lane != two->lane)
        return one->lane < two->lane ? -1 : 1;
    return one->seq < two->seq ? -1 : one->seq > two->seq;
}

/* P1, P2. `places` are sorted here, which is also the order in which messages are changed. */
static int lock(struct change *c, struct ol_message_location *places, size_t count,
                struct ol_message_state **standing, size_t *found)
{
    if (count)
        qsort(places, count, sizeof *places, by_place);
    if (outlog_begin(c->log, &c->tx, c->err) < 0)
        return -1;
    struct ol_buf lanes = {0};
    for (size_t i = 0; i < count; i++)
        if (i == 0 || places[i].lane != places[i - 1].lane)
            ol_buf_print(&lanes, "%s%d", i ? "," : "[", places[i].lane);
    ol_buf_text(&lanes, count ? "]" : "[]");
    int touched = ol_store_exec(c->tx->conn, OL_Q_LANES_TOUCH, OL_PARAMS(ol_value_text(lanes.data)),
                                NULL, c->err);
    ol_buf_clear(&lanes);
    if (touched < 0)
        return -1;
    return ol_message_list_states(c->tx->conn, places, count, false, &c->arena, standing, found,
                                  c->err);
}

static int unlock(struct change *c)
{
    outlog_tx *tx = c->tx;
    c->tx = NULL;
    return outlog_commit(tx, c->err);
}

/* One row must change: it is ours to change, for the lane is locked. */
static int write_one(struct change *c, enum ol_query_id query, const struct ol_value *params,
                     const struct ol_message_state *standing)
{
    int64_t changed;
    if (ol_store_exec(c->tx->conn, query, params, &changed, c->err) < 0)
        return -1;
    return changed == 1 ? 0
                        : ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION,
                                  "message %s is not %s any more; look at it again",
                                  standing->view.event_id, standing->view.state);
}

static int tell_effect(struct change *c, const struct ol_message_state *standing,
                       enum ol_effect_step step, char *why)
{
    struct ol_claimed_message item = {.message = {.event_id = standing->view.event_id,
                                                  .aggregate_type = standing->view.aggregate_type}};
    if (!ol_effect_is_message(&item))
        return 0;
    item.outcome.kind = OUTLOG_PUBLISH_FAILED;
    item.error = why;
    return ol_effect_write(c->tx, &item, step, 0, c->err);
}

/* P3: one event a message, all with the same correlation_id. */
static int audit(struct change *c, const struct ol_message_state *standing, size_t count,
                 const char *(*event_type)(const struct ol_message_state *))
{
    struct outlog_new_event *events = ol_arena_array(&c->arena, count, sizeof *events);
    struct outlog_appended *appended = ol_arena_array(&c->arena, count, sizeof *appended);
    if (count == 0)
        return 0;
    if (!events || !appended)
        return ol_no_memory(c->err);
    for (size_t i = 0; i < count; i++) {
        events[i] = (struct outlog_new_event){.is_infrastructure = true,
                                              .aggregate_type = "outlog.message",
                                              .aggregate_id = standing[i].view.event_id,
                                              .event_type = event_type(&standing[i]),
                                              .payload = message_payload(&standing[i], &c->arena),
                                              .actor_type = c->by->actor_type,
                                              .actor_id = c->by->actor_id,
                                              .request_id = c->by->request_id,
                                              .correlation_id = c->correlation_id};
        if (!events[i].payload)
            return ol_no_memory(c->err);
    }
    return outlog_append_many(c->tx, events, count, appended, c->err);
}

/* Messages by id, each once; one that does not exist fails the call. */
static int find(struct change *c, const char *const *ids, size_t count,
                struct ol_message_location **places, size_t *found)
{
    if (count > OL_ADMIN_IDS)
        return ol_fail(c->err, OUTLOG_INVALID_FIELD, "at most %d messages at a time", OL_ADMIN_IDS);
    if (ol_log_ready(c->log, c->err) < 0 ||
        ol_message_list_locate(c->log->conn, ids, count, &c->arena, places, found, c->err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        char id[OL_UUID_TEXT];
        bool is_there = false;
        ol_uuid_parse(ids[i], id);
        for (size_t j = 0; j < *found && !is_there; j++)
            is_there = strcmp((*places)[j].event_id, id) == 0;
        if (!is_there)
            return ol_fail(c->err, OUTLOG_NOT_FOUND, "there is no message %s", id);
    }
    qsort(*places, *found, sizeof **places, by_place);
    size_t kept = 0;
    for (size_t i = 0; i < *found; i++)
        if (kept == 0 || by_place(&(*places)[kept - 1], &(*places)[i]) != 0)
            (*places)[kept++] = (*places)[i];
    *found = kept;
    return 0;
}

/* --- requeue --- */

/* Numbers differ from message to message, so they are one in a group; but a status is what went
 * wrong. */
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

/* Is it the error that is asked for, word for word or as its group says it? */
static bool has_error(struct change *c, const struct ol_message_state *standing, const char *wanted)
{
    const char *error = standing->view.last_error ? standing->view.last_error : "";
    if (!wanted || strcmp(error, wanted) == 0)
        return true;
    const char *general = ol_admin_error_pattern(error, &c->arena);
    return general && strcmp(general, wanted) == 0;
}

static bool is_in(const struct ol_message_state *standing, const char *state)
{
    return strcmp(standing->view.state, state) == 0;
}

static int check_requeue(const struct ol_message_state *standing, const struct outlog_requeue *how,
                         outlog_err *err)
{
    const struct outlog_message *view = &standing->view;
    if (!is_in(standing, "DEAD") && !is_in(standing, "PUBLISHED"))
        return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION,
                       "message %s is %s: only DEAD and PUBLISHED messages are requeued",
                       view->event_id, view->state);
    if (standing->is_unknown && !how->even_if_unknown)
        return ol_fail(err, OUTLOG_ILLEGAL_TRANSITION,
                       "message %s goes at most once and nobody knows whether it arrived; ask the "
                       "receiver, then send it all the same with --even-if-unknown",
                       view->event_id);
    return 0;
}

static const char *requeue_event(const struct ol_message_state *standing)
{
    return is_in(standing, "PUBLISHED") ? "outlog.message.replayed" : "outlog.message.requeued";
}

static int requeue_one(struct change *c, const struct ol_message_state *standing)
{
    struct ol_value lane = ol_value_int(standing->lane), seq = ol_value_int(standing->seq);
    int result = standing->is_parked
                     ? write_one(c, OL_Q_PARKED_REQUEUE,
                                 OL_PARAMS(lane, seq, ol_value_text(standing->view.state)),
                                 standing)
                     : write_one(c, OL_Q_PARKED_REPLAY, OL_PARAMS(lane, seq), standing);
    return result < 0 ? -1 : tell_effect(c, standing, OL_EFFECT_REQUEUED, NULL);
}

/* What is done to each message that fits: may it be, the doing, the event it leaves, and what of
 * the rest is worth telling. */
struct deed {
    int (*check)(const struct ol_message_state *, const struct outlog_requeue *, outlog_err *);
    int (*one)(struct change *, const struct ol_message_state *);
    const char *(*event_type)(const struct ol_message_state *);
    bool (*is_skipped)(const struct ol_message_state *);
};

static bool is_of_unknown_outcome(const struct ol_message_state *standing)
{
    return standing->is_unknown;
}

static const struct deed requeueing = {check_requeue, requeue_one, requeue_event,
                                       is_of_unknown_outcome};

/* Do it to these that have the error, if one is asked for, in one transaction. When `skipped` is
 * there, what may not be done is left alone and perhaps counted; else it fails the call. */
static int operate(struct change *c, struct ol_message_location *places, size_t count,
                   const char *error, const struct deed *deed, const struct outlog_requeue *how,
                   int64_t *done, int64_t *skipped)
{
    struct ol_message_state *standing;
    size_t found, kept = 0;
    if (lock(c, places, count, &standing, &found) < 0)
        return -1;
    for (size_t i = 0; i < found; i++) {
        if (!has_error(c, &standing[i], error))
            continue;
        if (deed->check(&standing[i], how, c->err) < 0) {
            if (!skipped)
                return -1;
            *skipped += deed->is_skipped(&standing[i]);
            continue;
        }
        if (!how->dry_run && deed->one(c, &standing[i]) < 0)
            return -1;
        standing[kept++] = standing[i];
    }
    if (how->dry_run) {
        outlog_rollback(c->tx);
        c->tx = NULL;
    } else if (audit(c, standing, kept, deed->event_type) < 0 || unlock(c) < 0) {
        return -1;
    }
    for (size_t i = 0; i < kept && how->on_message; i++)
        how->on_message(how->user, standing[i].view.event_id);
    *done += (int64_t)kept;
    return 0;
}

int outlog_requeue_ids(outlog *log, const char *const *event_ids, size_t count,
                       const struct outlog_requeue *how, outlog_err *err)
{
    static const struct outlog_requeue plain;
    struct change c;
    struct ol_message_location *places = NULL;
    size_t found = 0;
    int64_t requeued = 0;
    int result = -1;

    if (!how)
        how = &plain;
    change_open(&c, log, &how->by, err);
    if (find(&c, event_ids, count, &places, &found) == 0)
        result = operate(&c, places, found, NULL, &requeueing, how, &requeued, NULL);
    change_close(&c);
    return result;
}

/* The next chunk of a lane, in the order the messages were made. */
static int next_chunk(struct change *c, const struct outlog_message_filter *filter, int lane,
                      int64_t after, int64_t upto, struct ol_message_location *places,
                      size_t *count)
{
    const struct ol_value destination = ol_value_optional(filter->destination),
                          type = ol_value_optional(filter->event_type),
                          since = filter->since ? ol_value_time(filter->since) : ol_value_absent(),
                          until = filter->until ? ol_value_time(filter->until) : ol_value_absent(),
                          retrying = filter->is_retrying ? ol_value_int(1) : ol_value_absent();
    // Only pending_after knows the last one.
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
        struct ol_message_location *place = &places[(*count)++];
        ol_rows_uuid(&rows, 0, place->event_id);
        place->lane = lane;
        place->seq = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int operate_lane(struct change *c, const struct outlog_message_filter *filter, int lane,
                        const struct deed *deed, const struct outlog_requeue *how, int64_t *done,
                        int64_t *skipped)
{
    struct ol_message_location places[OL_ADMIN_CHUNK];
    int64_t after = 0, upto;
    size_t count;
    // What is made, dies or is published from here on is not meant.
    if (ol_store_number(c->log->conn, OL_Q_LANE_NEWEST, OL_PARAMS(ol_value_int(lane)), &upto,
                        c->err) < 0)
        return -1;
    if (filter->since) {
        if (ol_message_list_seq_at(c->log->conn, lane, filter->since, &after, c->err) < 0)
            return -1;
        after--;
    }
    do {
        if (next_chunk(c, filter, lane, after, upto, places, &count) < 0)
            return -1;
        if (count == 0)
            break;
        after = places[count - 1].seq;
        if (operate(c, places, count, filter->error, deed, how, done, skipped) < 0)
            return -1;
        ol_arena_reset(&c->arena);
    } while (count == OL_ADMIN_CHUNK);
    return 0;
}

/* All that match, lane by lane; *done and *skipped (either may be NULL) also after an error. */
static int operate_all(outlog *log, const struct outlog_message_filter *filter,
                       const struct deed *deed, const struct outlog_requeue *how, int64_t *done,
                       int64_t *skipped, outlog_err *err)
{
    struct change c;
    int lanes[OL_LANE_MAX], result = -1;
    size_t count = 0;
    int64_t moved = 0, left = 0;

    change_open(&c, log, &how->by, err);
    if (ol_log_ready(log, err) < 0 || ol_message_list_lanes(log->conn, lanes, &count, err) < 0)
        goto out;
    for (size_t i = 0; i < count; i++)
        if (operate_lane(&c, filter, lanes[i], deed, how, &moved, &left) < 0)
            goto out;
    result = 0;
out:
    if (done)
        *done = moved;
    if (skipped)
        *skipped = left;
    change_close(&c);
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
    return operate_all(log, &which, &requeueing, how ? how : &plain, requeued, skipped, err);
}

/* --- kill --- */

static const char *kill_event(const struct ol_message_state *standing)
{
    (void)standing;
    return "outlog.message.killed";
}

static int check_kill(const struct ol_message_state *standing, const struct outlog_requeue *how,
                      outlog_err *err)
{
    (void)how;
    return is_in(standing, "PENDING")
               ? 0
               : ol_fail(err, OUTLOG_ILLEGAL_TRANSITION, "message %s is %s: %s",
                         standing->view.event_id, standing->view.state,
                         is_in(standing, "CLAIMED") ? "it is on its way; wait for what comes of it"
                                                    : "only what is PENDING can be killed");
}

/* There is no way from PENDING to DEAD but through CLAIMED, and nobody sees it there. */
static int kill_one(struct change *c, const struct ol_message_state *standing)
{
    struct ol_value lane = ol_value_int(standing->lane), seq = ol_value_int(standing->seq);
    if (check_kill(standing, NULL, c->err) < 0)
        return -1;
    char *why = ol_arena_print(&c->arena, "killed by %s", c->who);
    const char *operator= ol_arena_print(&c->arena, "operator:%s", c->who);
    if (!operator|| !why)
        return ol_no_memory(c->err);
    if ((!standing->is_parked &&
         write_one(c, OL_Q_PARKED_WAITING, OL_PARAMS(lane, seq), standing) < 0) ||
        write_one(c, OL_Q_PARKED_SEIZE, OL_PARAMS(lane, seq, ol_value_text(operator)), standing) <
            0 ||
        write_one(c, OL_Q_PARKED_BURY,
                  OL_PARAMS(lane, seq, ol_value_text(operator), ol_value_text(why)), standing) < 0)
        return -1;
    return tell_effect(c, standing, OL_EFFECT_KILLED, why);
}

static bool is_on_its_way(const struct ol_message_state *standing)
{
    return is_in(standing, "CLAIMED");
}

int outlog_kill_all(outlog *log, const struct outlog_message_filter *filter,
                    const struct outlog_requeue *how, int64_t *killed, int64_t *skipped,
                    outlog_err *err)
{
    static const struct deed killing = {check_kill, kill_one, kill_event, is_on_its_way};
    static const struct outlog_requeue plain;
    struct outlog_message_filter which = *filter;

    if (which.state && strcmp(which.state, "PENDING") != 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/state",
                          "only PENDING messages are killed, not '%.40s'", which.state);
    which.state = "PENDING";
    return operate_all(log, &which, &killing, how ? how : &plain, killed, skipped, err);
}

/* --- release --- */

static const char *release_event(const struct ol_message_state *standing)
{
    (void)standing;
    return "outlog.key.released";
}

static int release_one(struct change *c, const struct ol_message_state *standing)
{
    if (!standing->view.is_held)
        return ol_fail(c->err, OUTLOG_ILLEGAL_TRANSITION, "message %s holds no key back: it is %s",
                       standing->view.event_id, standing->view.state);
    return write_one(c, OL_Q_PARKED_RELEASE,
                     OL_PARAMS(ol_value_int(standing->lane), ol_value_int(standing->seq)),
                     standing);
}

static int each(outlog *log, const char *const *ids, size_t count, const struct outlog_operator *by,
                int (*one)(struct change *, const struct ol_message_state *),
                const char *(*event_type)(const struct ol_message_state *), outlog_err *err)
{
    struct change c;
    struct ol_message_location *places = NULL;
    struct ol_message_state *standing = NULL;
    size_t found = 0, standing_count = 0;
    int result = -1;

    change_open(&c, log, by, err);
    if (find(&c, ids, count, &places, &found) < 0 ||
        lock(&c, places, found, &standing, &standing_count) < 0)
        goto out;
    for (size_t i = 0; i < standing_count; i++)
        if (one(&c, &standing[i]) < 0)
            goto out;
    if (audit(&c, standing, standing_count, event_type) == 0)
        result = unlock(&c);
out:
    change_close(&c);
    return result;
}

int outlog_kill(outlog *log, const char *const *event_ids, size_t count,
                const struct outlog_operator *by, outlog_err *err)
{
    return each(log, event_ids, count, by, kill_one, kill_event, err);
}

int outlog_release_keys(outlog *log, const char *const *event_ids, size_t count,
                        const struct outlog_operator *by, outlog_err *err)
{
    return each(log, event_ids, count, by, release_one, release_event, err);
}
