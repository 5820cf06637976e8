/* problem.c: errors as RFC 9457 problem objects. */
#include "server/http/request.h"

#include "base/err.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct problem {
    int status;
    const char *code, *detail, *pointer;
    const outlog_err *err; /* NULL: it is not an error of the library */
};

/* sequence_conflict becomes "Sequence conflict". */
static void put_title(const char *code, struct ol_buf *out)
{
    char title[64];
    snprintf(title, sizeof title, "%s", code);
    for (char *c = title; *c; c++)
        if (*c == '_')
            *c = ' ';
    if (title[0] >= 'a' && title[0] <= 'z')
        title[0] = (char)(title[0] - 'a' + 'A');
    ol_buf_json_text(out, title);
}

static void put_problem(const struct ol_request *request, const struct problem *problem,
                        struct ol_buf *out)
{
    const outlog_err *err = problem->err;

    ol_buf_print(out, "{\"type\":\"urn:outlog:error:%s\",\"title\":", problem->code);
    put_title(problem->code, out);
    ol_buf_print(out, ",\"status\":%d,\"code\":\"%s\",\"detail\":", problem->status, problem->code);
    ol_buf_json_text(out, problem->detail);
    ol_buf_text(out, ",\"request_id\":");
    ol_buf_json_text(out, request->request_id);
    ol_buf_print(out, ",\"outcome\":\"%s\"",
                 err && err->code == OUTLOG_OUTCOME_UNKNOWN ? "unknown" : "failed");
    if (err && (err->code == OUTLOG_SEQUENCE_CONFLICT || err->code == OUTLOG_BEYOND_LOG))
        ol_buf_print(out, ",\"expected\":%lld,\"actual\":%lld", (long long)err->expected,
                     (long long)err->actual);
    ol_buf_text(out, ",\"errors\":[");
    if (problem->pointer && *problem->pointer) {
        ol_buf_text(out, "{\"pointer\":");
        ol_buf_json_text(out, problem->pointer);
        ol_buf_text(out, ",\"detail\":");
        ol_buf_json_text(out, problem->detail);
        ol_buf_char(out, '}');
    }
    ol_buf_text(out, "]}");
}

static enum ol_handler_result answer_problem(struct ol_request *request,
                                             const struct problem *problem)
{
    put_problem(request, problem, ol_request_reply(request, problem->status));
    ol_problem_head(request, problem->status);
    return OL_HANDLER_ANSWERED;
}

void ol_problem_head(struct ol_request *request, int status)
{
    request->status = status;
    request->content_type = "application/problem+json";
    if (status == 503 || status == 429)
        ol_request_add(request, "retry-after", "1");
    if (status == 401)
        ol_request_add(request, "www-authenticate", "Bearer");
}

static struct problem make_problem(const outlog_err *err)
{
    bool is_forbidden = err->code == OUTLOG_OK; // see OL_FORBIDDEN
    return (struct problem){.status = is_forbidden ? 403 : ol_err_http_status(err->code),
                            .code = is_forbidden ? "forbidden" : outlog_code_name(err->code),
                            .detail = err->message,
                            .pointer = err->pointer,
                            .err = err};
}

enum ol_handler_result ol_problem(struct ol_request *request, const outlog_err *err)
{
    struct problem problem = make_problem(err);
    return answer_problem(request, &problem);
}

int ol_problem_json(const struct ol_request *request, const outlog_err *err, struct ol_buf *out)
{
    struct problem problem = make_problem(err);
    put_problem(request, &problem, out);
    return problem.status;
}

enum ol_handler_result ol_problem_say(struct ol_request *request, int status, const char *code,
                                      const char *format, ...)
{
    char detail[480];
    va_list args;

    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    ol_utf8_repair(detail, strlen(detail));
    struct problem problem = {.status = status, .code = code, .detail = detail};
    return answer_problem(request, &problem);
}
