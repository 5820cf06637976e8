/* address.c: a small URL parser; curl's accepts only the schemes that curl supports. */
#include "net/address.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse_url(outlog_err *err, const char *why)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/url", "url: %s", why);
}

/* A copy with %XX decoded. NULL: a percent sign without two digits, or %00. */
static const char *decode_percent(struct ol_arena *arena, const char *text, size_t bytes)
{
    char *copy = ol_arena_copy(arena, text, bytes), *to = copy;
    unsigned byte;
    for (const char *at = copy; copy && *at; to++) {
        if (*at != '%') {
            *to = *at++;
        } else if (strspn(at + 1, "0123456789abcdefABCDEF") >= 2 &&
                   sscanf(at + 1, "%2x", &byte) == 1 && byte) {
            *to = (char)byte;
            at += 3;
        } else {
            return NULL;
        }
    }
    if (copy)
        *to = '\0';
    return copy;
}

static int read_port(const char *text, size_t bytes, int *port)
{
    char number[8] = "";
    if (bytes == 0 || bytes > 5 || strspn(text, "0123456789") < bytes)
        return -1;
    memcpy(number, text, bytes);
    *port = atoi(number);
    return *port > 0 && *port < 65536 ? 0 : -1;
}

/* host, host:port or [v6]:port */
static int read_host(const char *text, size_t bytes, struct ol_arena *arena, struct ol_address *out,
                     outlog_err *err)
{
    const char *end = text + bytes, *host = text, *host_end, *colon;
    if (bytes && *text == '[') {
        host = text + 1;
        host_end = memchr(text, ']', bytes);
        if (!host_end || (host_end + 1 < end && host_end[1] != ':'))
            return refuse_url(err, "an address in brackets is not closed");
        colon = host_end + 1 < end ? host_end + 1 : NULL;
    } else {
        colon = memchr(text, ':', bytes);
        host_end = colon ? colon : end;
    }
    if (host_end == host)
        return refuse_url(err, "the host is missing");
    for (const char *at = host; at < host_end; at++)
        if ((unsigned char)*at <= ' ' || strchr("/?#@\"<>\\^`{|}", *at))
            return refuse_url(err, "the host holds a character that cannot be in one");
    if (colon && read_port(colon + 1, (size_t)(end - colon - 1), &out->port) < 0)
        return refuse_url(err, "the port is no number from 1 to 65535");
    out->host = ol_arena_copy(arena, host, (size_t)(host_end - host));
    return out->host ? 0 : ol_no_memory(err);
}

static int read_login(const char *text, size_t bytes, struct ol_arena *arena,
                      struct ol_address *out, outlog_err *err)
{
    const char *colon = memchr(text, ':', bytes);
    size_t user_bytes = colon ? (size_t)(colon - text) : bytes;
    out->user = decode_percent(arena, text, user_bytes);
    if (colon)
        out->password = decode_percent(arena, colon + 1, bytes - user_bytes - 1);
    if (!out->user || (colon && !out->password))
        return refuse_url(err, "a % is not followed by two hexadecimal digits");
    return 0;
}

static int parse_one(const char *text, size_t bytes, const struct ol_address_scheme *schemes,
                     struct ol_arena *arena, struct ol_address *out, outlog_err *err)
{
    const char *at = memmem(text, bytes, "://", 3), *end = text + bytes;
    size_t i = 0, scheme_bytes = at ? (size_t)(at - text) : 0;
    char wanted[80];

    while (schemes[i].name && (strlen(schemes[i].name) != scheme_bytes ||
                               strncmp(schemes[i].name, text, scheme_bytes) != 0))
        i++;
    if (!at || !schemes[i].name) {
        snprintf(wanted, sizeof wanted, "%s://host:port is wanted", schemes[0].name);
        return refuse_url(err, wanted);
    }
    out->port = schemes[i].port;
    out->is_tls = schemes[i].is_tls;
    at += 3;
    if (memchr(at, '?', (size_t)(end - at)) || memchr(at, '#', (size_t)(end - at)))
        return refuse_url(err, "it has a ? or a #, which mean nothing here");
    const char *login = memrchr(at, '@', (size_t)(end - at));
    if (login) {
        if (read_login(at, (size_t)(login - at), arena, out, err) < 0)
            return -1;
        at = login + 1;
    }
    const char *slash = memchr(at, '/', (size_t)(end - at));
    if (slash && !(out->path = decode_percent(arena, slash + 1, (size_t)(end - slash - 1))))
        return refuse_url(err, "a % is not followed by two hexadecimal digits");
    return read_host(at, (size_t)((slash ? slash : end) - at), arena, out, err);
}

int ol_address_parse(const char *url, const struct ol_address_scheme *schemes,
                     struct ol_arena *arena, struct ol_address **list, size_t *count,
                     outlog_err *err)
{
    size_t room = 1;
    for (const char *at = url; *at; at++)
        room += *at == ',';
    *list = ol_arena_array(arena, room, sizeof **list);
    if (!*list)
        return ol_no_memory(err);
    *count = 0;
    for (const char *at = url;; at++) {
        at += strspn(at, " ");
        size_t bytes = strcspn(at, ", ");
        if (parse_one(at, bytes, schemes, arena, &(*list)[(*count)++], err) < 0)
            return -1;
        at += bytes + strspn(at + bytes, " ");
        if (*at == '\0')
            return 0;
        if (*at != ',')
            return refuse_url(err, "there is a space in it");
    }
}
