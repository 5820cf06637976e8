/* origin.c: Host and Origin. */
#include "api/origin.h"

#include <string.h>

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

bool ol_origin_check(struct ol_request *request, bool is_dev)
{
    const char *host = ol_request_header(request, "host");
    const char *origin = ol_request_header(request, "origin");

    if (is_dev && !is_loopback(host)) {
        ol_problem_say(request, 403, "forbidden",
                       "serve --dev answers only to localhost, 127.0.0.1 and [::1]");
        return false;
    }
    if (!origin)
        return true;
    const char *name = strstr(origin, "://");
    if (name && strcasecmp(name + 3, host) == 0)
        return true;
    ol_problem_say(request, 403, "forbidden", "a page of another origin may not call this API");
    return false;
}
