/* address.h: the address of a broker: scheme://[user[:password]@]host[:port][/path]. Pure. */
#ifndef OL_NET_ADDRESS_H
#define OL_NET_ADDRESS_H

#include "base/arena.h"
#include "base/err.h"

struct ol_address {
    const char *user, *password; /* NULL: none */
    const char *host;            /* without the brackets of an IPv6 address */
    const char *path;            /* what follows the slash, %XX decoded; NULL: no slash */
    int port;
    bool is_tls;
};

/* A scheme, with its default port and whether it means TLS. */
struct ol_address_scheme {
    const char *name;
    int port;
    bool is_tls;
};

/* Read `url`, or several separated by commas, of one of the schemes (the list ends with a NULL
 * name). User, password and path may hold %XX. The list and its texts are in `arena`.
 *
 * OUTLOG_INVALID_FIELD: it cannot be read; the message never shows the URL, which may hold a
 * password. */
int ol_address_parse(const char *url, const struct ol_address_scheme *schemes,
                     struct ol_arena *arena, struct ol_address **list, size_t *count,
                     outlog_err *err);

#endif
