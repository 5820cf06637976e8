/* plugin.h: publishers from shared objects (D7). */
#ifndef OL_PUBLISH_PLUGIN_H
#define OL_PUBLISH_PLUGIN_H

#include "outlog_publisher.h"

/* Load the plug-in at `path`, an absolute one: the library path of whoever starts us decides
 * nothing. A plug-in stays loaded; loading it again costs nothing.
 *
 * OUTLOG_INVALID_FIELD: no such file, no outlog_publisher_plugin in it, or made for another ABI. */
int ol_plugin_load(const char *path, const struct outlog_publisher **out, outlog_err *err);

#endif
