/* registry.h: event types, strict orgs and secret rules, cached from the store. */
#ifndef OL_LOG_REGISTRY_H
#define OL_LOG_REGISTRY_H

#include "base/json/json.h"
#include "store/store.h"

/* A copy of the store's settings, read again when it is older than 50 ms. Start from {0}. */
struct ol_registry {
    struct ol_arena arena;
    int64_t loaded_at; /* boot clock; 0: never */
    const char **strict_orgs;
    size_t strict_count;
    struct ol_event_type *types; /* by name */
    size_t type_count;
    bool has_upcasts;
    void *modes; /* enum ol_secret_mode, one per rule */
};

struct ol_event_type {
    const char *event_type;
    int version;
    struct ol_json shape, upcast; /* type OL_JSON_NONE when there is none */
};

void ol_registry_clear(struct ol_registry *registry);

/* Read the settings again if they are too old. */
int ol_registry_refresh(struct ol_registry *registry, struct ol_conn *conn, outlog_err *err);

/* Store the types and rules that ship with outlog; changes by an operator stay. */
int ol_registry_seed(struct ol_conn *conn, outlog_err *err);

/* Check an event before it is appended: secrets (E13), and for a strict org its type and shape
 * (E10), unless it records what happened (L8). */
int ol_registry_admit(const struct ol_registry *registry, const struct outlog_new_event *event,
                      const struct ol_json *payload, const struct ol_json *metadata, bool is_record,
                      outlog_err *err);

/* Refuse secret material in a document (E13); `field` is its name in errors. */
int ol_registry_refuse_secrets(const struct ol_registry *registry, const struct ol_json *value,
                               const char *field, outlog_err *err);

/* Bring a payload to its type's current version (E11). `record` is changed in place; new bytes
 * come from `arena`. */
int ol_registry_upcast(const struct ol_registry *registry, struct outlog_event *record,
                       struct ol_arena *arena, outlog_err *err);

#endif
