/* render.c: finds the template and the address of a notification, and renders its payload. */
#include "notify/render.h"

#include "base/json/json.h"
#include "notify/mustache.h"
#include "publish/mail/mime.h"
#include "publish/publisher.h"

#include <stdlib.h>
#include <string.h>

struct ol_message_template {
    struct ol_message_template *next;
    int64_t version;
    struct ol_arena arena;
    const char *name, *subject, *text, *html;
};

bool ol_render_is_needed(const struct outlog_delivery *message)
{
    return message->content_type &&
           strcmp(message->content_type, OL_NOTIFICATION_CONTENT_TYPE) == 0;
}

bool ol_render_is_final(const outlog_err *err)
{
    return err->code == OUTLOG_INVALID_FIELD || err->code == OUTLOG_INVALID_JSON ||
           err->code == OUTLOG_TOO_LARGE || err->code == OUTLOG_NOT_FOUND;
}

/* --- templates --- */

static void free_template(struct ol_message_template *template)
{
    ol_arena_clear(&template->arena);
    free(template);
}

void ol_template_cache_clear(struct ol_template_cache *cache)
{
    while (cache->first) {
        struct ol_message_template *next = cache->first->next;
        free_template(cache->first);
        cache->first = next;
    }
}

static int read_body(const char *body, struct ol_message_template *template, outlog_err *err)
{
    struct ol_json object;
    if (ol_json_parse(body, strlen(body), &object, err) < 0)
        return -1;
    struct ol_json subject = ol_json_get(&object, "subject"), text = ol_json_get(&object, "text"),
                   html = ol_json_get(&object, "html");
    template->subject = ol_json_string(&subject, &template->arena, NULL);
    template->text = ol_json_string(&text, &template->arena, NULL);
    template->html = ol_json_string(&html, &template->arena, NULL);
    return 0;
}

static int load_template(struct ol_conn *conn, struct ol_message_template *template,
                         outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_TEMPLATE_GET,
                       OL_PARAMS(ol_value_text(template->name), ol_value_int(template->version)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got == 0)
        ol_fail(err, OUTLOG_NOT_FOUND, "there is no template %.100s version %lld", template->name,
                (long long)template->version);
    int result = got > 0 ? read_body(ol_rows_text(&rows, 0, NULL), template, err) : -1;
    ol_rows_end(&rows);
    return result;
}

static int find_template(struct ol_template_cache *cache, struct ol_conn *conn,
                         const struct ol_notification *notification,
                         const struct ol_message_template **out, outlog_err *err)
{
    for (struct ol_message_template *t = cache->first; t; t = t->next)
        if (t->version == notification->template_version &&
            strcmp(t->name, notification->template) == 0) {
            *out = t;
            return 0;
        }
    struct ol_message_template *template = calloc(1, sizeof *template);
    if (!template)
        return ol_no_memory(err);
    template->version = notification->template_version;
    template->name =
        ol_arena_copy(&template->arena, notification->template, strlen(notification->template));
    if (!template->name ? ol_no_memory(err) : load_template(conn, template, err)) {
        free_template(template);
        return -1;
    }
    template->next = cache->first;
    cache->first = template;
    *out = template;
    return 0;
}

/* --- reading the message --- */

static const char *read_text(const struct ol_json *object, const char *key, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, key);
    return ol_json_string(&value, arena, NULL);
}

static int read_message(const struct ol_json *message, struct ol_arena *arena,
                        struct ol_notification *out, outlog_err *err)
{
    struct ol_json version = ol_json_get(message, "template_version");
    struct ol_json payload = ol_json_at(message, "/event/payload");
    out->user_id = read_text(message, "recipient", arena);
    out->category = read_text(message, "category", arena);
    out->template = read_text(message, "template", arena);
    const char *rule = read_text(message, "rule", arena);
    if (!out->user_id || !out->category || !out->template || !rule)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "this is not the message of a notification rule");
    if (!*out->user_id)
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "no recipient: rule %.150s found nobody to notify", rule);
    if (!ol_json_int(&version, &out->template_version))
        return ol_fail(err, OUTLOG_NOT_FOUND,
                       "template %.100s did not exist when the event was appended", out->template);
    if (payload.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_TOO_LARGE,
                       "the event's payload is too large for a notification: over 200000 bytes");
    return 0;
}

/* Compares the mailbox alone: a display name makes no difference. */
static int check_suppressions(struct ol_conn *conn, struct ol_arena *arena,
                              struct ol_notification *notification, outlog_err *err)
{
    struct ol_mailbox box;
    struct ol_rows rows;
    notification->mailbox = notification->address; // an invalid address is refused when it is sent
    if (ol_mailbox_parse(notification->address, "to", arena, &box, err) == 0)
        notification->mailbox = box.address;
    if (ol_store_query(conn, OL_Q_SUPPRESSION_GET, OL_PARAMS(ol_value_text(notification->mailbox)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        ol_fail(err, OUTLOG_NOT_FOUND, "%.100s is suppressed: %.200s", notification->mailbox,
                ol_rows_text(&rows, 0, NULL));
    ol_rows_end(&rows);
    return got == 0 ? 0 : -1;
}

static int find_address(struct ol_conn *conn, const char *org_id, struct ol_arena *arena,
                        struct ol_notification *notification, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    if (ol_store_query(conn, OL_Q_NOTICE_ADDRESS,
                       OL_PARAMS(ol_value_text(org_id ? org_id : ""),
                                 ol_value_text(notification->user_id)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        notification->address = ol_rows_copy(&rows, 0, arena, &failed);
    ol_rows_end(&rows);
    if (got < 0 || failed)
        return got < 0 ? -1 : ol_no_memory(err);
    if (!notification->address)
        return ol_fail(err, OUTLOG_NOT_FOUND,
                       "no e-mail address is known for user %.100s: set it by PUT "
                       "/v1/users/{user_id}/preferences",
                       notification->user_id);
    return check_suppressions(conn, arena, notification, err);
}

/* --- rendering --- */

static int render_text(const char *text, const char *what, const struct ol_json contexts[3],
                       enum ol_mustache_escape escape, struct ol_arena *arena, const char **out,
                       outlog_err *err)
{
    struct ol_buf buf = {0};
    *out = NULL;
    if (!text)
        return 0;
    int result = ol_mustache_render(text, strlen(text), contexts, 3, escape, &buf, err);
    if (result < 0)
        ol_err_prefix(err, "%s", what);
    else if (!(*out = ol_arena_copy(arena, buf.data ? buf.data : "", buf.bytes)))
        result = ol_no_memory(err);
    ol_buf_clear(&buf);
    return result;
}

/* A subject is one line. */
static const char *flatten_subject(const char *subject, struct ol_arena *arena)
{
    char *line = ol_arena_copy(arena, subject, strlen(subject));
    size_t bytes = line ? strlen(line) : 0;
    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 127)
            line[i] = ' ';
    while (bytes > 0 && line[bytes - 1] == ' ')
        line[--bytes] = '\0';
    return line;
}

static int render_parts(const struct ol_message_template *template, const struct ol_json *message,
                        struct ol_arena *arena, struct ol_notification *notification,
                        outlog_err *err)
{
    struct ol_json contexts[3] = {*message, ol_json_get(message, "event"),
                                  ol_json_at(message, "/event/payload")};
    const char *subject;
    if (render_text(template->subject ? template->subject : "", "subject", contexts,
                    OL_MUSTACHE_TEXT, arena, &subject, err) < 0 ||
        render_text(template->text, "text", contexts, OL_MUSTACHE_TEXT, arena, &notification->text,
                    err) < 0 ||
        render_text(template->html, "html", contexts, OL_MUSTACHE_HTML, arena, &notification->html,
                    err) < 0) {
        ol_err_prefix(err, "template %s version %lld", template->name,
                      (long long)template->version);
        return -1;
    }
    return (notification->subject = flatten_subject(subject, arena)) ? 0 : ol_no_memory(err);
}

/* The payload that is sent: that of a mail, or for any other destination the texts with their
 * recipient. */
static int write_payload(const struct ol_notification *notification, struct ol_arena *arena,
                         struct outlog_delivery *message, outlog_err *err)
{
    struct ol_buf out = {0};
    if (notification->address) {
        ol_buf_text(&out, "{\"to\":[");
        ol_buf_json_text(&out, notification->address);
        ol_buf_char(&out, ']');
    } else {
        ol_buf_text(&out, "{\"user_id\":");
        ol_buf_json_text(&out, notification->user_id);
        ol_buf_text(&out, ",\"category\":");
        ol_buf_json_text(&out, notification->category);
    }
    ol_buf_text(&out, ",\"subject\":");
    ol_buf_json_text(&out, notification->subject);
    if (notification->text) {
        ol_buf_text(&out, ",\"body_text\":");
        ol_buf_json_text(&out, notification->text);
    }
    if (notification->html) {
        ol_buf_text(&out, ",\"body_html\":");
        ol_buf_json_text(&out, notification->html);
    }
    ol_buf_char(&out, '}');
    const char *copy = out.failed ? NULL : ol_arena_copy(arena, out.data, out.bytes);
    if (copy) {
        message->payload = copy;
        message->payload_bytes = out.bytes;
        if (!notification->is_feed)
            message->content_type = "application/json";
    }
    ol_buf_clear(&out);
    return copy ? 0 : ol_no_memory(err);
}

int ol_render_prepare(struct ol_template_cache *cache, struct ol_conn *conn, bool is_feed,
                      struct ol_arena *arena, struct outlog_delivery *message,
                      const struct ol_notification **out, outlog_err *err)
{
    const struct ol_message_template *template;
    struct ol_json object;
    struct ol_notification *notification = ol_arena_alloc(arena, sizeof *notification);
    if (!notification)
        return ol_no_memory(err);
    *notification = (struct ol_notification){.is_feed = is_feed};
    if (ol_json_parse_wrapped(message->payload, message->payload_bytes, &object, err) < 0 ||
        read_message(&object, arena, notification, err) < 0)
        return -1;
    struct ol_json channel = ol_json_get(&object, "channel");
    if (ol_json_equals(&channel, "email") &&
        find_address(conn, message->org_id, arena, notification, err) < 0)
        return -1;
    if (find_template(cache, conn, notification, &template, err) < 0 ||
        render_parts(template, &object, arena, notification, err) < 0 ||
        write_payload(notification, arena, message, err) < 0)
        return -1;
    *out = notification;
    return 0;
}

/* --- what becomes of it --- */

int ol_render_write(struct ol_conn *conn, const struct outlog_delivery *m,
                    const struct ol_notification *n, outlog_err *err)
{
    return ol_store_exec(conn, OL_Q_NOTICE_ADD,
                         OL_PARAMS(ol_value_text(m->event_id),
                                   ol_value_text(m->org_id ? m->org_id : ""),
                                   ol_value_text(n->user_id), ol_value_text(n->category),
                                   ol_value_text(n->template), ol_value_int(n->template_version),
                                   ol_value_text(m->event_type), ol_value_text(m->causation_id),
                                   ol_value_text(m->aggregate_type), ol_value_text(m->aggregate_id),
                                   ol_value_text(m->correlation_id), ol_value_text(n->subject),
                                   ol_value_text(n->text), ol_value_text(n->html)),
                         NULL, err);
}

int ol_render_suppress(struct ol_conn *conn, const struct ol_notification *notification,
                       const char *error, outlog_err *err)
{
    return ol_store_exec(conn, OL_Q_SUPPRESSION_ADD,
                         OL_PARAMS(ol_value_text(notification->mailbox),
                                   ol_value_text(error ? error : "refused for good")),
                         NULL, err);
}
