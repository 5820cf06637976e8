/* openapi.c: the API's description in OpenAPI 3.1.
 *
 * The operations come from the route tables, so none can be missing. schemas.json has the schemas
 * of bodies and the parameters. */
#include "server/http/router.h"

#include <string.h>

/* schemas.json: {"schemas":{…},"parameters":{…}} */
extern const char ol_api_schemas[];

static const char *const scopes[] = {"any", "read", "append", "admin"};

/* --- one operation --- */

static void put_path_arguments(const char *path, struct ol_buf *out, const char **comma)
{
    for (const char *at = path; (at = strchr(at, '{')); at++) {
        size_t bytes = strcspn(at + 1, "}");
        ol_buf_print(out,
                     "%s{\"name\":\"%.*s\",\"in\":\"path\",\"required\":true,"
                     "\"schema\":{\"type\":\"string\",\"minLength\":1}}",
                     *comma, (int)bytes, at + 1);
        *comma = ",";
    }
}

static void put_parameters(const struct ol_route *route, struct ol_buf *out)
{
    const char *comma = "", *at = route->query ? route->query : "";

    ol_buf_text(out, ",\"parameters\":[");
    put_path_arguments(route->path, out, &comma);
    while (*at) {
        size_t bytes = strcspn(at, " ");
        ol_buf_print(out, "%s{\"$ref\":\"#/components/parameters/%.*s\"}", comma, (int)bytes, at);
        comma = ",";
        at += bytes + strspn(at + bytes, " ");
    }
    if (strcmp(route->method, "POST") == 0)
        ol_buf_print(out, "%s{\"$ref\":\"#/components/parameters/Idempotency-Key\"}", comma);
    ol_buf_char(out, ']');
}

static void put_content(const char *schema, bool has_lines, struct ol_buf *out)
{
    const char *lines = has_lines ? ",\"application/x-ndjson\":{\"schema\":{\"type\":\"string\"}}"
                                  : "";

    bool is_media = strchr(schema, '/') != NULL;
    if (is_media)
        ol_buf_print(out, "\"content\":{\"%s\":{\"schema\":{\"type\":\"%s\"}}}", schema,
                     strstr(schema, "json") ? "object" : "string");
    else
        ol_buf_print(
            out,
            "\"content\":{\"application/json\":{\"schema\":{\"$ref\":\"#/components/schemas/%s\"}}%s}",
            schema, lines);
}

static void put_body(const struct ol_route *route, struct ol_buf *out)
{
    if (!route->body)
        return;
    ol_buf_print(out, ",\"requestBody\":{\"required\":%s,",
                 strcmp(route->body, "Empty") == 0 ? "false" : "true");
    put_content(route->body, route->takes_lines, out);
    ol_buf_char(out, '}');
}

static void put_success(const struct ol_route *route, int status, struct ol_buf *out)
{
    ol_buf_print(out, "\"%d\":{\"description\":\"%s\"", status,
                 status == 101   ? "A WebSocket"
                 : status == 201 ? "Created"
                 : status == 202 ? "Accepted"
                 : status == 204 ? "Done"
                                 : "OK");
    if (route->reply) {
        ol_buf_char(out, ',');
        put_content(route->reply, route->takes_lines && status == 200, out);
    }
    ol_buf_char(out, '}');
}

static void put_problem(int status, struct ol_buf *out)
{
    ol_buf_print(out, ",\"%d\":{\"$ref\":\"#/components/responses/Problem\"}", status);
}

static void put_responses(const struct ol_route *route, struct ol_buf *out)
{
    bool is_read = strcmp(route->method, "GET") == 0, has_token = !route->is_open;

    ol_buf_text(out, ",\"responses\":{");
    put_success(route, route->status ? route->status : 200, out);
    if (route->other_status) {
        ol_buf_char(out, ',');
        put_success(route, route->other_status, out);
    }
    put_problem(400, out);
    bool is_socket = route->status == 101; // its handler checks tokens itself
    if ((has_token && !route->is_instant) || is_socket) {
        put_problem(401, out);
        put_problem(403, out);
        put_problem(429, out);
    }
    if (route->query && strstr(route->query, "timeout"))
        put_problem(504, out);
    if (strchr(route->path, '{') || !is_read) // a path or a body may name what does not exist
        put_problem(404, out);
    if (!is_read || (route->query && strstr(route->query, "log_id"))) // a cursor of another log
        put_problem(409, out);
    if (!is_read) {
        put_problem(413, out);
        put_problem(422, out);
    }
    put_problem(500, out);
    put_problem(503, out);
    ol_buf_char(out, '}');
}

/* The first segment of the path after /v1. */
static void put_tag(const char *path, struct ol_buf *out)
{
    if (strncmp(path, "/v1/", 4) == 0)
        path += 3;
    ol_buf_print(out, "\"tags\":[\"%.*s\"],", (int)strcspn(path + 1, "/"), path + 1);
}

static void put_operation(const struct ol_route *route, struct ol_buf *out)
{
    char method[8] = "";
    for (size_t i = 0; i < sizeof method - 1 && route->method[i]; i++)
        method[i] = (char)(route->method[i] - 'A' + 'a');
    ol_buf_print(out, "\"%s\":{", method);
    put_tag(route->path, out);
    ol_buf_print(out, "\"operationId\":\"%s\",\"summary\":", route->name);
    ol_buf_json_text(out, route->summary);
    if (route->is_open || route->is_instant)
        ol_buf_text(out, ",\"security\":[]");
    else
        ol_buf_print(out, ",\"x-scope\":\"%s\",\"x-org-tokens\":%s", scopes[route->scope],
                     route->takes_org ? "true" : "false");
    put_parameters(route, out);
    put_body(route, out);
    put_responses(route, out);
    ol_buf_char(out, '}');
}

/* --- all operations --- */

/* The routes of all tables in turn; NULL at the end. */
static const struct ol_route *next_route(size_t *table, size_t *row)
{
    while (ol_routes[*table]) {
        const struct ol_route *route = &ol_routes[*table][(*row)++];
        if (route->path)
            return route;
        ++*table;
        *row = 0;
    }
    return NULL;
}

static bool is_first_of_path(const struct ol_route *route)
{
    size_t table = 0, row = 0;
    const struct ol_route *other;
    while ((other = next_route(&table, &row)) && strcmp(other->path, route->path) != 0)
        ;
    return other == route;
}

static void put_paths(struct ol_buf *out)
{
    size_t table = 0, row = 0;
    const struct ol_route *route, *other;
    const char *comma = "";

    while ((route = next_route(&table, &row))) {
        if (!is_first_of_path(route))
            continue;
        ol_buf_print(out, "%s\"%s\":{", comma, route->path);
        size_t other_table = 0, other_row = 0;
        for (comma = ""; (other = next_route(&other_table, &other_row));)
            if (strcmp(other->path, route->path) == 0) {
                ol_buf_text(out, comma);
                put_operation(other, out);
                comma = ",";
            }
        ol_buf_char(out, '}');
        comma = ",";
    }
}

static enum ol_handler_result describe_api(struct ol_request *request)
{
    struct ol_buf *out = ol_request_reply(request, 200);

    ol_buf_print(out,
                 "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"outlog\",\"version\":\"%s\","
                 "\"description\":\"Event log, transactional outbox and relay. Errors are RFC 9457 "
                 "problems with a stable code.\"},\"servers\":[{\"url\":\"/\"}],"
                 "\"security\":[{\"bearer\":[]}],\"paths\":{",
                 OUTLOG_VERSION);
    put_paths(out);
    ol_buf_text(out, "},\"components\":{\"securitySchemes\":{\"bearer\":{\"type\":\"http\","
                     "\"scheme\":\"bearer\"}},\"responses\":{\"Problem\":{\"description\":\"A "
                     "problem\",\"content\":{\"application/problem+json\":{\"schema\":"
                     "{\"$ref\":\"#/components/schemas/Problem\"}}}}},");
    ol_buf_add(out, ol_api_schemas + 1, strlen(ol_api_schemas) - 2); // without its own braces
    ol_buf_text(out, "}}");
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_openapi_routes[] = {
    {"GET", "/openapi.json", OL_SCOPE_NONE, describe_api, "getOpenapi", "This description",
     .reply = "application/json", .is_instant = true},
    {0},
};
