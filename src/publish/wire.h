/* wire.h: a TCP connection, perhaps inside TLS, for clients that bring none of their own. */
#ifndef OL_PUBLISH_WIRE_H
#define OL_PUBLISH_WIRE_H

#include "publish/settings.h"

#include <sys/types.h>

struct ssl_st;
struct ssl_ctx_st;

/* Start from {.fd = -1}. */
struct ol_wire {
    int fd;
    struct ssl_st *tls;
    struct ssl_ctx_st *context;
};

/* Connect to the address, by TLS where it says so: then the certificate must be valid for the host,
 * by ca_file or by what the system trusts. Takes timeout_ms at most, and the lookup of the name. */
int ol_wire_open(struct ol_wire *wire, const struct ol_address *address,
                 const struct ol_settings *settings, int timeout_ms, outlog_err *err);
void ol_wire_close(struct ol_wire *wire);

/* Write all of it, waiting as long as it takes: whoever calls has a watchdog that shuts fd down. */
int ol_wire_write(struct ol_wire *wire, const char *data, size_t bytes, outlog_err *err);

/* Read what there is, waiting up to timeout_ms for the first of it. 0: nothing came. -1: the
 * connection is over. */
ssize_t ol_wire_read(struct ol_wire *wire, char *data, size_t room, int timeout_ms,
                     outlog_err *err);

#endif
