/* cors.c: checks the Host and Origin headers of a request. */
#include "server/http/cors.h"

#include "base/err.h"
#include "base/json/json.h"
#include "log/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ol_cors {
    pthread_mutex_t lock;
    char *origins; /* a JSON array of strings, or NULL */
};

int ol_cors_open(struct ol_cors **out, const char *store, outlog_err *err)
{
    outlog *log;
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ol_no_memory(err);
    pthread_mutex_init(&(*out)->lock, NULL);
    if (outlog_open(store, &log, err) < 0)
        return -1;
    ol_cors_refresh(*out, log);
    outlog_close(log);
    return 0;
}

void ol_cors_close(struct ol_cors *cors)
{
    if (!cors)
        return;
    pthread_mutex_destroy(&cors->lock);
    free(cors->origins);
    free(cors);
}

void ol_cors_refresh(struct ol_cors *cors, outlog *log)
{
    struct ol_rows rows;
    outlog_err err;

    if (ol_log_ready(log, &err) < 0 ||
        ol_store_query(log->conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text("serve.origins")),
                       &rows, &err) < 0)
        return;
    int got = ol_rows_next(&rows, &err);
    char *origins = got > 0 ? strdup(ol_rows_text(&rows, 0, NULL)) : NULL;
    ol_rows_end(&rows);
    if (got < 0)
        return;
    pthread_mutex_lock(&cors->lock);
    free(cors->origins);
    cors->origins = origins;
    pthread_mutex_unlock(&cors->lock);
}

static bool is_allowed_origin(struct ol_cors *cors, const char *origin)
{
    struct ol_json list;
    struct ol_json_iter it = {0};
    bool found = false;

    pthread_mutex_lock(&cors->lock);
    if (cors->origins && ol_json_parse(cors->origins, strlen(cors->origins), &list, NULL) == 0)
        while (!found && list.type == OL_JSON_ARRAY && ol_json_next(&list, &it))
            found = ol_json_equals(&it.value, origin);
    pthread_mutex_unlock(&cors->lock);
    return found;
}

static bool is_loopback(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t bytes = strlen(names[i]);
        if (strncasecmp(host, names[i], bytes) == 0 && (!host[bytes] || host[bytes] == ':'))
            return true;
    }
    return false;
}

/* A page can be made to write without an Origin header, but not without telling its site. Reading
 * is allowed: a link leads here, and no page sees the answer. */
static bool comes_from_another_site(const struct ol_request *request)
{
    const char *site = ol_request_header(request, "sec-fetch-site");
    return site && strcasecmp(site, "same-origin") != 0 && strcasecmp(site, "none") != 0 &&
           strcmp(request->method, "GET") != 0 && strcmp(request->method, "HEAD") != 0;
}

bool ol_cors_check(struct ol_request *request, struct ol_cors *cors, bool is_dev)
{
    const char *host = ol_request_header(request, "host");
    const char *origin = ol_request_header(request, "origin");
    const char *upgrade = ol_request_header(request, "upgrade");

    if (is_dev && !is_loopback(host)) { // DNS rebinding: another site may point its name at us
        ol_problem_say(request, 403, "forbidden",
                       "serve --dev answers only to localhost, 127.0.0.1 and [::1]");
        return false;
    }
    if (!origin && !comes_from_another_site(request))
        return true;
    const char *name = origin ? strstr(origin, "://") : NULL;
    if (name && strcasecmp(name + 3, host) == 0)
        return true;
    if (origin && upgrade && strcasecmp(upgrade, "websocket") == 0 &&
        is_allowed_origin(cors, origin))
        return true;
    ol_problem_say(request, 403, "forbidden",
                   "a page of another origin may not call this API; serve.origins names those that "
                   "may open sockets");
    return false;
}
