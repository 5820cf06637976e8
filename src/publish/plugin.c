/* plugin.c: publishers from shared objects (D7).
 *
 * A plug-in is checked before any of it is called. It stays loaded; loading it again is cheap. */
#include "publish/publisher.h"

#include <dlfcn.h>

struct plugin_settings {
    const char *path;
    const char *options; /* JSON text; the plug-in reads it from the whole settings */
};

/* OUTLOG_INVALID_FIELD: no such file, no outlog_publisher_plugin in it, or made for another ABI.
 * The path must be absolute: the library path of the process must not decide what is loaded. */
static int load_plugin(const struct ol_settings *settings, const struct outlog_publisher **out,
                       outlog_err *err)
{
    const struct plugin_settings *own = settings->own;
    const char *path = own->path;

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

#define AT(member) offsetof(struct plugin_settings, member)

static const struct ol_setting_key plugin_keys[] = {
    {.name = "path", .read = ol_setting_types_text, .offset = AT(path), .is_needed = true},
    {.name = "options", .read = ol_setting_types_object, .offset = AT(options)},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_plugin = {
    .name = "plugin",
    .load = load_plugin,
    .timeout_s = 10,
    .concurrency = 64,
    .own_bytes = sizeof(struct plugin_settings),
    .keys = {plugin_keys},
};
