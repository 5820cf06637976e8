/* output.c: formats lines, for people or as JSON, and draws progress. */
#include "base/timestamp.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "log/event.h"

#include <string.h>
#include <unistd.h>

static const char *pick_color(const struct ol_cli *cli, const char *code)
{
    return cli->color ? code : "";
}

const char *ol_cli_dim(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[2m");
}

const char *ol_cli_bold(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[1m");
}

const char *ol_cli_accent(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[36m");
}

const char *ol_cli_good(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[32m");
}

const char *ol_cli_bad(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[31m");
}

const char *ol_cli_plain(const struct ol_cli *cli)
{
    return pick_color(cli, "\033[0m");
}

/* They turn the direction of writing, end a line or show nothing, so that a text looks like another
 * one. The joiners U+200C and U+200D are part of
 * many scripts and stay. */
static bool is_deceptive(uint32_t c)
{
    return c == 0x061C || c == 0x200B || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
           (c >= 0xE0000 && c <= 0xE007F);
}

/* The character at `text`; *length is 1 and the result the byte itself where it is not UTF-8. */
static uint32_t read_char(const char *text, size_t bytes, size_t *length)
{
    unsigned char lead = (unsigned char)text[0];
    size_t wanted = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    uint32_t c = lead & (0x7Fu >> wanted);
    *length = 1;
    if (lead < 0xC0 || wanted > bytes || !ol_utf8_is_valid(text, wanted))
        return lead;
    for (size_t i = 1; i < wanted; i++)
        c = c << 6 | ((unsigned char)text[i] & 0x3F);
    *length = wanted;
    return c;
}

void ol_cli_put_safe(struct ol_buf *out, const char *text, size_t bytes)
{
    for (size_t i = 0, length; i < bytes; i += length) {
        uint32_t c = read_char(text + i, bytes - i, &length);
        bool is_c1 = length > 1 && c < 0xA0; // some terminals obey them
        if (c < 0x20 || c == 0x7F || is_c1)
            ol_buf_print(out, "\\x%02x", c);
        else if (length > 1 && is_deceptive(c))
            ol_buf_print(out, c > 0xFFFF ? "\\U%08x" : "\\u%04x", c);
        else
            ol_buf_add(out, text + i, length);
    }
}

void ol_cli_put_wide(struct ol_buf *out, const char *text, size_t width)
{
    size_t bytes = strlen(text);
    ol_cli_put_safe(out, text, bytes);
    for (; bytes < width; bytes++)
        ol_buf_char(out, ' ');
}

const char *ol_cli_field(struct ol_cli *cli, const struct ol_json *object, const char *name,
                         const char *otherwise)
{
    struct ol_json value = ol_json_get(object, name);
    const char *text = ol_json_string(&value, &cli->arena, NULL);
    return text ? text : otherwise;
}

int ol_cli_page(struct ol_cli *cli, const struct ol_buf *page, const char *name,
                void (*put)(struct ol_cli *cli, const struct ol_json *one, struct ol_buf *line),
                outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};
    struct ol_buf line = {0};
    if (ol_json_parse_wrapped(page->data, page->bytes, &whole, err) < 0)
        return -1;
    struct ol_json list = ol_json_get(&whole, name);
    while (ol_json_next(&list, &it)) {
        if (cli->json)
            ol_buf_add(&line, it.value.text, it.value.bytes);
        else
            put(cli, &it.value, &line);
        ol_cli_put_line(&line);
    }
    const char *next = ol_cli_field(cli, &whole, "next_after", NULL);
    if (next)
        fprintf(stderr, "There are more: --after '%s'\n", next);
    ol_buf_clear(&line);
    return 0;
}

const char *ol_cli_thousands(int64_t number, char out[32])
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%lld", (long long)number), at = 0;
    for (int i = 0; i < count; i++) {
        out[at++] = digits[i];
        int left = count - i - 1;
        if (left > 0 && left % 3 == 0 && digits[i] != '-')
            out[at++] = ',';
    }
    out[at] = '\0';
    return out;
}

const char *ol_cli_age(int64_t since, char out[32])
{
    int64_t seconds = since ? (ol_clock_wall_us() - since) / 1000000 : 0;
    if (!since)
        snprintf(out, 32, "-");
    else if (seconds < 120)
        snprintf(out, 32, "%lld s", (long long)seconds);
    else if (seconds < 7200)
        snprintf(out, 32, "%lld min", (long long)(seconds / 60));
    else
        snprintf(out, 32, "%lld h", (long long)(seconds / 3600));
    return out;
}

bool ol_cli_put_line(struct ol_buf *line)
{
    ol_buf_char(line, '\n');
    bool ok = !line->failed && fwrite(line->data, 1, line->bytes, stdout) == line->bytes;
    ol_buf_reset(line);
    return ok;
}

void ol_cli_put_event(const struct ol_cli *cli, const struct outlog_event *event,
                      struct ol_buf *out)
{
    enum { PAYLOAD_SHOWN_BYTES = 100 };
    char time[OL_TIMESTAMP_TEXT], name[400];

    if (cli->json) {
        ol_event_write_json(event, out);
        return;
    }
    ol_timestamp_format(event->occurred_at, time);
    time[23] = '\0'; // milliseconds are enough for people
    ol_buf_print(out, "%8lld  %s%s%s  ", (long long)event->event_id, ol_cli_dim(cli), time,
                 ol_cli_plain(cli));
    ol_cli_put_wide(out, event->org_id ? event->org_id : "-", 12);
    ol_buf_print(out, " %s", ol_cli_accent(cli));
    ol_cli_put_wide(out, event->event_type, 24);
    snprintf(name, sizeof name, "%s/%s#%lld", event->aggregate_type, event->aggregate_id,
             (long long)event->aggregate_seq);
    ol_buf_print(out, "%s ", ol_cli_plain(cli));
    ol_cli_put_wide(out, name, 20);
    ol_buf_print(out, "  %s", ol_cli_dim(cli));
    size_t bytes = event->payload_bytes;
    if (bytes > PAYLOAD_SHOWN_BYTES)
        for (bytes = PAYLOAD_SHOWN_BYTES;
             bytes > 0 && ((unsigned char)event->payload[bytes] & 0xC0) == 0x80;)
            bytes--; // not in the middle of a character
    ol_cli_put_safe(out, event->payload, bytes);
    ol_buf_print(out, "%s%s", bytes < event->payload_bytes ? "…" : "", ol_cli_plain(cli));
}

/* --- progress --- */

void ol_progress_begin(struct ol_progress *progress, const char *what, int64_t total)
{
    *progress = (struct ol_progress){.what = what,
                                     .total = total,
                                     .started_at = ol_clock_boot_us(),
                                     .is_shown = isatty(STDERR_FILENO)};
}

static void draw_progress(struct ol_progress *progress, int64_t now)
{
    char done[32], rate[32];
    double seconds = (double)(now - progress->started_at) / 1e6;
    double per_second = seconds > 0 ? (double)progress->done / seconds : 0;
    enum { PROGRESS_WIDTH = 30 };

    fprintf(stderr, "\r\033[K%s %s", ol_cli_thousands(progress->done, done), progress->what);
    if (progress->total > 0) {
        double part = (double)progress->done / (double)progress->total;
        int full = part >= 1 ? PROGRESS_WIDTH : (int)(part * PROGRESS_WIDTH);
        fprintf(stderr, "  [%.*s%*s] %3.0f %%", full, "##############################",
                PROGRESS_WIDTH - full, "", part > 1 ? 100.0 : part * 100);
        if (per_second > 0 && part < 1)
            fprintf(stderr, "  %.0f s left",
                    (double)(progress->total - progress->done) / per_second);
    }
    fprintf(stderr, "  %s/s", ol_cli_thousands((int64_t)per_second, rate));
    fflush(stderr);
}

void ol_progress_move(struct ol_progress *progress, int64_t done)
{
    progress->done = done;
    int64_t now = ol_clock_boot_us();
    if (!progress->is_shown || now - progress->drawn_at < 100000)
        return;
    progress->drawn_at = now;
    draw_progress(progress, now);
}

void ol_progress_end(struct ol_progress *progress)
{
    if (progress->is_shown && progress->drawn_at)
        fputs("\r\033[K", stderr);
}

void ol_cli_bulk_result_begin(const struct ol_cli *cli, struct ol_bulk_result *result,
                              struct outlog_requeue *how)
{
    result->ids_max = cli->json ? SIZE_MAX : 0;
    how->on_message = ol_bulk_result_note;
    how->user = result;
}

void ol_cli_bulk_result_end(const struct ol_cli *cli, struct ol_bulk_result *result, int status,
                            const char *why_skipped)
{
    struct ol_buf line = {0};
    char number[32];
    if (cli->json)
        ol_bulk_result_json(result, &line);
    else
        ol_buf_print(&line, "%s %s %s", ol_cli_thousands(result->count, number),
                     result->is_dry       ? "would be"
                     : result->count == 1 ? "is"
                                          : "are",
                     result->verb);
    if (status == 0 || result->count)
        ol_cli_put_line(&line);
    if (result->skipped)
        fprintf(stderr, "outlog: %s left alone: %s\n", ol_cli_thousands(result->skipped, number),
                why_skipped);
    ol_buf_clear(&line);
    ol_bulk_result_clear(result);
}
