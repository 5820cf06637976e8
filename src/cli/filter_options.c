/* filter_options.c: one option for each field of sql/schema/event.json with `filter` and `flag`. */
#include "cli/filter_options.h"

void ol_filter_options_add(struct outlog_filter *filter, struct ol_option *options)
{
    *options++ = (struct ol_option){"infra", OL_OPTION_FLAG, &filter->is_infrastructure, NULL};
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (field->filter != OL_FIELD_NONE && field->flag)
            *options++ = (struct ol_option){field->flag, OL_OPTION_STRING,
                                            (char *)filter + field->filter, NULL};
    }
    *options = (struct ol_option){0};
}
