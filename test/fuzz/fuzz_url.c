/* fuzz_url.c: G1 of ssrf_guard.c: a URL that we accept is read by curl exactly as we read it. */
#include "net/ssrf_guard.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void fail(const char *url, const char *why, const char *ours, const char *theirs)
{
    fprintf(stderr, "%s\n%s: we read %s, curl reads %s\n", url, why, ours, theirs);
    abort();
}

/* Curl may shorten an IPv6 address: the addresses are compared, not their spelling. */
static bool is_same_host(const struct ol_parsed_url *ours, const char *theirs)
{
    unsigned char a[16], b[16];
    char bare[OL_HOST_TEXT + 2];
    if (theirs[0] != '[')
        return strcasecmp(ours->host, theirs) == 0;
    snprintf(bare, sizeof bare, "%.*s", (int)strlen(theirs) - 2, theirs + 1);
    return inet_pton(AF_INET6, ours->host, a) == 1 && inet_pton(AF_INET6, bare, b) == 1 &&
           memcmp(a, b, 16) == 0;
}

static void compare(const char *url, const struct ol_parsed_url *ours)
{
    CURLU *curl = curl_url();
    char *scheme = NULL, *host = NULL, *port = NULL, *user = NULL, number[16];

    if (curl_url_set(curl, CURLUPART_URL, url, CURLU_PATH_AS_IS) != CURLUE_OK)
        goto out; // curl will not send it: no harm
    if (curl_url_get(curl, CURLUPART_USER, &user, 0) == CURLUE_OK)
        fail(url, "user", "none", user);
    if (curl_url_get(curl, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        curl_url_get(curl, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl_url_get(curl, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK)
        fail(url, "parts", "all", "missing");
    if (strcmp(scheme, ours->is_https ? "https" : "http") != 0)
        fail(url, "scheme", ours->is_https ? "https" : "http", scheme);
    if (!is_same_host(ours, host))
        fail(url, "host", ours->host, host);
    snprintf(number, sizeof number, "%d", ours->port);
    if (strcmp(port, number) != 0)
        fail(url, "port", number, port);
out:
    curl_free(user);
    curl_free(port);
    curl_free(host);
    curl_free(scheme);
    curl_url_cleanup(curl);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ol_parsed_url ours, strict;
    outlog_err err;
    if (bytes > 4096 || memchr(data, 0, bytes))
        return 0;
    char *url = malloc(bytes + 1);
    memcpy(url, data, bytes);
    url[bytes] = '\0';
    bool is_open = ol_ssrf_guard_url(url, true, &ours, &err) == 0;
    bool is_strict = ol_ssrf_guard_url(url, false, &strict, &err) == 0;
    if (is_strict && (!is_open || !strict.is_https || strict.port != 443))
        fail(url, "strict", "accepted", "what the open mode refuses");
    if (is_open)
        compare(url, &ours);
    free(url);
    return 0;
}
