/* ssrf_guard.h: which URLs and addresses may be sent to (D1). Pure: no lookup, no connection. */
#ifndef OL_NET_SSRF_GUARD_H
#define OL_NET_SSRF_GUARD_H

#include "base/err.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { OL_HOST_TEXT = 254 };

/* The parts of a URL that matter for the connection. */
struct ol_parsed_url {
    bool is_https;
    bool is_address;         /* the host is an IP address */
    char host[OL_HOST_TEXT]; /* lower case; an IPv6 address without its brackets */
    int port;
};

/* Parse a URL, and refuse every form that another parser could read differently: user info,
 * fragments, white space, backslashes, bytes beyond ASCII, escapes in the host, inet_aton
 * addresses (0x7f.1, 2130706433, 010.0.0.1), zone ids, empty labels.
 *
 * Without `allow_private` only https on port 443 passes, and no address that ol_ssrf_guard_address
 * refuses. OUTLOG_INVALID_FIELD: the message names the part, not the URL, whose path
 * may be secret. */
int ol_ssrf_guard_url(const char *url, bool allow_private, struct ol_parsed_url *out,
                      outlog_err *err);

/* NULL when the public internet may reach this address, else the name of the range that forbids
 * it: "private", "loopback", "link-local", … Addresses that wrap an IPv4 one are unwrapped. */
const char *ol_ssrf_guard_address(const struct sockaddr *address, socklen_t bytes);

/* Whether `host` is one of `allowed`: equal, or below a "*.example.com". */
bool ol_ssrf_guard_host_is_listed(const char *host, const char *const *allowed, size_t count);

#endif
