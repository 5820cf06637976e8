/* test_send.c: opens the destination like a relay, sends one message, waits for its outcome. */
#include "publish/test_send.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/uuid.h"
#include "publish/sender.h"

#include <stdio.h>
#include <string.h>

static void on_outcome(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_test_send *test = user;
    (void)tag;
    test->is_over = true;
    test->outcome = *outcome;
    snprintf(test->error, sizeof test->error, "%s", outcome->error ? outcome->error : "");
}

static void write_sample(const struct ol_settings *settings, struct ol_buf *out)
{
    if (settings->publisher_type->write_sample)
        settings->publisher_type->write_sample(settings, out);
    else
        ol_buf_text(out, "{\"test\":true}");
}

static int send_one(const struct ol_settings *settings, const char *payload,
                    struct ol_test_send *test, outlog_err *err)
{
    struct ol_sender *sender;
    struct ol_sender_channel *channel;
    char id[OL_UUID_TEXT];

    ol_uuid_make(id);
    if (ol_sender_open(&sender, on_outcome, test, err) < 0)
        return -1;
    if (ol_sender_channel_open(sender, settings, &channel, err) < 0) {
        ol_sender_close(sender);
        return -1;
    }
    struct outlog_delivery message = {.event_id = id,
                                      .destination = settings->name,
                                      .event_type = "outlog.test",
                                      .payload = payload,
                                      .payload_bytes = strlen(payload),
                                      .content_type = "application/json",
                                      .correlation_id = id,
                                      .created_at = ol_clock_wall_us(),
                                      .attempt = 1};
    int64_t deadline = ol_clock_boot_us() + settings->timeout_us;
    ol_sender_channel_submit(channel, &message, deadline, test);
    while (!test->is_over && ol_clock_boot_us() < deadline + 1000000)
        ol_sender_drive(sender, 100);
    ol_sender_channel_close(channel); // reports the outcome if none arrived
    ol_sender_close(sender);
    return 0;
}

static int read_settings(outlog *log, const char *name, struct ol_settings **out, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_value_text(name)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err), result = -1;
    if (got > 0) {
        size_t bytes;
        const char *json = ol_rows_text(&rows, 1, &bytes);
        result = ol_settings_open(name, json, bytes, OL_SETTINGS_USE, out, err);
    } else if (got == 0) {
        ol_fail(err, OUTLOG_NOT_FOUND,
                "there is no destination %.100s; `outlog destinations` lists them", name);
    }
    ol_rows_end(&rows);
    return result;
}

int ol_test_send_run(outlog *log, const char *name, const char *payload, struct ol_test_send *out,
                     outlog_err *err)
{
    struct ol_settings *settings;
    struct ol_buf sample = {0};
    int result;

    *out = (struct ol_test_send){0};
    if (read_settings(log, name, &settings, err) < 0)
        return -1;
    write_sample(settings, &sample);
    result = sample.failed ? ol_no_memory(err)
                           : send_one(settings, payload ? payload : sample.data, out, err);
    ol_buf_clear(&sample);
    ol_settings_close(settings);
    return result;
}

const char *ol_test_send_outcome(const struct ol_test_send *test)
{
    static const char *const words[] = {"ok", "failed", "unknown", "released"};
    return words[test->outcome.kind];
}

void ol_test_send_json(const struct ol_test_send *test, struct ol_buf *out)
{
    ol_buf_print(out, "{\"outcome\":\"%s\",\"status\":", ol_test_send_outcome(test));
    if (test->outcome.status)
        ol_buf_int(out, test->outcome.status);
    else
        ol_buf_text(out, "null");
    ol_buf_print(out,
                 ",\"duration_ms\":%lld,\"error\":", (long long)(test->outcome.duration_us / 1000));
    ol_buf_json_text(out, *test->error ? test->error : NULL);
    ol_buf_char(out, '}');
}
