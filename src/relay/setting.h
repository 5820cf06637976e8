/* setting.h: what outlog.yaml says as rows of `settings`, one a value, named by section and key. */
#ifndef OL_RELAY_SETTING_H
#define OL_RELAY_SETTING_H

#include "relay/manifest.h"

/* Put a value that was checked: its name is "section.key". */
int ol_setting_put(struct ol_manifest_reader *r, const char *section, const char *key,
                   const struct ol_json *value, const char *pointer);

/* `alerts`, `retention`, `relay`, `serve`: every key is known. */
int ol_setting_read_section(struct ol_manifest_reader *r, const char *section,
                            const struct ol_json *object, const char *pointer);

/* types.<event type>: how its messages are tried again. */
int ol_setting_read_type(struct ol_manifest_reader *r, const char *name,
                         const struct ol_json *value, const char *pointer);

/* agents.<agentId>: who answers the sessions with this agent in their key. */
int ol_setting_read_agent(struct ol_manifest_reader *r, const char *name,
                          const struct ol_json *value, const char *pointer);

/* `sinks.archive` is {"to": …, "event_type": …}; relay/sink.h says what it does. */
int ol_setting_read_sink(struct ol_manifest_reader *r, const char *name,
                         const struct ol_json *value, const char *pointer);

#endif
