/* journal.c: see journal.h. */
#include "api/journal.h"

#include "api/route.h"
#include "base/clock.h"

#include <stdio.h>
#include <string.h>

static void field(struct ol_buf *line, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    ol_buf_print(line, " %s=", name);
    ol_buf_json_text(line, value); // quotes keep spaces and control bytes harmless
}

/* The code of a problem, which is all that a log should repeat of it beside its detail. */
static void put_problem(const struct ol_request *request, struct ol_buf *line)
{
    struct ol_json problem;
    struct ol_arena arena = {0};
    if (request->reply.bytes &&
        ol_json_parse(request->reply.data, request->reply.bytes, &problem, NULL) == 0) {
        struct ol_json code = ol_json_get(&problem, "code"),
                       detail = ol_json_get(&problem, "detail");
        field(line, "code", ol_json_string(&code, &arena, NULL));
        field(line, "error", ol_json_string(&detail, &arena, NULL));
    }
    ol_arena_clear(&arena);
}

static bool is_change(const struct ol_request *request)
{
    return request->route && request->route->scope == OL_SCOPE_ADMIN && request->method &&
           strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0 &&
           request->status < 400;
}

void ol_journal_answer(const struct ol_request *request)
{
    bool has_failed = request->status >= 500;
    struct ol_buf line = {0};
    char time[OL_TIME_TEXT];

    if (!has_failed && !is_change(request))
        return;
    ol_buf_print(&line, "time=%s level=%s msg=%s status=%d",
                 ol_time_format(ol_clock_wall_us(), time), has_failed ? "error" : "info",
                 has_failed ? "request" : "admin", request->status);
    field(&line, "request_id", request->request_id);
    field(&line, "method", request->method);
    field(&line, "path", request->path);
    field(&line, "operation", request->route ? request->route->name : NULL);
    field(&line, "token_id", request->who.token_id);
    if (has_failed)
        put_problem(request, &line);
    ol_buf_print(&line, " duration_ms=%lld\n",
                 (long long)((ol_clock_boot_us() - request->began_at) / 1000));
    if (!line.failed)
        fwrite(line.data, 1, line.bytes, stderr);
    ol_buf_clear(&line);
}
