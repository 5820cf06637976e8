/* ssrf_guard.c: the SSRF guard.
 *
 * G1  A URL is accepted only in a form that every parser reads alike: curl connects to what we
 *     check (fuzz_url compares the two).
 * G2  The address is checked where the socket is made (http_transfer.c), and curl connects to that
 *     address: between check and use there is no second lookup.
 * G3  A kept connection is checked again before each request. */
#include "net/ssrf_guard.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

/* --- the URL ---------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* What follows the prefix, whose case does not matter, or NULL. */
static const char *skip_prefix(const char *text, const char *prefix)
{
    for (; *prefix; text++, prefix++)
        if (to_lower(*text) != *prefix)
            return NULL;
    return text;
}

static int refuse_url(outlog_err *err, const char *why)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/url", "url: %s", why);
}

/* inet_aton and resolvers take a name whose last label is a number for an address. Only the
 * four-part decimal form may look like one. */
static bool looks_like_number(const char *host)
{
    const char *label = strrchr(host, '.');
    label = label ? label + 1 : host;
    if (label[0] == '0' && label[1] == 'x')
        return true;
    return is_digit(label[0]) && strspn(label, "0123456789") == strlen(label);
}

static int check_name(const char *host, outlog_err *err)
{
    size_t label = 0;
    for (const char *at = host;; at++) {
        if (*at == '.' || *at == '\0') {
            if (label == 0 || label > 63)
                return refuse_url(err, "the host has an empty or overlong label");
            if (at[-1] == '-' || at[-(long)label] == '-')
                return refuse_url(err, "a label of the host begins or ends with a hyphen");
            label = 0;
            if (*at == '\0')
                return 0;
            continue;
        }
        bool ok = (*at >= 'a' && *at <= 'z') || is_digit(*at) || *at == '-' || *at == '_';
        if (!ok)
            return refuse_url(err, "the host may hold letters, digits, hyphens and dots only"
                                   " (write international names as xn--…)");
        label++;
    }
}

static int check_literal(struct ol_parsed_url *url, const struct sockaddr *address, socklen_t bytes,
                         bool allow_private, outlog_err *err)
{
    const char *why = ol_ssrf_guard_address(address, bytes);
    url->is_address = true;
    if (!why || allow_private)
        return 0;
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/url",
                      "url: %s is a %s address; allow_private: true would admit it", url->host,
                      why);
}

static int check_host(struct ol_parsed_url *url, bool is_bracketed, bool allow_private,
                      outlog_err *err)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};

    if (is_bracketed) {
        if (inet_pton(AF_INET6, url->host, &six.sin6_addr) != 1)
            return refuse_url(err, "the brackets do not hold an IPv6 address");
        return check_literal(url, (struct sockaddr *)&six, sizeof six, allow_private, err);
    }
    if (looks_like_number(url->host)) {
        if (inet_pton(AF_INET, url->host, &four.sin_addr) != 1)
            return refuse_url(err, "an IPv4 address is written as four decimal numbers");
        return check_literal(url, (struct sockaddr *)&four, sizeof four, allow_private, err);
    }
    return check_name(url->host, err);
}

/* The port after its colon, up to the end of the authority. An empty one is refused. */
static int read_port(const char *at, size_t bytes, int *port)
{
    *port = 0;
    if (bytes == 0 || bytes > 5)
        return -1;
    for (size_t i = 0; i < bytes; i++) {
        if (!is_digit(at[i]))
            return -1;
        *port = *port * 10 + (at[i] - '0');
    }
    return *port < 1 || *port > 65535 || at[0] == '0' ? -1 : 0;
}

int ol_ssrf_guard_url(const char *url, bool allow_private, struct ol_parsed_url *out,
                      outlog_err *err)
{
    *out = (struct ol_parsed_url){0};
    for (const char *at = url; *at; at++)
        if (*at <= 0x20 || *at == 0x7f || strchr("\\#\"<>^`{|}", *at)) // signed: >= 0x80 is < 0
            return refuse_url(err, "white space, control bytes, bytes beyond ASCII and"
                                   " \\ # \" < > ^ ` { | } must be left out or written as %XX");
    const char *host = skip_prefix(url, "https://");
    out->is_https = host != NULL;
    if (!host && !(host = skip_prefix(url, "http://")))
        return refuse_url(err, "it must begin with https://");
    if (!out->is_https && !allow_private)
        return refuse_url(err, "it must begin with https:// (allow_private: true admits http)");

    size_t authority = strcspn(host, "/?");
    if (memchr(host, '@', authority))
        return refuse_url(err, "it must not hold a user name or password (use headers)");
    bool is_bracketed = *host == '[';
    const char *end;
    if (is_bracketed) {
        host++;
        authority--;
        end = memchr(host, ']', authority);
        if (!end)
            return refuse_url(err, "] is missing");
    } else {
        end = memchr(host, ':', authority);
        if (!end)
            end = host + authority;
    }
    size_t bytes = (size_t)(end - host);
    if (bytes == 0 || bytes >= sizeof out->host)
        return refuse_url(err, "the host is empty or too long");
    for (size_t i = 0; i < bytes; i++)
        out->host[i] = to_lower(host[i]);

    const char *colon = end + (is_bracketed ? 1 : 0);
    size_t rest = (size_t)(host + authority - colon);
    out->port = out->is_https ? 443 : 80;
    if (rest > 0 && (*colon != ':' || read_port(colon + 1, rest - 1, &out->port) < 0))
        return refuse_url(err, "what follows the host is no port");
    if (check_host(out, is_bracketed, allow_private, err) < 0)
        return -1;
    if (out->port != 443 && !allow_private)
        return refuse_url(err, "only port 443 is admitted (allow_private: true admits any)");
    return 0;
}

bool ol_ssrf_guard_host_is_listed(const char *host, const char *const *allowed, size_t count)
{
    size_t bytes = strlen(host);
    for (size_t i = 0; i < count; i++) {
        const char *suffix = allowed[i][0] == '*' ? allowed[i] + 1 : NULL; // ".example.com"
        size_t length = suffix ? strlen(suffix) : 0;
        if (suffix ? bytes > length && !strcasecmp(host + bytes - length, suffix)
                   : !strcasecmp(host, allowed[i]))
            return true;
    }
    return false;
}

/* --- the address ------------------------------------------------------------------------------ */

struct ip_range {
    unsigned char prefix[4];
    int bits;
    const char *name;
};

/* IANA's special-purpose registry, and Azure's metadata service, which has a public address. */
static const struct ip_range refused_four[] = {
    {{0, 0, 0, 0}, 8, "this-network"},        {{10, 0, 0, 0}, 8, "private"},
    {{100, 64, 0, 0}, 10, "carrier-private"}, {{127, 0, 0, 0}, 8, "loopback"},
    {{169, 254, 0, 0}, 16, "link-local"},     {{172, 16, 0, 0}, 12, "private"},
    {{192, 0, 0, 0}, 24, "special-purpose"},  {{192, 0, 2, 0}, 24, "documentation"},
    {{192, 88, 99, 0}, 24, "relay-anycast"},  {{192, 168, 0, 0}, 16, "private"},
    {{198, 18, 0, 0}, 15, "benchmark"},       {{198, 51, 100, 0}, 24, "documentation"},
    {{203, 0, 113, 0}, 24, "documentation"},  {{224, 0, 0, 0}, 4, "multicast"},
    {{240, 0, 0, 0}, 4, "reserved"},          {{168, 63, 129, 16}, 32, "cloud-metadata"},
};

/* Of IPv6 only 2000::/3 is public, except these. */
static const struct ip_range refused_six[] = {
    {{0x20, 0x01, 0x00, 0x00}, 23, "special-purpose"},
    {{0x20, 0x01, 0x0d, 0xb8}, 32, "documentation"},
    {{0x20, 0x02, 0x00, 0x00}, 16, "6to4"},
    {{0x3f, 0xff, 0x00, 0x00}, 20, "documentation"},
};

static bool in_range(const unsigned char *address, const struct ip_range *range)
{
    int whole = range->bits / 8, rest = range->bits % 8;
    if (memcmp(address, range->prefix, (size_t)whole) != 0)
        return false;
    return rest == 0 || (address[whole] ^ range->prefix[whole]) >> (8 - rest) == 0;
}

static const char *check_four(const unsigned char *address)
{
    for (size_t i = 0; i < sizeof refused_four / sizeof *refused_four; i++)
        if (in_range(address, &refused_four[i]))
            return refused_four[i].name;
    return NULL;
}

static const char *check_six(const unsigned char *address)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const unsigned char nat64[12] = {0x00, 0x64, 0xff, 0x9b};
    static const unsigned char loopback[16] = {[15] = 1};

    if (memcmp(address, mapped, 12) == 0 || memcmp(address, nat64, 12) == 0)
        return check_four(address + 12);
    if (memcmp(address, loopback, 16) == 0)
        return "loopback";
    if (address[0] == 0xfe && (address[1] & 0xc0) == 0x80)
        return "link-local";
    if ((address[0] & 0xfe) == 0xfc)
        return "private";
    if (address[0] == 0xff)
        return "multicast";
    if ((address[0] & 0xe0) != 0x20)
        return "reserved";
    for (size_t i = 0; i < sizeof refused_six / sizeof *refused_six; i++)
        if (in_range(address, &refused_six[i]))
            return refused_six[i].name;
    return NULL;
}

const char *ol_ssrf_guard_address(const struct sockaddr *address, socklen_t bytes)
{
    struct sockaddr_in four;
    struct sockaddr_in6 six;

    if (address->sa_family == AF_INET && bytes >= sizeof four) {
        memcpy(&four, address, sizeof four);
        return check_four((const unsigned char *)&four.sin_addr);
    }
    if (address->sa_family == AF_INET6 && bytes >= sizeof six) {
        memcpy(&six, address, sizeof six);
        return check_six(six.sin6_addr.s6_addr);
    }
    return "non-internet"; // AF_UNIX and whatever else
}
