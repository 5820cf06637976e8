/* filter_options.h: the options that choose events, the same for every command that reads them. */
#ifndef OL_CLI_FILTER_OPTIONS_H
#define OL_CLI_FILTER_OPTIONS_H

#include "cli/cli.h"
#include "store/event_fields.h"

enum { OL_FILTER_OPTIONS_MAX = OL_EVENT_FILTER_COUNT + 2 }; /* --infra, and the end */

/* Add the options of a filter, and the end of the table, at `options`. */
void ol_filter_options_add(struct outlog_filter *filter, struct ol_option *options);

#endif
