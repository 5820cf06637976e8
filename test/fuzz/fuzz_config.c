/* fuzz_config.c: outlog.yaml, from its bytes to entries.
 *
 * YAML that is accepted is one JSON value, and every entry of the configuration has a name and a
 * canonical text that is JSON and stays as it is when it is made canonical again. An error can be
 * shown: it is UTF-8, and its pointer has a line. */
#include "fuzz.h"

#include "cli/yaml.h"
#include "config/document.h"

static void check_entry(const struct ol_config_entry *entry)
{
    struct ol_json value;
    struct ol_buf again = {0};
    check(entry->name && entry->text && entry->source && entry->pointer);
    check(ol_json_parse(entry->text, strlen(entry->text), &value, NULL) == 0);
    check(ol_json_canonical(&value, &again) == 0 && strcmp(again.data, entry->text) == 0);
    ol_buf_clear(&again);
}

static void read_document(const struct ol_yaml *yaml, struct ol_arena *arena)
{
    struct ol_config_entries entries = {.end = &entries.first, .arena = arena};
    outlog_err err;
    if (ol_config_document_read(&entries, yaml->json, yaml->bytes, &err) < 0) {
        check_err(&err);
        check(ol_yaml_line(yaml, err.pointer) >= 1);
        return;
    }
    for (const struct ol_config_entry *entry = entries.first; entry; entry = entry->next)
        check_entry(entry);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = copy_text(data, bytes);
    struct ol_arena arena = {0};
    struct ol_yaml yaml;
    struct ol_json whole;
    outlog_err err;
    if (ol_yaml_read(text, bytes, &arena, &yaml, &err) < 0) {
        check_err(&err);
        check(strncmp(err.message, "line ", 5) == 0);
    } else if (ol_json_parse(yaml.json, yaml.bytes, &whole, &err) == 0) {
        read_document(&yaml, &arena);
    } else { // YAML may nest deeper than JSON of ours; nothing else may be wrong
        check(strncmp(err.message, "nesting too deep", 16) == 0);
    }
    ol_arena_clear(&arena);
    free(text);
    return 0;
}
