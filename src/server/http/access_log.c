/* access_log.c: decides which requests are logged, and with which fields. */
#include "server/http/access_log.h"

#include "base/clock.h"
#include "base/logline.h"
#include "server/http/router.h"

#include <string.h>

/* The code and the detail of a problem; the log repeats nothing else of the answer. */
static void put_problem(const struct ol_request *request, struct ol_buf *line)
{
    struct ol_json problem;
    struct ol_arena arena = {0};
    if (request->reply.bytes &&
        ol_json_parse(request->reply.data, request->reply.bytes, &problem, NULL) == 0) {
        struct ol_json code = ol_json_get(&problem, "code"),
                       detail = ol_json_get(&problem, "detail");
        ol_logline_text(line, "code", ol_json_string(&code, &arena, NULL));
        ol_logline_text(line, "error", ol_json_string(&detail, &arena, NULL));
    }
    ol_arena_clear(&arena);
}

static bool is_change(const struct ol_request *request)
{
    return request->route && request->route->scope == OL_SCOPE_ADMIN && request->method &&
           strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0 &&
           request->status < 400;
}

void ol_access_log_write(const struct ol_request *request)
{
    bool has_failed = request->status >= 500;
    struct ol_buf line = {0};

    if (!has_failed && !is_change(request))
        return;
    ol_logline_begin(&line, has_failed ? OL_LOGLINE_ERROR : OL_LOGLINE_INFO,
                     has_failed ? "request" : "admin");
    ol_logline_int(&line, "status", request->status);
    ol_logline_text(&line, "request_id", request->request_id);
    ol_logline_text(&line, "method", request->method);
    ol_logline_text(&line, "path", request->path);
    ol_logline_text(&line, "operation", request->route ? request->route->name : NULL);
    ol_logline_text(&line, "token_id", request->who.token_id);
    if (has_failed)
        put_problem(request, &line);
    ol_logline_int(&line, "duration_ms", (ol_clock_boot_us() - request->began_at) / 1000);
    ol_logline_end(&line);
}
