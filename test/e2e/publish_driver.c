/* publish_driver.c: drives the publishers from a pipe, for test_publishers.py.
 *
 * Each line of standard input is one command, each line of standard output one reply:
 *
 *   {"open": NAME, "settings": {…}}           -> {"opened": NAME} or {"error": …}
 *   {"send": NAME, "tag": N, "timeout_ms": N, "message": {…}}
 *                                             payload: any JSON, or payload_text
 *   {"wait": N}                               until N more outcomes: {"tag": …, "kind": …, …} each
 *   {"abandon": NAME, "tag": N}
 *   {"close": NAME}
 *
 * With --answers PATH the replies go to that file (a fifo), so that the stdout publisher has
 * standard output for itself. */
#include "base/clock.h"
#include "net/headers.h"
#include "publish/sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS_MAX = 64 };

struct driver_slot {
    char name[64];
    struct ol_settings *settings;
    struct ol_sender_channel *channel;
};

static struct driver_slot slots[CHANNELS_MAX];
static struct ol_sender *sender;
static FILE *replies;

static void print_reply(struct ol_buf *line)
{
    fprintf(replies, "%s\n", line->data);
    fflush(replies);
    ol_buf_clear(line);
}

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    static const char *const kinds[] = {"ok", "failed", "unknown", "released"};
    struct ol_buf line = {0};
    (void)user;
    ol_buf_print(
        &line,
        "{\"tag\":%ld,\"kind\":\"%s\",\"status\":%d,\"permanent\":%s,"
        "\"surely_not_sent\":%s,\"unreached\":%s,\"retry_after_us\":%lld,\"duration_us\":%lld,"
        "\"response\":",
        (long)(intptr_t)tag, kinds[outcome->kind], outcome->status,
        outcome->is_permanent ? "true" : "false", outcome->surely_not_sent ? "true" : "false",
        outcome->is_unreached ? "true" : "false", (long long)outcome->retry_after_us,
        (long long)outcome->duration_us);
    if (outcome->response)
        ol_buf_json(&line, outcome->response, outcome->response_bytes);
    else
        ol_buf_text(&line, "null");
    ol_buf_text(&line, ",\"error\":");
    ol_buf_json_text(&line, outcome->error);
    ol_buf_char(&line, '}');
    print_reply(&line);
}

static struct driver_slot *find_slot(const char *name)
{
    for (int i = 0; i < CHANNELS_MAX; i++)
        if (strcmp(slots[i].name, name) == 0)
            return &slots[i];
    fprintf(stderr, "no channel %s\n", name);
    exit(2);
}

static const char *read_text(const struct ol_json *object, const char *key, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_json_string(&value, arena, NULL);
}

static int64_t read_number(const struct ol_json *object, const char *key, int64_t otherwise)
{
    struct ol_json value = ol_json_get(object, key);
    int64_t out = otherwise;
    ol_json_int(&value, &out);
    return out;
}

static void open_channel(const struct ol_json *command, const char *name)
{
    struct ol_json settings = ol_json_get(command, "settings");
    struct driver_slot *slot = find_slot("");
    struct ol_buf line = {0};
    outlog_err err;

    if (ol_settings_open(name, settings.text, settings.bytes, OL_SETTINGS_USE, &slot->settings,
                         &err) < 0 ||
        ol_sender_channel_open(sender, slot->settings, &slot->channel, &err) < 0) {
        ol_settings_close(slot->settings);
        slot->settings = NULL;
        ol_buf_text(&line, "{\"error\":");
        ol_buf_json_text(&line, err.message);
    } else {
        snprintf(slot->name, sizeof slot->name, "%s", name);
        ol_buf_text(&line, "{\"opened\":");
        ol_buf_json_text(&line, name);
    }
    ol_buf_char(&line, '}');
    print_reply(&line);
}

static void send_message(const struct ol_json *command, const char *name, struct ol_arena *arena)
{
    struct ol_json m = ol_json_get(command, "message"), payload = ol_json_get(&m, "payload");
    struct ol_json replay = ol_json_get(&m, "is_replay"), headers = ol_json_get(&m, "headers");
    struct outlog_delivery message = {
        .event_id = read_text(&m, "event_id", arena),
        .org_id = read_text(&m, "org_id", arena),
        .destination = name,
        .event_type = read_text(&m, "event_type", arena),
        .payload = payload.text,
        .payload_bytes = payload.bytes,
        .content_type = read_text(&m, "content_type", arena),
        .idempotency_key = read_text(&m, "idempotency_key", arena),
        .ordering_key = read_text(&m, "ordering_key", arena),
        .partition_key = read_text(&m, "partition_key", arena),
        .correlation_id = read_text(&m, "correlation_id", arena),
        .causation_id = read_text(&m, "causation_id", arena),
        .aggregate_type = read_text(&m, "aggregate_type", arena),
        .aggregate_id = read_text(&m, "aggregate_id", arena),
        .traceparent = read_text(&m, "traceparent", arena),
        .created_at = read_number(&m, "created_at", 1767528300000001),
        .attempt = (int)read_number(&m, "attempt", 1),
        .is_replay = replay.type == OL_JSON_TRUE,
    };
    const char *raw = read_text(&m, "payload_text", arena);
    struct outlog_header *list = NULL;
    outlog_err err;
    if (raw) {
        message.payload = raw;
        message.payload_bytes = strlen(raw);
    }
    if (ol_headers_read(&headers, arena, &list, &message.header_count, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(2);
    }
    message.headers = list;
    int64_t deadline_us = ol_clock_boot_us() + read_number(command, "timeout_ms", 5000) * 1000;
    ol_sender_channel_submit(find_slot(name)->channel, &message, deadline_us,
                             (void *)(intptr_t)read_number(command, "tag", 0));
}

static void run_command(const struct ol_json *command, struct ol_arena *arena)
{
    const char *name;
    int64_t count = read_number(command, "wait", -1);
    if (count >= 0) {
        while (count > 0 && ol_sender_in_flight(sender) > 0)
            count -= (int64_t)ol_sender_drive(sender, 1000);
        ol_sender_drive(sender, 0);
        fprintf(replies, "{\"waited\":true}\n");
        fflush(replies);
    } else if ((name = read_text(command, "open", arena))) {
        open_channel(command, name);
    } else if ((name = read_text(command, "send", arena))) {
        send_message(command, name, arena);
    } else if ((name = read_text(command, "abandon", arena))) {
        ol_sender_channel_abandon(find_slot(name)->channel,
                                  (void *)(intptr_t)read_number(command, "tag", 0));
    } else if ((name = read_text(command, "close", arena))) {
        struct driver_slot *slot = find_slot(name);
        ol_sender_channel_close(slot->channel);
        ol_settings_close(slot->settings);
        *slot = (struct driver_slot){0};
        fprintf(replies, "{\"closed\":true}\n");
        fflush(replies);
    } else {
        fprintf(stderr, "unknown command\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    struct ol_arena arena = {0};
    struct ol_json command;
    outlog_err err;

    replies = argc > 2 && strcmp(argv[1], "--answers") == 0 ? fopen(argv[2], "w") : stdout;
    if (!replies || ol_sender_open(&sender, on_outcome, NULL, &err) < 0)
        return 2;
    while ((bytes = getline(&line, &room, stdin)) > 0) {
        ol_arena_reset(&arena);
        if (ol_json_parse(line, (size_t)bytes, &command, &err) < 0) {
            fprintf(stderr, "%s\n", err.message);
            return 2;
        }
        run_command(&command, &arena);
    }
    ol_sender_close(sender);
    for (int i = 0; i < CHANNELS_MAX; i++)
        ol_settings_close(slots[i].settings);
    ol_arena_clear(&arena);
    free(line);
    if (replies != stdout)
        fclose(replies);
    return 0;
}
