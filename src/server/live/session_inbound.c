/* session_inbound.c: the queue of a channel's messages and its batches; acknowledgements. */
#include "server/live/session_inbound.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/json/json.h"
#include "base/uuid.h"
#include "log/log.h"
#include "outbox/batcher.h"
#include "server/live/session_outbound.h"
#include "server/server.h"
#include "sessions/dedupe.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MESSAGES_MAX = 64, MESSAGE_TRIES_MAX = 20 };
enum { FIRST_APPENDS_MAX = 4, FIRST_APPEND_LOCK_MS = 20 };

/* A user_message that is not answered yet. */
struct inbound_message {
    struct inbound_message *next;
    struct ol_session_channel *channel;
    uint64_t subscriber_id;
    const char *request_id;
    struct outlog_new_event event;
    struct ol_arena arena;
    int64_t expected; /* event.expected_seq points here */
    int64_t seq;      /* 0: not stored */
    int tries;
};

struct message_queue {
    struct inbound_message *first, **last;
};

/* Messages of a channel that are stored together, one batch of a channel at a time: all of them are
 * stored or none. If they were on their way one by one, another process could take the seq of one
 * that is refused, and the next would be stored behind an event that was not read. */
struct inbound_batch {
    struct ol_job job; /* first */
    struct ol_session_channel *channel;
    struct message_queue messages;
    bool reads_history;    /* it is a job of a worker, else of the batcher */
    bool may_append;       /* the worker appends it too */
    bool has_expected_seq; /* false: the event's id prevents a second one */
    struct ol_batcher_command command;
    char event_id[37];
    struct outlog_new_event events[];
};

/* What a channel has received. While `is_storing`, `dedupe` and `is_known` belong to the batch. */
struct ol_session_inbound {
    struct ol_dedupe dedupe;
    bool is_known; /* `dedupe` has all events of the session, as far as is known */
    bool is_storing, is_processing;
    struct message_queue waiting;
    struct inbound_batch *spare; /* for the next single message, as most are */
};

static void push_message(struct message_queue *queue, struct inbound_message *message)
{
    message->next = NULL;
    *queue->last = message;
    queue->last = &message->next;
}

static struct inbound_message *pop_message(struct message_queue *queue)
{
    struct inbound_message *message = queue->first;
    if (message && !(queue->first = message->next))
        queue->last = &queue->first;
    return message;
}

/* Before the messages that came later. */
static void put_back(struct message_queue *queue, struct message_queue *from)
{
    if (!from->first)
        return;
    *from->last = queue->first;
    if (!queue->first)
        queue->last = from->last;
    queue->first = from->first;
}

static struct ol_session_sockets *find_sockets(const struct ol_session_channel *channel)
{
    return (struct ol_session_sockets *)channel->channel.channels;
}

/* --- answers --- */

static void free_message(struct inbound_message *message)
{
    ol_arena_clear(&message->arena);
    free(message);
}

/* Answer its client, if it is still there, and free it. err NULL: it is accepted. */
static void answer_message(struct inbound_message *message, const outlog_err *err)
{
    struct ol_channel *channel = &message->channel->channel;
    struct ol_subscriber *subscriber = ol_channel_subscriber(channel, message->subscriber_id);

    if (subscriber)
        ol_subscriber_finish(subscriber);
    if (subscriber && !err)
        ol_session_outbound_send_accepted(subscriber, message->request_id, message->seq);
    else if (subscriber)
        ol_session_outbound_send_error(subscriber, outlog_code_name(err->code), message->request_id,
                                       err->message);
    free_message(message);
    ol_channel_release(channel);
}

static void refuse_all(struct message_queue *queue, const outlog_err *err)
{
    struct inbound_message *message;
    while ((message = pop_message(queue)))
        answer_message(message, err);
}

/* --- a batch --- */

static void free_batch(struct ol_session_inbound *inbound, struct inbound_batch *batch)
{
    if (batch && batch->command.event_count == 1 && !inbound->spare)
        inbound->spare = batch;
    else
        free(batch);
}

static bool is_repeated(const struct inbound_message *message, const struct inbound_message *first)
{
    while (first != message && strcmp(first->request_id, message->request_id) != 0)
        first = first->next;
    return first != message;
}

/* How many waiting messages go together: the first, and those behind it that have different request
 * ids, are not known to be stored, and fit into `dedupe` afterwards. */
static size_t count_batch(const struct ol_session_inbound *inbound)
{
    size_t count = 1, max = (size_t)(OL_DEDUPE_MAX - inbound->dedupe.upto);
    for (const struct inbound_message *one = inbound->waiting.first->next;
         one && count < BATCH_MESSAGES_MAX && count < max &&
         !ol_dedupe_seq(&inbound->dedupe, one->request_id) &&
         !is_repeated(one, inbound->waiting.first);
         one = one->next)
        count++;
    return count;
}

static bool store_first_batch(struct ol_job *job);
static void on_committed(struct ol_batcher_command *command, int result);

/* Takes the next messages from the queue. NULL: no memory. */
static struct inbound_batch *new_batch(struct ol_session_channel *channel)
{
    struct ol_session_inbound *inbound = channel->inbound;
    bool is_in_dedupe = inbound->dedupe.upto < OL_DEDUPE_MAX;
    size_t count = is_in_dedupe ? count_batch(inbound) : 1;
    struct inbound_batch *batch = count == 1 ? inbound->spare : NULL;

    if (batch)
        inbound->spare = NULL;
    else if (!(batch = malloc(sizeof *batch + count * sizeof *batch->events)))
        return NULL;
    *batch = (struct inbound_batch){.job = {.type = OL_JOB_SESSION_BATCH, .run = store_first_batch},
                                    .channel = channel,
                                    .messages = {NULL, &batch->messages.first},
                                    .reads_history = !inbound->is_known,
                                    .has_expected_seq = is_in_dedupe,
                                    .command = {.events = batch->events,
                                                .event_count = count,
                                                .done = on_committed,
                                                .user = batch}};
    // When many sessions begin at once, one transaction of the batcher is faster than one for each.
    batch->may_append = find_sockets(channel)->first_batches < FIRST_APPENDS_MAX;
    while (count--)
        push_message(&batch->messages, pop_message(&inbound->waiting));
    return batch;
}

/* Fill batch->events with the messages that are not stored yet, as the events that follow what is
 * in `dedupe`; returns how many. */
static size_t number_events(struct inbound_batch *batch)
{
    const struct ol_dedupe *dedupe = &batch->channel->inbound->dedupe;
    size_t count = 0;
    for (struct inbound_message *one = batch->messages.first; one; one = one->next) {
        if ((one->seq = ol_dedupe_seq(dedupe, one->request_id)))
            continue;
        struct outlog_new_event *event = &batch->events[count];
        *event = one->event;
        one->expected = dedupe->upto + (int64_t)count++;
        event->expected_seq = &one->expected;
    }
    return count;
}

static void set_seqs(struct inbound_batch *batch, const struct outlog_appended *appended)
{
    for (struct inbound_message *one = batch->messages.first; one; one = one->next)
        if (!one->seq)
            one->seq = appended++->aggregate_seq;
}

/* --- the first batch: on a worker --- */

/* Messages that are not appended here keep seq 0 and go to the batcher. After a failure it finds
 * out why: an invalid message among others, a lock, or another process that was faster. */
static bool store_first_batch(struct ol_job *job)
{
    struct inbound_batch *batch = (struct inbound_batch *)job;
    const struct ol_channel *channel = &batch->channel->channel;
    struct ol_session_inbound *inbound = batch->channel->inbound;
    struct outlog_appended appended[BATCH_MESSAGES_MAX];
    outlog_err err;

    job->result =
        ol_dedupe_load(&inbound->dedupe, job->log, channel->org_id, channel->name, &job->err);
    inbound->is_known = job->result == 0;
    if (job->result < 0)
        return true;
    size_t count = number_events(batch);
    if (count == 0 || !batch->may_append || inbound->dedupe.upto + (int64_t)count > OL_DEDUPE_MAX)
        return true;
    if (ol_append_autocommit(job->log, batch->events, count, FIRST_APPEND_LOCK_MS, appended,
                             &err) == 0) {
        set_seqs(batch, appended);
    } else if (err.code == OUTLOG_OUTCOME_UNKNOWN) {
        job->err = err;
        job->result = -1;
    }
    return true;
}

/* --- later batches: by the batcher --- */

/* On the batcher's thread. */
static void on_committed(struct ol_batcher_command *command, int result)
{
    struct inbound_batch *batch = command->user;
    // An id computed from the request: the event with this id is the first one, whatever its text.
    bool is_repeat = result < 0 && command->err.code == OUTLOG_ID_CONFLICT && command->err.actual;
    batch->job.result = is_repeat ? 0 : result;
    if (is_repeat)
        batch->messages.first->seq = command->err.actual;
    else if (result == 0)
        set_seqs(batch, command->appended);
    else
        batch->job.err = command->err;
    ol_server_finish_job(batch->channel->channel.channels->server, &batch->job);
}

static bool submit_batch(struct inbound_batch *batch, outlog_err *err)
{
    const struct ol_channel *channel = &batch->channel->channel;
    struct ol_batcher *batcher = channel->channels->server->batcher;

    if (batch->has_expected_seq) {
        number_events(batch);
    } else {
        struct inbound_message *message = batch->messages.first;
        ol_session_message_id(channel->org_id, channel->name, message->request_id, batch->event_id);
        batch->events[0] = message->event;
        batch->events[0].id = batch->event_id;
    }
    if (batcher)
        return ol_batcher_submit(batcher, &batch->command, err) == 0;
    ol_fail(err, OUTLOG_UNAVAILABLE, "the server is stopping; send it to another one");
    return false;
}

/* --- back in the loop --- */

static bool has_stored(const struct inbound_batch *batch)
{
    const struct inbound_message *message = batch->messages.first;
    while (message && !message->seq)
        message = message->next;
    return message != NULL;
}

static void accept_messages(struct ol_session_channel *channel, struct inbound_batch *batch)
{
    struct ol_session_inbound *inbound = channel->inbound;
    struct message_queue not_stored = {NULL, &not_stored.first};
    struct inbound_message *message;

    if (has_stored(batch)) // first, so that this daemon takes the session before another does
        ol_agent_runner_hint(find_sockets(channel)->runner, channel->channel.org_id,
                             channel->channel.name);
    while ((message = pop_message(&batch->messages))) {
        if (!message->seq) {
            push_message(&not_stored, message);
            continue;
        }
        if (batch->has_expected_seq && inbound->is_known && message->seq > inbound->dedupe.upto)
            inbound->is_known = ol_dedupe_add(&inbound->dedupe, message->request_id, message->seq);
        answer_message(message, NULL);
    }
    put_back(&inbound->waiting, &not_stored);
}

/* Another process appended first: its events are read, and every message is checked again. */
static void retry_messages(struct ol_session_inbound *inbound, struct inbound_batch *batch)
{
    struct message_queue again = {NULL, &again.first};
    struct inbound_message *message;
    inbound->is_known = false;
    while ((message = pop_message(&batch->messages)))
        if (++message->tries < MESSAGE_TRIES_MAX)
            push_message(&again, message);
        else
            answer_message(message, &batch->job.err);
    put_back(&inbound->waiting, &again);
}

/* One of several is invalid: store the others without it. */
static void drop_message(struct ol_session_inbound *inbound, struct inbound_batch *batch)
{
    struct message_queue again = {NULL, &again.first};
    struct inbound_message *message;
    for (int i = 0; (message = pop_message(&batch->messages)); i++)
        if (i != batch->job.err.index)
            push_message(&again, message);
        else
            answer_message(message, &batch->job.err);
    put_back(&inbound->waiting, &again);
}

static void refuse_batch(struct ol_session_inbound *inbound, struct inbound_batch *batch)
{
    const outlog_err *err = &batch->job.err;
    inbound->is_known = false; // it may be stored all the same
    refuse_all(&batch->messages, err);
    if (batch->reads_history && err->code != OUTLOG_OUTCOME_UNKNOWN)
        refuse_all(&inbound->waiting, err); // the history cannot be read for them either
}

static void process_queue(struct ol_session_channel *channel);

void ol_session_inbound_on_stored(struct ol_job *job)
{
    struct inbound_batch *batch = (struct inbound_batch *)job;
    struct ol_session_channel *channel = batch->channel;
    struct ol_session_inbound *inbound = channel->inbound;
    bool is_one_of_many = !batch->reads_history && batch->command.event_count > 1 &&
                          job->err.index >= 0;

    ol_channel_retain(&channel->channel); // T3: the messages held it until now
    inbound->is_storing = false;
    if (batch->reads_history)
        find_sockets(channel)->first_batches--;
    if (job->result == 0)
        accept_messages(channel, batch);
    else if (batch->has_expected_seq && job->err.code == OUTLOG_SEQUENCE_CONFLICT)
        retry_messages(inbound, batch);
    else if (is_one_of_many && !outlog_code_is_retryable(job->err.code))
        drop_message(inbound, batch);
    else
        refuse_batch(inbound, batch);
    free_batch(inbound, batch);
    process_queue(channel);
    ol_channel_release(&channel->channel);
}

static void store_waiting(struct ol_session_channel *channel)
{
    struct ol_session_inbound *inbound = channel->inbound;
    struct ol_session_sockets *sockets = find_sockets(channel);
    struct inbound_batch *batch = new_batch(channel);
    outlog_err err;

    if (!batch)
        ol_no_memory(&err);
    else if (!batch->reads_history)
        inbound->is_storing = submit_batch(batch, &err);
    else if (!(inbound->is_storing =
                   ol_worker_pool_submit(sockets->channels.server->workers, &batch->job)))
        ol_fail(&err, OUTLOG_UNAVAILABLE, "too many wait for the store already; try again later");
    if (inbound->is_storing) {
        sockets->first_batches += batch->reads_history;
        return;
    }
    if (batch)
        refuse_all(&batch->messages, &err);
    if (!batch || batch->reads_history)
        refuse_all(&inbound->waiting, &err);
    free_batch(inbound, batch);
}

/* Answer or store the waiting messages in order, as far as possible now. */
static void process_queue(struct ol_session_channel *channel)
{
    struct ol_session_inbound *inbound = channel->inbound;
    struct inbound_message *first;

    if (inbound->is_processing) // an answer may let the next frame in
        return;
    inbound->is_processing = true;
    while ((first = inbound->waiting.first) && !inbound->is_storing) {
        first->seq = inbound->is_known ? ol_dedupe_seq(&inbound->dedupe, first->request_id) : 0;
        if (first->seq)
            answer_message(pop_message(&inbound->waiting), NULL);
        else
            store_waiting(channel);
    }
    inbound->is_processing = false;
}

/* --- frames --- */

static struct ol_session_inbound *find_inbound(struct ol_session_channel *channel)
{
    struct ol_session_inbound *inbound = channel->inbound;
    if (!inbound && (channel->inbound = inbound = calloc(1, sizeof *inbound)))
        inbound->waiting.last = &inbound->waiting.first;
    return inbound;
}

static void receive_message(struct ol_subscriber *subscriber, const struct ol_json *frame)
{
    struct ol_channel *channel = subscriber->channel;
    struct ol_session_inbound *inbound = find_inbound((struct ol_session_channel *)channel);
    struct inbound_message *message = inbound ? calloc(1, sizeof *message) : NULL;
    struct ol_json id = ol_json_get(frame, "requestId"), text = ol_json_get(frame, "text");
    outlog_err err;

    if (!message)
        return; // without `accepted` the client sends it again
    message->channel = (struct ol_session_channel *)channel;
    message->subscriber_id = subscriber->id;
    ol_channel_retain(channel); // until the message is answered (T3)
    ol_channel_retain(channel); // until this returns
    ol_subscriber_begin(subscriber);
    const char *content = ol_json_string(&text, &message->arena, NULL);
    message->request_id = ol_json_string(&id, &message->arena, NULL);
    int result =
        content && message->request_id
            ? ol_session_message(channel->org_id, channel->name, message->request_id, content,
                                 &message->arena, &message->event, &err)
            : ol_fail(&err, OUTLOG_INVALID_FIELD, "a user_message has a requestId and a text");
    if (result < 0)
        answer_message(message, &err);
    else
        push_message(&inbound->waiting, message);
    process_queue((struct ol_session_channel *)channel);
    ol_channel_release(channel);
}

struct ack_job {
    struct ol_channel_job base; /* first */
    char effect_id[37];
    int attempts;
};

/* On a worker. */
static bool store_ack(struct ol_job *job)
{
    struct ack_job *ack = (struct ack_job *)job;
    struct ol_session_ack stored = {.org_id = ack->base.channel->org_id,
                                    .session_key = ack->base.channel->name,
                                    .effect_id = ack->effect_id,
                                    .attempts = ack->attempts};
    job->result = ol_session_effect_ack(job->log, &stored, &job->err);
    return true;
}

/* After a failure the effect stays pending and is sent again when the store is back. */
void ol_session_inbound_on_acked(struct ol_job *job)
{
    struct ack_job *ack = (struct ack_job *)job;
    struct ol_session_channel *channel = (struct ol_session_channel *)ack->base.channel;

    channel->stale_before = ol_clock_boot_us();
    if (job->result < 0) {
        if (job->err.code != OUTLOG_OUTCOME_UNKNOWN)
            ol_session_outbound_add_attempts(channel, ack->effect_id, ack->attempts);
        ol_session_outbound_resend(channel, ack->effect_id);
    } else if (channel->has_more) {
        channel->channel.due_at = ol_clock_boot_us(); // the next sweep loads the rest
    }
    ol_channel_job_free(&ack->base);
}

static void receive_ack(struct ol_subscriber *subscriber, const struct ol_json *frame)
{
    struct ol_session_channel *channel = (struct ol_session_channel *)subscriber->channel;
    struct ol_json id = ol_json_get(frame, "effect_id");
    struct ack_job *ack =
        ol_channel_job_new(subscriber->channel, sizeof *ack, OL_JOB_SESSION_ACK, store_ack);
    char effect_id[37];

    if (!ack)
        return; // the effect stays pending
    const char *text = ol_json_string(&id, &ack->base.arena, NULL);
    if (!text || !ol_uuid_parse(text, effect_id)) {
        ol_channel_job_free(&ack->base);
        ol_session_outbound_send_error(subscriber, "invalid_field", NULL,
                                       "ack names the effect_id of what was received");
        return;
    }
    int attempts = ol_session_outbound_take_attempts(channel, effect_id);
    memcpy(ack->effect_id, effect_id, sizeof effect_id);
    ack->attempts = attempts;
    if (!ol_channel_job_submit_frame(&ack->base, subscriber)) // the effect stays pending
        ol_session_outbound_add_attempts(channel, effect_id, attempts);
}

void ol_session_inbound_on_text(struct ol_websocket *socket, const char *text, size_t bytes)
{
    struct ol_subscriber *subscriber = ol_websocket_owner(socket);
    struct ol_json frame;
    outlog_err err;

    if (ol_json_parse(text, bytes, &frame, &err) < 0) {
        ol_session_outbound_send_error(subscriber, "invalid_json", NULL, err.message);
        return;
    }
    struct ol_json type = ol_json_get(&frame, "type");
    if (ol_json_equals(&type, "user_message"))
        receive_message(subscriber, &frame);
    else if (ol_json_equals(&type, "ack"))
        receive_ack(subscriber, &frame);
    else
        ol_session_outbound_send_error(subscriber, "invalid_field", NULL,
                                       "the frames known here are user_message and ack");
}

void ol_session_inbound_clear(struct ol_session_channel *channel)
{
    struct ol_session_inbound *inbound = channel->inbound;
    struct inbound_message *message;
    if (!inbound)
        return;
    while ((message = pop_message(&inbound->waiting))) // only when the server stops
        free_message(message);
    ol_dedupe_clear(&inbound->dedupe);
    free(inbound->spare);
    free(inbound);
    channel->inbound = NULL;
}
