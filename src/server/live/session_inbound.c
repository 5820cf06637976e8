/* session_inbound.c: the queue of a room, and the way of a message. */
#include "server/live/session_inbound.h"

#include "base/err.h"
#include "outbox/batcher.h"
#include "server/server.h"
#include "sessions/dedupe.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ERRORS = 20, MOST_TRIES = 20, AT_A_TIME = 64 };

/* One message on its way. */
struct saying {
    struct saying *next;
    struct ol_channel *room;
    struct outlog_new_event event;
    struct ol_arena arena;
    const char *request_id;
    uint64_t seat_number;
    int64_t expected, seq;
    int tries;
};

struct queue {
    struct saying *first, **last;
};

/* Messages of a room that go to the store together, one round of a room at a time: all of them are
 * stored or none. Were they on their way one by one, the place of one that is refused could be
 * filled by somebody else, and the next would be stored behind something that was not read. */
struct round {
    struct ol_loop_task post; /* first */
    struct ol_channel *room;
    struct ol_batcher_command command;
    struct queue sayings;
    bool has_place; /* they follow what is known by heart */
    int64_t seq;    /* of the first */
    int result;
    char id[37];
    struct outlog_new_event events[];
};

/* What is said to a room. */
struct ol_session_inbound {
    struct ol_dedupe heard;
    bool is_known; /* `heard` is all there is, as far as we can tell */
    bool is_loading, is_storing, is_going;
    struct queue waiting; /* it is not decided yet whether they are new */
    struct round *spare;  /* for the next single message, as most are */
    void (*told)(const struct ol_channel *room);
};

static void push(struct queue *queue, struct saying *saying)
{
    saying->next = NULL;
    *queue->last = saying;
    queue->last = &saying->next;
}

static struct saying *pop(struct queue *queue)
{
    struct saying *saying = queue->first;
    if (saying && !(queue->first = saying->next))
        queue->last = &queue->first;
    return saying;
}

/* Before what came later. */
static void put_back(struct queue *queue, struct queue *from)
{
    if (!from->first)
        return;
    *from->last = queue->first;
    if (!queue->first)
        queue->last = from->last;
    queue->first = from->first;
}

/* --- answers --- */

void ol_session_inbound_put_error(struct ol_buf *out, const char *code, const char *request_id,
                                  const char *detail)
{
    ol_buf_print(out, "{\"type\":\"error\",\"code\":\"%s\",\"requestId\":", code);
    ol_buf_json_text(out, request_id);
    ol_buf_text(out, ",\"detail\":");
    ol_buf_json_text(out, detail);
    ol_buf_char(out, '}');
}

void ol_session_inbound_refuse(struct ol_subscriber *seat, const char *code, const char *request_id,
                               const char *detail)
{
    struct ol_buf frame = {0};
    ol_session_inbound_put_error(&frame, code, request_id, detail);
    bool is_open = ol_websocket_send(seat->socket, frame.data, frame.bytes);
    ol_buf_clear(&frame);
    if (is_open && ++seat->errors > MOST_ERRORS)
        ol_websocket_close(seat->socket, 1008, "too many bad frames");
}

static void send_accepted(struct ol_subscriber *seat, const char *request_id, int64_t seq)
{
    struct ol_buf frame = {0};
    ol_buf_text(&frame, "{\"type\":\"accepted\",\"requestId\":");
    ol_buf_json_text(&frame, request_id);
    ol_buf_text(&frame, ",\"seq\":");
    ol_buf_int(&frame, seq);
    ol_buf_char(&frame, '}');
    ol_websocket_send(seat->socket, frame.data, frame.bytes);
    ol_buf_clear(&frame);
}

static void free_saying(struct saying *saying)
{
    ol_arena_clear(&saying->arena);
    free(saying);
}

/* Tell who said it, if he is still there, and be done with it. err NULL: it is accepted. */
static void answer(struct saying *saying, const outlog_err *err)
{
    struct ol_channel *room = saying->room;
    struct ol_subscriber *seat = ol_channel_subscriber(room, saying->seat_number);

    if (seat)
        ol_subscriber_finish(seat);
    if (seat && !err)
        send_accepted(seat, saying->request_id, saying->seq);
    else if (seat)
        ol_session_inbound_refuse(seat, outlog_code_name(err->code), saying->request_id,
                                  err->message);
    free_saying(saying);
    room->on_the_way--;
}

static void refuse_all(struct queue *queue, const outlog_err *err)
{
    struct saying *saying;
    while ((saying = pop(queue)))
        answer(saying, err);
}

/* --- what is known --- */

struct recall {
    struct ol_channel_load visit; /* first */
    int64_t after;
    struct ol_dedupe_entry *said;
    int result;
    outlog_err err;
};

static void go_on(struct ol_channel *room);

static enum ol_handler_result recall(struct ol_request *request)
{
    struct recall *job = request->owner;
    job->result = ol_dedupe_read(request->log, job->visit.org_id, job->visit.name, job->after,
                                 &request->arena, &job->said, &job->err);
    return OL_HANDLER_ANSWERED;
}

static void recalled(struct ol_request *request)
{
    const struct recall *job = request->owner;
    struct ol_channel *room = ol_channels_find(job->visit.hall, job->visit.org_id, job->visit.name);
    struct ol_session_inbound *talk = room->talk; // T3: what waits for this holds the room
    bool is_known = job->result == 0;

    ol_channel_retain(room);
    talk->is_loading = false;
    for (const struct ol_dedupe_entry *said = job->said; said && is_known; said = said->next)
        is_known = ol_dedupe_add(&talk->heard, said->request_id, said->seq);
    talk->is_known = is_known;
    if (job->result < 0)
        refuse_all(&talk->waiting, &job->err);
    go_on(room);
    ol_request_free(request);
    ol_channel_release(room);
}

static void load(struct ol_channel *room)
{
    struct ol_session_inbound *talk = room->talk;
    struct ol_request *request = ol_channel_job(room, sizeof(struct recall), recall, recalled);
    struct recall *job = request ? request->owner : NULL;
    outlog_err err;

    if (job)
        job->after = talk->heard.upto;
    talk->is_loading = ol_channels_submit(room->hall, request);
    if (talk->is_loading)
        return;
    ol_fail(&err, OUTLOG_UNAVAILABLE, "too many wait for the store already; try again later");
    refuse_all(&talk->waiting, &err);
}

/* --- to the store and back --- */

static void accept_round(struct ol_session_inbound *talk, struct round *round)
{
    struct saying *saying;
    talk->told(round->room);
    while ((saying = pop(&round->sayings))) {
        saying->seq = round->seq++;
        if (round->has_place && talk->is_known)
            talk->is_known = ol_dedupe_add(&talk->heard, saying->request_id, saying->seq);
        answer(saying, NULL);
    }
}

/* Somebody else was quicker: what he said is read, and all of it decided anew. */
static void try_again(struct ol_session_inbound *talk, struct round *round)
{
    struct queue again = {NULL, &again.first};
    struct saying *saying;
    talk->is_known = false;
    while ((saying = pop(&round->sayings)))
        if (++saying->tries < MOST_TRIES)
            push(&again, saying);
        else
            answer(saying, &round->command.err);
    put_back(&talk->waiting, &again);
}

/* One of several was bad: the others go without it. */
static void leave_out(struct ol_session_inbound *talk, struct round *round, int index)
{
    struct queue again = {NULL, &again.first};
    struct saying *saying;
    for (int i = 0; (saying = pop(&round->sayings)); i++)
        if (i != index)
            push(&again, saying);
        else
            answer(saying, &round->command.err);
    put_back(&talk->waiting, &again);
}

static void free_round(struct ol_session_inbound *talk, struct round *round)
{
    if (round && round->command.event_count == 1 && !talk->spare)
        talk->spare = round;
    else
        free(round);
}

/* Back in the loop: it is stored, or not. */
static void said(struct ol_loop_task *post)
{
    struct round *round = (struct round *)post;
    struct ol_channel *room = round->room;
    struct ol_session_inbound *talk = room->talk;
    const outlog_err *err = &round->command.err;
    bool is_one_of_many = round->command.event_count > 1 && err->index >= 0;

    ol_channel_retain(room);
    talk->is_storing = false;
    if (round->result == 0) {
        accept_round(talk, round);
    } else if (round->has_place && err->code == OUTLOG_SEQUENCE_CONFLICT) {
        try_again(talk, round);
    } else if (is_one_of_many && !outlog_code_is_retryable(err->code)) {
        leave_out(talk, round, err->index);
    } else {
        talk->is_known = false; // it may be stored all the same
        refuse_all(&round->sayings, err);
    }
    free_round(talk, round);
    go_on(room);
    ol_channel_release(room);
}

/* On the group's thread. */
static void done(struct ol_batcher_command *command, int result)
{
    struct round *round = command->user;
    // An id made of the request: it stands for what was said first, whatever it was.
    bool is_known = result < 0 && command->err.code == OUTLOG_ID_CONFLICT && command->err.actual;
    round->result = is_known ? 0 : result;
    if (round->result == 0)
        round->seq = is_known ? command->err.actual : command->appended[0].aggregate_seq;
    round->post.run = said;
    ol_server_post(round->room->hall->server, &round->post);
}

static bool is_twin(const struct saying *saying, const struct saying *first)
{
    while (first != saying && strcmp(first->request_id, saying->request_id) != 0)
        first = first->next;
    return first != saying;
}

/* How many of what waits go together: the first, which is new, and as many as are new behind it,
 * and known by heart afterwards. */
static size_t count_new(const struct ol_session_inbound *talk)
{
    size_t count = 1, most = (size_t)(OL_DEDUPE_MAX - talk->heard.upto);
    for (const struct saying *one = talk->waiting.first->next;
         one && count < AT_A_TIME && count < most &&
         !ol_dedupe_seq(&talk->heard, one->request_id) && !is_twin(one, talk->waiting.first);
         one = one->next)
        count++;
    return count;
}

static struct round *new_round(struct ol_channel *room, size_t count)
{
    struct ol_session_inbound *talk = room->talk;
    struct round *round = count == 1 ? talk->spare : NULL;
    if (round)
        talk->spare = NULL;
    else if (!(round = malloc(sizeof *round + count * sizeof *round->events)))
        return NULL;
    *round = (struct round){.room = room,
                            .command = {.events = round->events,
                                        .event_count = count,
                                        .done = done,
                                        .user = round},
                            .sayings = {NULL, &round->sayings.first},
                            .has_place = talk->heard.upto < OL_DEDUPE_MAX};
    for (size_t i = 0; i < count; i++) {
        struct saying *saying = pop(&talk->waiting);
        struct outlog_new_event *event = &round->events[i];
        *event = saying->event;
        saying->expected = talk->heard.upto + (int64_t)i;
        if (round->has_place) {
            event->expected_seq = &saying->expected;
        } else {
            ol_session_message_id(room->org_id, room->name, saying->request_id, round->id);
            event->id = round->id;
        }
        push(&round->sayings, saying);
    }
    return round;
}

/* The first of what waits is new: it goes to the store, with those behind it that can go along. */
static void store(struct ol_channel *room)
{
    struct ol_session_inbound *talk = room->talk;
    struct ol_batcher *group = room->hall->server->group;
    bool is_by_heart = talk->heard.upto < OL_DEDUPE_MAX;
    struct round *round = new_round(room, is_by_heart ? count_new(talk) : 1);
    outlog_err err;

    if (!round)
        ol_no_memory(&err);
    else if (!group)
        ol_fail(&err, OUTLOG_UNAVAILABLE, "the server goes; say it again to another");
    else
        talk->is_storing = ol_batcher_submit(group, &round->command, &err) == 0;
    if (talk->is_storing)
        return;
    refuse_all(round ? &round->sayings : &talk->waiting, &err);
    free_round(talk, round);
}

/* Decide what waits, in order, as far as that is possible now. */
static void go_on(struct ol_channel *room)
{
    struct ol_session_inbound *talk = room->talk;
    struct saying *first;

    if (talk->is_going) // an answer may let the next frame in
        return;
    talk->is_going = true;
    while ((first = talk->waiting.first) && !talk->is_loading && !talk->is_storing) {
        if (!talk->is_known)
            load(room);
        else if ((first->seq = ol_dedupe_seq(&talk->heard, first->request_id)))
            answer(pop(&talk->waiting), NULL);
        else
            store(room);
    }
    talk->is_going = false;
}

/* --- taking --- */

static struct ol_session_inbound *talk_of(struct ol_channel *room,
                                          void (*stored)(const struct ol_channel *room))
{
    struct ol_session_inbound *talk = room->talk;
    if (!talk && (room->talk = talk = calloc(1, sizeof *talk)))
        *talk =
            (struct ol_session_inbound){.told = stored, .waiting = {NULL, &talk->waiting.first}};
    return talk;
}

/* 0, or -1 and why it is refused. */
static int read_saying(struct saying *saying, const struct ol_json *frame, outlog_err *err)
{
    const struct ol_channel *room = saying->room;
    struct ol_json id = ol_json_get(frame, "requestId"), text = ol_json_get(frame, "text");
    const char *words = ol_json_string(&text, &saying->arena, NULL);

    saying->request_id = ol_json_string(&id, &saying->arena, NULL);
    if (!words || !saying->request_id)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "a user_message has a requestId and a text");
    return ol_session_message(room->org_id, room->name, saying->request_id, words, &saying->arena,
                              &saying->event, err);
}

void ol_session_inbound_receive(struct ol_subscriber *seat, const struct ol_json *frame,
                                void (*stored)(const struct ol_channel *room))
{
    struct ol_channel *room = seat->room;
    struct ol_session_inbound *talk = talk_of(room, stored);
    struct saying *saying = talk ? calloc(1, sizeof *saying) : NULL;
    outlog_err err;

    if (!saying)
        return;
    saying->room = room;
    saying->seat_number = seat->number;
    room->on_the_way += 2; // this one, and this call
    ol_subscriber_begin(seat);
    if (read_saying(saying, frame, &err) < 0)
        answer(saying, &err);
    else
        push(&talk->waiting, saying);
    go_on(room);
    ol_channel_release(room);
}

void ol_session_inbound_forget(struct ol_channel *room)
{
    struct ol_session_inbound *talk = room->talk;
    struct saying *saying;
    if (!talk)
        return;
    while ((saying = pop(&talk->waiting))) // only when the server ends
        free_saying(saying);
    ol_dedupe_clear(&talk->heard);
    free(talk->spare);
    free(talk);
    room->talk = NULL;
}
