/* console.c: serves the console's files, which are embedded in this binary. */
#include "server/http/router.h"

#include "console_stamp.h"

#include <string.h>

/* The files, plain and gzipped. OL_CONSOLE is the folder they were built in. */
#define FILE_IN_BINARY(symbol, name)                                           \
    __asm__(".section .rodata\n"                                               \
            ".global " #symbol "_begin, " #symbol "_end\n" #symbol "_begin:\n" \
            ".incbin \"" OL_CONSOLE "/" name "\"\n" #symbol "_end:\n"          \
            ".byte 0\n"                                                        \
            ".text\n");                                                        \
    extern const char symbol##_begin[], symbol##_end[]

FILE_IN_BINARY(ol_index_html, "index.html");
FILE_IN_BINARY(ol_app_js, "app.js");
FILE_IN_BINARY(ol_app_css, "app.css");
FILE_IN_BINARY(ol_favicon, "favicon.svg");
FILE_IN_BINARY(ol_index_html_gz, "index.html.gz");
FILE_IN_BINARY(ol_app_js_gz, "app.js.gz");
FILE_IN_BINARY(ol_app_css_gz, "app.css.gz");

static const struct console_file {
    const char *path, *type;
    const char *begin, *end, *gz_begin, *gz_end;
} files[] = {
    {"/", "text/html; charset=utf-8", ol_index_html_begin, ol_index_html_end,
     ol_index_html_gz_begin, ol_index_html_gz_end},
    {"/app.js", "text/javascript; charset=utf-8", ol_app_js_begin, ol_app_js_end,
     ol_app_js_gz_begin, ol_app_js_gz_end},
    {"/app.css", "text/css; charset=utf-8", ol_app_css_begin, ol_app_css_end, ol_app_css_gz_begin,
     ol_app_css_gz_end},
    {"/favicon.svg", "image/svg+xml", ol_favicon_begin, ol_favicon_end, NULL, NULL},
};

/* Allow only our own files, and no page may frame them. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

static enum ol_handler_result serve_file(struct ol_request *request)
{
    const struct console_file *file = files;
    const char *encodings = ol_request_header(request, "accept-encoding");
    const char *known = ol_request_header(request, "if-none-match");
    static const char tag[] = "\"" OL_CONSOLE_STAMP "\"";

    while (strcmp(file->path, request->path) != 0)
        file++; // the routes below name the same paths
    bool is_known = known && strcmp(known, tag) == 0;
    struct ol_buf *out = ol_request_reply(request, is_known ? 304 : 200);
    request->content_type = file->type;
    ol_request_add(request, "cache-control", "no-cache");
    ol_request_add(request, "vary", "accept-encoding");
    ol_request_add(request, "etag", tag);
    ol_request_add(request, "content-security-policy", policy);
    ol_request_add(request, "referrer-policy", "no-referrer");
    if (is_known)
        return OL_HANDLER_ANSWERED;
    if (file->gz_begin && encodings && strstr(encodings, "gzip")) {
        ol_request_add(request, "content-encoding", "gzip");
        ol_buf_add(out, file->gz_begin, (size_t)(file->gz_end - file->gz_begin));
    } else {
        ol_buf_add(out, file->begin, (size_t)(file->end - file->begin));
    }
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_console_routes[] = {
    {"GET", "/", OL_SCOPE_NONE, serve_file, "getConsole", "The console", .reply = "text/html",
     .is_instant = true},
    {"GET", "/app.js", OL_SCOPE_NONE, serve_file, "getConsoleScript", "The console's script",
     .reply = "text/javascript", .is_instant = true},
    {"GET", "/app.css", OL_SCOPE_NONE, serve_file, "getConsoleStyle", "The console's style",
     .reply = "text/css", .is_instant = true},
    {"GET", "/favicon.svg", OL_SCOPE_NONE, serve_file, "getConsoleIcon", "The console's icon",
     .reply = "image/svg+xml", .is_instant = true},
    {0},
};
