/* tls_stream.h: a TCP connection, with or without TLS, for client libraries without one. */
#ifndef OL_NET_TLS_STREAM_H
#define OL_NET_TLS_STREAM_H

#include "base/err.h"
#include "net/address.h"

#include <sys/types.h>

struct ssl_st;
struct ssl_ctx_st;

/* PEM files. NULL: trust the system's certificates; send no client certificate. */
struct ol_tls_files {
    const char *ca_file, *cert_file, *key_file;
};

/* Start from {.fd = -1}. */
struct ol_tls_stream {
    int fd;
    struct ssl_st *tls;
    struct ssl_ctx_st *context;
};

/* Connect to the address, with TLS if address->is_tls. The certificate must then be valid for the
 * host and signed by ca_file or one that the system trusts. Takes timeout_ms at most, plus the time
 * to resolve the name. */
int ol_tls_stream_open(struct ol_tls_stream *stream, const struct ol_address *address,
                       const struct ol_tls_files *files, int timeout_ms, outlog_err *err);
void ol_tls_stream_close(struct ol_tls_stream *stream);

/* Write all of it, without a time limit: the caller needs a watchdog that shuts fd down. */
int ol_tls_stream_write(struct ol_tls_stream *stream, const char *data, size_t bytes,
                        outlog_err *err);

/* Read what has arrived, waiting up to timeout_ms for the first byte. 0: nothing arrived. -1: the
 * connection was closed. */
ssize_t ol_tls_stream_read(struct ol_tls_stream *stream, char *data, size_t room, int timeout_ms,
                           outlog_err *err);

#endif
