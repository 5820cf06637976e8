/* section.h: the values of outlog.yaml that become rows of `settings`, one per value, named by
 * section and key. */
#ifndef OL_CONFIG_SECTION_H
#define OL_CONFIG_SECTION_H

#include "config/document.h"

/* Add a value that was checked: its name is "section.key". */
int ol_config_section_put(struct ol_config_reader *r, const char *section, const char *key,
                          const struct ol_json *value, const char *pointer);

/* `alerts`, `retention`, `relay`, `serve`: unknown keys are refused. */
int ol_config_section_read(struct ol_config_reader *r, const char *section,
                           const struct ol_json *object, const char *pointer);

/* types.<event type>: how its messages are retried. */
int ol_config_section_read_type(struct ol_config_reader *r, const char *name,
                                const struct ol_json *value, const char *pointer);

/* agents.<agentId>: the agent that answers the sessions with this id in their key. */
int ol_config_section_read_agent(struct ol_config_reader *r, const char *name,
                                 const struct ol_json *value, const char *pointer);

/* secrets.<rule>: what a rule against secrets does: reject, warn or off (E13). */
int ol_config_section_read_secret(struct ol_config_reader *r, const char *name,
                                  const struct ol_json *value, const char *pointer);

/* `sinks.archive` is {"to": …, "event_type": …}; see relay/sink/sink.h. */
int ol_config_section_read_sink(struct ol_config_reader *r, const char *name,
                                const struct ol_json *value, const char *pointer);

#endif
