/* registry.c: event types, strict orgs, secret rules: loaded together, in one round trip. */
#include "log/registry.h"

#include "base/clock.h"
#include "log/payload_shape.h"
#include "log/secrets.h"
#include "log/upcast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTRY_AGE_MAX_US = 50000 };

void ol_registry_clear(struct ol_registry *registry)
{
    ol_arena_clear(&registry->arena);
    *registry = (struct ol_registry){0};
}

/* --- loading --- */

static int read_json(const struct ol_rows *rows, int column, struct ol_arena *arena,
                     struct ol_json *out, outlog_err *err)
{
    bool failed = false;
    *out = (struct ol_json){0};
    const char *text = ol_rows_copy(rows, column, arena, &failed);
    if (failed)
        return ol_no_memory(err);
    return text ? ol_json_parse(text, strlen(text), out, err) : 0;
}

static enum ol_secret_mode parse_mode(const char *name)
{
    if (strcmp(name, "reject") == 0)
        return OL_SECRET_REJECT;
    return strcmp(name, "warn") == 0 ? OL_SECRET_WARN : OL_SECRET_OFF;
}

static void *grow_array(struct ol_arena *arena, void *from, size_t count, size_t bytes)
{
    if (count & (count - 1)) // the capacity doubles at powers of two
        return from;
    void *to = ol_arena_array(arena, count ? count * 2 : 1, bytes);
    if (to && count)
        memcpy(to, from, count * bytes);
    return to;
}

static int load_row(struct ol_registry *to, const struct ol_rows *rows, outlog_err *err)
{
    bool failed = false;
    const char *kind = ol_rows_text(rows, 0, NULL);
    const char *name = ol_rows_copy(rows, 1, &to->arena, &failed);
    if (failed)
        return ol_no_memory(err);
    if (strcmp(kind, "rule") == 0) {
        int rule = ol_secret_rule_by_name(name);
        if (rule >= 0)
            ((enum ol_secret_mode *)to->modes)[rule] = parse_mode(ol_rows_text(rows, 3, NULL));
        return 0;
    }
    if (strcmp(kind, "strict") == 0) {
        to->strict_orgs = grow_array(&to->arena, to->strict_orgs, to->strict_count, sizeof name);
        if (!to->strict_orgs)
            return ol_no_memory(err);
        to->strict_orgs[to->strict_count++] = name;
        return 0;
    }
    to->types = grow_array(&to->arena, to->types, to->type_count, sizeof *to->types);
    if (!to->types)
        return ol_no_memory(err);
    struct ol_event_type *type = &to->types[to->type_count++];
    *type = (struct ol_event_type){.event_type = name, .version = (int)ol_rows_int(rows, 2)};
    if (read_json(rows, 3, &to->arena, &type->shape, err) < 0 ||
        read_json(rows, 4, &to->arena, &type->upcast, err) < 0)
        return -1;
    to->has_upcasts |= type->upcast.type == OL_JSON_OBJECT;
    return 0;
}

static int compare_types(const void *a, const void *b)
{
    const struct ol_event_type *one = a, *two = b;
    return strcmp(one->event_type, two->event_type);
}

int ol_registry_refresh(struct ol_registry *registry, struct ol_conn *conn, outlog_err *err)
{
    int64_t now = ol_clock_boot_us();
    if (registry->loaded_at && now - registry->loaded_at < REGISTRY_AGE_MAX_US)
        return 0;

    struct ol_registry fresh = {.loaded_at = now};
    struct ol_rows rows = {0};
    int more = -1;
    enum ol_secret_mode *modes = ol_arena_array(&fresh.arena, ol_secret_rule_count, sizeof *modes);
    if (!modes) {
        ol_no_memory(err);
        goto out;
    }
    fresh.modes = modes;
    for (size_t i = 0; i < ol_secret_rule_count; i++)
        modes[i] = ol_secret_rules[i].mode_default;
    if (ol_store_query(conn, OL_Q_REGISTRY_LOAD, OL_NO_PARAMS, &rows, err) < 0)
        goto out;
    while ((more = ol_rows_next(&rows, err)) > 0)
        if (load_row(&fresh, &rows, err) < 0) {
            more = -1;
            break;
        }
out:
    ol_rows_end(&rows);
    if (more < 0) {
        ol_registry_clear(&fresh);
        return -1;
    }
    if (fresh.type_count)
        qsort(fresh.types, fresh.type_count, sizeof *fresh.types, compare_types);
    ol_registry_clear(registry);
    *registry = fresh;
    return 0;
}

static const struct ol_event_type *find_type(const struct ol_registry *registry, const char *name)
{
    struct ol_event_type key = {.event_type = name};
    if (!registry->type_count)
        return NULL;
    return bsearch(&key, registry->types, registry->type_count, sizeof key, compare_types);
}

/* --- use --- */

static bool is_strict(const struct ol_registry *registry, const char *org_id)
{
    for (size_t i = 0; org_id && i < registry->strict_count; i++)
        if (strcmp(registry->strict_orgs[i], org_id) == 0)
            return true;
    return false;
}

int ol_registry_refuse_secrets(const struct ol_registry *registry, const struct ol_json *value,
                               const char *field, outlog_err *err)
{
    char pointer[64];
    if (ol_secrets_check(value, registry->modes, NULL, err) == 0)
        return 0;
    snprintf(pointer, sizeof pointer, "/%s", field);
    ol_err_point_below(err, pointer);
    ol_err_prefix(err, "%s", field);
    return -1;
}

int ol_registry_admit(const struct ol_registry *registry, const struct outlog_new_event *event,
                      const struct ol_json *payload, const struct ol_json *metadata, bool is_record,
                      outlog_err *err)
{
    if (ol_registry_refuse_secrets(registry, payload, "payload", err) < 0 ||
        (metadata && ol_registry_refuse_secrets(registry, metadata, "metadata", err) < 0))
        return -1;
    if (is_record || !is_strict(registry, event->org_id))
        return 0;
    const struct ol_event_type *type = find_type(registry, event->event_type);
    if (!type)
        return ol_fail_at(err, OUTLOG_UNKNOWN_EVENT_TYPE, "/event_type",
                          "org %s only takes registered event types, and %s is not one; register "
                          "it or correct the name",
                          event->org_id, event->event_type);
    if (type->shape.type != OL_JSON_OBJECT ||
        ol_payload_shape_check(&type->shape, payload, err) == 0)
        return 0;
    ol_err_point_below(err, "/payload");
    ol_err_prefix(err, "payload of %s", event->event_type);
    return -1;
}

int ol_registry_upcast(const struct ol_registry *registry, struct outlog_event *record,
                       struct ol_arena *arena, outlog_err *err)
{
    const struct ol_event_type *type =
        registry->has_upcasts ? find_type(registry, record->event_type) : NULL;
    if (!type || type->upcast.type != OL_JSON_OBJECT || record->event_version >= type->version)
        return 0;

    struct ol_json payload;
    struct ol_buf out = {0};
    int result = -1;
    if (ol_json_parse(record->payload, record->payload_bytes, &payload, err) < 0 ||
        ol_upcast_apply(&type->upcast, record->event_version, type->version, &payload, &out, err) <
            0)
        goto out;
    char *copy = ol_arena_copy(arena, out.data, out.bytes);
    if (!copy) {
        ol_no_memory(err);
        goto out;
    }
    record->payload = copy;
    record->payload_bytes = out.bytes;
    record->event_version = type->version;
    result = 0;
out:
    ol_buf_clear(&out);
    return result;
}

/* --- seeding --- */

static struct ol_value copy_json(const struct ol_json *value, struct ol_arena *arena)
{
    return value->type == OL_JSON_NONE
               ? ol_value_text(NULL)
               : ol_value_text(ol_arena_copy(arena, value->text, value->bytes));
}

static int seed_types(struct ol_conn *conn, struct ol_arena *arena, outlog_err *err)
{
    struct ol_json all;
    struct ol_json_iter it = {0};
    if (ol_json_parse(ol_event_types_json, strlen(ol_event_types_json), &all, err) < 0)
        return -1;
    while (ol_json_next(&all, &it)) {
        struct ol_json shape = ol_json_get(&it.value, "shape"),
                       about = ol_json_get(&it.value, "about"),
                       aggregate = ol_json_get(&it.value, "aggregate_type"),
                       number = ol_json_get(&it.value, "version");
        int64_t version = 1;
        ol_json_int(&number, &version);
        if (ol_store_exec(conn, OL_Q_EVENT_TYPE_ADD,
                          OL_PARAMS(ol_value_text(ol_json_string(&it.key, arena, NULL)),
                                    ol_value_int(version),
                                    ol_value_text(ol_json_string(&aggregate, arena, NULL)),
                                    copy_json(&shape, arena),
                                    ol_value_text(ol_json_string(&about, arena, NULL))),
                          NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int seed_rules(struct ol_conn *conn, outlog_err *err)
{
    static const char *const names[] =
        {[OL_SECRET_OFF] = "off", [OL_SECRET_WARN] = "warn", [OL_SECRET_REJECT] = "reject"};
    for (size_t i = 0; i < ol_secret_rule_count; i++) {
        const struct ol_secret_rule *rule = &ol_secret_rules[i];
        if (ol_store_exec(conn, OL_Q_SECRET_RULE_ADD,
                          OL_PARAMS(ol_value_text(rule->name),
                                    ol_value_text(names[rule->mode_default]),
                                    ol_value_int(rule->is_key_name), ol_value_text(rule->pattern),
                                    ol_value_real(rule->entropy_min),
                                    ol_value_int((int64_t)rule->bytes_min),
                                    ol_value_text(rule->except_suffix)),
                          NULL, err) < 0)
            return -1;
    }
    return 0;
}

int ol_registry_seed(struct ol_conn *conn, outlog_err *err)
{
    struct ol_arena arena = {0};
    int result = -1;

    if (conn->store->begin(conn, err) < 0)
        return -1;
    if (seed_types(conn, &arena, err) < 0 || seed_rules(conn, err) < 0)
        conn->store->rollback(conn);
    else
        result = conn->store->commit(conn, err);
    ol_arena_clear(&arena);
    return result;
}
