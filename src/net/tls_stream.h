/* tls_stream.h: a TCP connection, perhaps inside TLS, for clients that bring none of their own. */
#ifndef OL_NET_TLS_STREAM_H
#define OL_NET_TLS_STREAM_H

#include "base/err.h"
#include "net/address.h"

#include <sys/types.h>

struct ssl_st;
struct ssl_ctx_st;

/* Files in PEM form; NULL: the system's certificates, and no certificate of our own. */
struct ol_tls_files {
    const char *ca_file, *cert_file, *key_file;
};

/* Start from {.fd = -1}. */
struct ol_tls_stream {
    int fd;
    struct ssl_st *tls;
    struct ssl_ctx_st *context;
};

/* Connect to the address, by TLS where it says so: then the certificate must be valid for the host,
 * by ca_file or by what the system trusts. Takes timeout_ms at most, and the lookup of the name. */
int ol_tls_stream_open(struct ol_tls_stream *wire, const struct ol_address *address,
                       const struct ol_tls_files *files, int timeout_ms, outlog_err *err);
void ol_tls_stream_close(struct ol_tls_stream *wire);

/* Write all of it, waiting as long as it takes: whoever calls has a watchdog that shuts fd down. */
int ol_tls_stream_write(struct ol_tls_stream *wire, const char *data, size_t bytes,
                        outlog_err *err);

/* Read what there is, waiting up to timeout_ms for the first of it. 0: nothing came. -1: the
 * connection is over. */
ssize_t ol_tls_stream_read(struct ol_tls_stream *wire, char *data, size_t room, int timeout_ms,
                           outlog_err *err);

#endif
