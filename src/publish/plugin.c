/* plugin.c: dlopen, and a look at what was found before any of it is called. */
#include "publish/plugin.h"

#include "base/err.h"

#include <dlfcn.h>

int ol_plugin_load(const char *path, const struct outlog_publisher **out, outlog_err *err)
{
    if (path[0] != '/')
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/path", "path: an absolute path is wanted");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/path", "path: %s", why ? why : path);
    }
    const struct outlog_publisher *publisher = dlsym(library, OUTLOG_PUBLISHER_SYMBOL);
    if (!publisher) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/path", "path: %s has no symbol %s", path,
                   OUTLOG_PUBLISHER_SYMBOL);
        goto fail;
    }
    if (publisher->abi != OUTLOG_PUBLISHER_ABI || publisher->bytes != sizeof *publisher) {
        ol_fail_at(
            err, OUTLOG_INVALID_FIELD, "/path",
            "path: %s was made for plug-in ABI %u (%u bytes); this outlog has %u (%zu bytes)", path,
            publisher->abi, publisher->bytes, OUTLOG_PUBLISHER_ABI, sizeof *publisher);
        goto fail;
    }
    if (!publisher->name || !publisher->open || !publisher->submit || !publisher->close) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/path",
                   "path: %s lacks a name, open, submit or close", path);
        goto fail;
    }
    *out = publisher;
    return 0;
fail:
    dlclose(library);
    return -1;
}
