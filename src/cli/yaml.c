/* yaml.c: builds a tree with line numbers from libyaml's events, and writes JSON from the tree. */
#include "cli/yaml.h"

#include "base/counter_map.h"
#include "base/json/json.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum yaml_kind { YAML_KIND_SCALAR, YAML_KIND_LIST, YAML_KIND_MAP };

struct ol_yaml_node {
    enum yaml_kind kind;
    int line;
    const char *key; /* of a member of a map */
    const char *text;
    size_t bytes;
    bool is_plain;
    struct ol_yaml_node *first, *last, *next;
};

struct yaml_reader {
    yaml_parser_t parser;
    const char *text;
    struct ol_arena *arena;
    outlog_err *err;
};

static int refuse_at(const struct yaml_reader *r, const yaml_mark_t *mark, const char *why)
{
    return ol_fail(r->err, OUTLOG_INVALID_FIELD, "line %zu: %s", mark->line + 1, why);
}

/* For bytes that are not valid text libyaml knows the offset, but not the line. */
static size_t problem_line(const struct yaml_reader *r)
{
    const yaml_parser_t *p = &r->parser;
    size_t line = 1;
    if (p->error != YAML_READER_ERROR)
        return p->problem_mark.line + 1;
    for (size_t i = 0; i < p->problem_offset; i++)
        line += r->text[i] == '\n';
    return line;
}

static int next_event(struct yaml_reader *r, yaml_event_t *event)
{
    if (yaml_parser_parse(&r->parser, event))
        return 0;
    const yaml_parser_t *p = &r->parser;
    return ol_fail(r->err, OUTLOG_INVALID_FIELD, "line %zu: %s%s%s", problem_line(r),
                   p->problem ? p->problem : "this is not YAML", p->context ? ", " : "",
                   p->context ? p->context : "");
}

/* --- the tree --- */

static struct ol_yaml_node *add_node(struct yaml_reader *r, struct ol_yaml_node *parent,
                                     enum yaml_kind kind, const yaml_event_t *event)
{
    struct ol_yaml_node *node = ol_arena_alloc(r->arena, sizeof *node);
    if (!node) {
        ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
        return NULL;
    }
    node->kind = kind;
    node->line = (int)event->start_mark.line + 1;
    if (parent && parent->last)
        parent->last->next = node;
    else if (parent)
        parent->first = node;
    if (parent)
        parent->last = node;
    return node;
}

static int check_scalar(struct yaml_reader *r, const yaml_event_t *event)
{
    if (event->data.scalar.anchor)
        return refuse_at(r, &event->start_mark, "anchors are not supported; write the value out");
    if (event->data.scalar.tag)
        return refuse_at(r, &event->start_mark, "tags are not supported");
    if (memchr(event->data.scalar.value, '\0', event->data.scalar.length))
        return refuse_at(r, &event->start_mark, "a text cannot hold a NUL");
    return 0;
}

static int read_key(struct yaml_reader *r, const yaml_event_t *event, struct ol_counter_map *lines,
                    const char **out)
{
    char why[200];
    int64_t line;
    if (event->type != YAML_SCALAR_EVENT)
        return refuse_at(r, &event->start_mark,
                         event->type == YAML_ALIAS_EVENT
                             ? "aliases are not supported; write the value out"
                             : "a key is a plain text");
    if (check_scalar(r, event) < 0)
        return -1;
    const char *key = (const char *)event->data.scalar.value;
    if (strcmp(key, "<<") == 0)
        return refuse_at(r, &event->start_mark,
                         "merge keys are not supported; write the values out");
    if ((line = ol_counter_map_get(lines, key))) {
        snprintf(why, sizeof why, "%.100s: this key is on line %d already", key, (int)line);
        return refuse_at(r, &event->start_mark, why);
    }
    *out = ol_arena_copy(r->arena, key, event->data.scalar.length);
    return *out && ol_counter_map_add(lines, key, (int64_t)event->start_mark.line + 1)
               ? 0
               : ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
}

static int read_node(struct yaml_reader *r, struct ol_yaml_node *parent, const yaml_event_t *event,
                     const char *key, int depth, struct ol_yaml_node **out);

static int read_members(struct yaml_reader *r, struct ol_yaml_node *node,
                        struct ol_counter_map *lines, int depth)
{
    yaml_event_t event;
    const char *key = NULL;
    for (;;) {
        if (next_event(r, &event) < 0)
            return -1;
        bool is_end = event.type == (node->kind == YAML_KIND_MAP ? YAML_MAPPING_END_EVENT
                                                                 : YAML_SEQUENCE_END_EVENT);
        int line = (int)event.start_mark.line + 1, result = 0;
        if (!is_end && node->kind == YAML_KIND_MAP) {
            result = read_key(r, &event, lines, &key);
            yaml_event_delete(&event);
            if (result < 0 || next_event(r, &event) < 0)
                return -1;
        }
        struct ol_yaml_node *member = NULL;
        if (!is_end)
            result = read_node(r, node, &event, key, depth, &member);
        if (member && key)
            member->line = line; // a value has the line of its key
        yaml_event_delete(&event);
        if (is_end || result < 0)
            return result;
    }
}

static int read_node(struct yaml_reader *r, struct ol_yaml_node *parent, const yaml_event_t *event,
                     const char *key, int depth, struct ol_yaml_node **out)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    enum yaml_kind kind = YAML_KIND_SCALAR;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        if (check_scalar(r, event) < 0)
            return -1;
        break;
    case YAML_SEQUENCE_START_EVENT:
        kind = YAML_KIND_LIST;
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        kind = YAML_KIND_MAP;
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        return refuse_at(r, &event->start_mark, "aliases are not supported; write the value out");
    }
    if (anchor || tag)
        return refuse_at(r, &event->start_mark, "anchors and tags are not supported");
    if (depth > OL_JSON_DEPTH)
        return refuse_at(r, &event->start_mark, "nested too deep");
    struct ol_yaml_node *node = *out = add_node(r, parent, kind, event);
    if (!node)
        return -1;
    node->key = key;
    if (kind != YAML_KIND_SCALAR) {
        struct ol_counter_map lines = {0}; // the line of each key
        int result = read_members(r, node, &lines, depth + 1);
        ol_counter_map_clear(&lines);
        return result;
    }
    node->bytes = event->data.scalar.length;
    node->text = ol_arena_copy(r->arena, event->data.scalar.value, node->bytes);
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return node->text ? 0 : ol_fail(r->err, OUTLOG_NO_MEMORY, "out of memory");
}

/* --- JSON --- */

/* Write a plain scalar that is a JSON number, true, false or null; false for one that is text. */
static bool write_plain(const struct ol_yaml_node *node, struct ol_buf *out)
{
    struct ol_json value;
    if (node->bytes == 0 || strcmp(node->text, "~") == 0) {
        ol_buf_text(out, "null");
        return true;
    }
    if (node->key && strcmp(node->key, "type") == 0) // the name of a type, even `null`
        return false;
    if (ol_json_parse(node->text, node->bytes, &value, NULL) < 0 || value.bytes != node->bytes ||
        value.type >= OL_JSON_STRING)
        return false;
    ol_buf_add(out, node->text, node->bytes);
    return true;
}

static void write_json(const struct ol_yaml_node *node, struct ol_buf *out)
{
    if (node->kind == YAML_KIND_SCALAR) {
        if (!node->is_plain || !write_plain(node, out))
            ol_buf_json(out, node->text, node->bytes);
        return;
    }
    ol_buf_char(out, node->kind == YAML_KIND_MAP ? '{' : '[');
    for (const struct ol_yaml_node *n = node->first; n; n = n->next) {
        if (n != node->first)
            ol_buf_char(out, ',');
        if (node->kind == YAML_KIND_MAP) {
            ol_buf_json_text(out, n->key);
            ol_buf_char(out, ':');
        }
        write_json(n, out);
    }
    ol_buf_char(out, node->kind == YAML_KIND_MAP ? '}' : ']');
}

/* --- the document --- */

static int read_document(struct yaml_reader *r, struct ol_yaml_node **root)
{
    yaml_event_t event;
    int result = 0, documents = 0;
    bool is_end = false;
    while (result == 0 && !is_end) {
        if (next_event(r, &event) < 0)
            return -1;
        switch (event.type) {
        case YAML_STREAM_START_EVENT:
        case YAML_DOCUMENT_END_EVENT:
            break;
        case YAML_STREAM_END_EVENT:
            is_end = true;
            break;
        case YAML_DOCUMENT_START_EVENT:
            if (++documents > 1)
                result = refuse_at(r, &event.start_mark, "a file has one document only");
            break;
        default:
            result = read_node(r, NULL, &event, NULL, 1, root);
        }
        yaml_event_delete(&event);
    }
    return result;
}

int ol_yaml_read(const char *text, size_t bytes, struct ol_arena *arena, struct ol_yaml *out,
                 outlog_err *err)
{
    struct yaml_reader r = {.text = text, .arena = arena, .err = err};
    struct ol_buf json = {0};
    struct ol_yaml_node *root = NULL;
    int result = -1;

    *out = (struct ol_yaml){0};
    if (!yaml_parser_initialize(&r.parser))
        return ol_no_memory(err);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    if (read_document(&r, &root) < 0)
        goto out;
    bool is_empty = !root || (root->kind == YAML_KIND_SCALAR && root->bytes == 0);
    if (is_empty)
        ol_buf_text(&json, "{}");
    else
        write_json(root, &json);
    out->json = json.failed ? NULL : ol_arena_copy(arena, json.data, json.bytes);
    out->bytes = json.bytes;
    out->root = is_empty ? NULL : root;
    result = out->json ? 0 : ol_no_memory(err);
out:
    yaml_parser_delete(&r.parser);
    ol_buf_clear(&json);
    return result;
}

/* Whether the pointer's token (~0 and ~1 unescaped) is `key`. */
static bool token_matches(const char *token, size_t bytes, const char *key)
{
    for (size_t i = 0; i < bytes; i++, key++) {
        char c = token[i];
        if (c == '~' && i + 1 < bytes)
            c = token[++i] == '1' ? '/' : '~';
        if (c != *key)
            return false;
    }
    return *key == '\0';
}

int ol_yaml_line(const struct ol_yaml *yaml, const char *pointer)
{
    const struct ol_yaml_node *node = yaml->root;
    int line = 1;
    while (node) {
        line = node->line;
        if (*pointer != '/')
            break;
        const char *token = pointer + 1;
        size_t bytes = strcspn(token, "/");
        const struct ol_yaml_node *found = node->first;
        if (node->kind == YAML_KIND_LIST)
            for (long i = strtol(token, NULL, 10); found && i > 0; i--)
                found = found->next;
        else
            while (found && !token_matches(token, bytes, found->key))
                found = found->next;
        node = found;
        pointer = token + bytes;
    }
    return line;
}
