/* router.c: finds the route of a path and a method, and checks the query. */
#include "server/http/router.h"

#include "base/url.h"

#include <string.h>

const struct ol_route *const ol_routes[] = {
    ol_event_routes,
    ol_trace_routes,
    ol_token_routes,
    ol_health_routes,
    ol_run_routes,
    ol_projection_routes,
    ol_session_routes,
    ol_console_routes,
    ol_message_routes,
    ol_destination_routes,
    ol_consumer_routes,
    ol_stats_routes,
    ol_metrics_routes,
    ol_openapi_routes,
    ol_notification_routes,
    ol_sink_routes,
    NULL,
};

static size_t segment_length(const char *path)
{
    return strcspn(path, "/");
}

/* A decoded segment of the path; NULL when it is empty or no UTF-8. */
static const char *decode_segment(struct ol_request *request, const char *text, size_t bytes)
{
    char *out = ol_arena_copy(&request->arena, text, bytes);
    return out && ol_url_decode(out, false) && *out ? out : NULL;
}

/* Whether the path matches the pattern; `args` and `bytes` get its parameters, still encoded. */
static bool match_path(const char *pattern, const char *path, const char *args[], size_t bytes[])
{
    size_t arg = 0;
    for (;;) {
        size_t a = segment_length(pattern), b = segment_length(path);
        if (a && pattern[0] == '{') {
            if (b == 0)
                return false;
            args[arg] = path;
            bytes[arg++] = b;
        } else if (a != b || memcmp(pattern, path, a) != 0) {
            return false;
        }
        pattern += a;
        path += b;
        if (!*pattern || !*path)
            return *pattern == *path;
        pattern++;
        path++;
    }
}

bool ol_router_find(struct ol_request *request)
{
    const char *args[OL_ROUTE_ARGS] = {0};
    size_t bytes[OL_ROUTE_ARGS] = {0};
    struct ol_buf methods = {0};

    for (size_t i = 0; ol_routes[i]; i++)
        for (const struct ol_route *route = ol_routes[i]; route->path; route++) {
            memset(args, 0, sizeof args);
            if (!match_path(route->path, request->path, args, bytes))
                continue;
            bool is_head = strcmp(request->method, "HEAD") == 0 &&
                           strcmp(route->method, "GET") == 0;
            if (strcmp(route->method, request->method) != 0 && !is_head) {
                ol_buf_print(&methods, "%s%s", methods.bytes ? ", " : "", route->method);
                continue;
            }
            ol_buf_clear(&methods);
            request->route = route;
            for (size_t k = 0; k < OL_ROUTE_ARGS && args[k]; k++)
                if (!(request->args[k] = decode_segment(request, args[k], bytes[k]))) {
                    ol_problem_say(request, 400, "invalid_field", "the path is no UTF-8 text");
                    return false;
                }
            return true;
        }
    if (methods.bytes) {
        ol_request_add(request, "allow", methods.data);
        ol_problem_say(request, 405, "method_not_allowed", "%s is not possible here, but %s is",
                       request->method, methods.data);
    } else {
        ol_problem_say(request, 404, "not_found",
                       "there is nothing at this path; see /openapi.json");
    }
    ol_buf_clear(&methods);
    return false;
}

static bool has_word(const char *words, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = words; bytes && at && (at = strstr(at, word)); at++)
        if ((at == words || at[-1] == ' ') && (at[bytes] == ' ' || !at[bytes]))
            return true;
    return false;
}

bool ol_router_check_query(struct ol_request *request)
{
    const char *allowed = request->route->query ? request->route->query : "";
    for (size_t i = 0; i < request->param_count; i++) {
        const char *name = request->params[i].name;
        if (!has_word(allowed, name)) {
            ol_problem_say(request, 400, "unknown_field", "there is no parameter '%.60s' here%s%s",
                           name, *allowed ? "; known are " : "", allowed);
            return false;
        }
        for (size_t k = 0; k < i; k++)
            if (strcmp(request->params[k].name, name) == 0) {
                ol_problem_say(request, 400, "invalid_field", "%.60s is given twice", name);
                return false;
            }
    }
    return true;
}
