/* config.c: outlog config: prints each effective setting and where it came from. */
#include "cli/cli.h"

#include "cli/yaml.h"
#include "config/apply.h"
#include "log/log.h"

#include <string.h>

static const char *const origins[] = {[OL_FROM_DEFAULT] = "default",
                                      [OL_FROM_FILE] = "file",
                                      [OL_FROM_STORE] = "store",
                                      [OL_FROM_ENVIRONMENT] = "environment",
                                      [OL_FROM_FLAG] = "flag"};

struct config_line {
    const char *key, *value;
    enum ol_option_source from;
};

static const struct config_line defaults[] = {
    {"store", "sqlite:outlog.db", OL_FROM_DEFAULT},
    {"listen", "127.0.0.1:7400", OL_FROM_DEFAULT},
    {"relay.lease", "30s", OL_FROM_DEFAULT},
    {"relay.poll", "50ms", OL_FROM_DEFAULT},
    {"relay.patience", "250ms", OL_FROM_DEFAULT},
    {"relay.lanes", NULL, OL_FROM_DEFAULT}, /* 8, on SQLite 1 */
    {"relay.batch", "1000", OL_FROM_DEFAULT},
    {"relay.threads", "1", OL_FROM_DEFAULT},
    {"relay.parked", "100000", OL_FROM_DEFAULT},
    {"relay.wakeup", "poll", OL_FROM_DEFAULT},
    {"relay.takeover", "fast", OL_FROM_DEFAULT},
    {"alerts.to", "none", OL_FROM_DEFAULT},
    {"retention.messages", "forever", OL_FROM_DEFAULT},
    {"retention.notices", "forever", OL_FROM_DEFAULT},
    {"retention.idempotency", "24h", OL_FROM_DEFAULT},
    {"serve.answers", "8", OL_FROM_DEFAULT},
    {"serve.strangers", "256", OL_FROM_DEFAULT},
    {"serve.origins", "[]", OL_FROM_DEFAULT},
    {"tracing.endpoint", "none", OL_FROM_DEFAULT},
};
enum { CONFIG_DEFAULT_COUNT = sizeof defaults / sizeof *defaults, CONFIG_LINES_MAX = 1000 };

struct config_lines {
    struct config_line lines[CONFIG_LINES_MAX];
    size_t count;
};

static void set_line(struct config_lines *table, const char *key, const char *value,
                     enum ol_option_source from)
{
    size_t i = 0;
    while (i < table->count && strcmp(table->lines[i].key, key) != 0)
        i++;
    if (i == CONFIG_LINES_MAX)
        return;
    if (i == table->count)
        table->count++;
    table->lines[i] = (struct config_line){key, value, from};
}

/* A string without its quotes, anything else as JSON. */
static const char *plain_text(const struct ol_json *value, struct ol_arena *arena)
{
    const char *text = ol_json_string(value, arena, NULL);
    return text ? text : ol_arena_copy(arena, value->text, value->bytes);
}

/* The URL with *** in place of its password. */
static const char *without_password(const char *url, struct ol_arena *arena)
{
    const char *start = strstr(url, "://"), *at = start ? strchr(start, '@') : NULL;
    const char *slash = start ? strpbrk(start + 3, "/?") : NULL;
    if (!at || (slash && slash < at)) {
        const char *password = strstr(url, "password=");
        return password ? ol_arena_print(arena, "%.*spassword=***", (int)(password - url), url)
                        : url;
    }
    const char *colon = memchr(start + 3, ':', (size_t)(at - start - 3));
    return colon ? ol_arena_print(arena, "%.*s:***%s", (int)(colon - url), url, at) : url;
}

static int read_store(struct ol_cli *cli, outlog *log, struct config_lines *table, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    int more;
    if (ol_store_query(log->conn, OL_Q_SETTING_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        struct ol_json value;
        const char *key = ol_rows_copy(&rows, 0, &cli->arena, &failed);
        const char *text = ol_rows_copy(&rows, 1, &cli->arena, &failed);
        if (key && text && ol_json_parse(text, strlen(text), &value, NULL) == 0)
            set_line(table, key, plain_text(&value, &cli->arena), OL_FROM_STORE);
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

/* Add what the file would set: `relay: {lease: 5s}` is relay.lease. */
static void read_file(struct ol_cli *cli, const struct ol_yaml *yaml, struct config_lines *table)
{
    struct ol_json object;
    struct ol_json_iter section = {0};
    if (ol_json_parse(yaml->json, yaml->bytes, &object, NULL) < 0)
        return;
    while (ol_json_next(&object, &section)) {
        const char *name = ol_json_string(&section.key, &cli->arena, NULL);
        struct ol_json_iter it = {0};
        if (strcmp(name, "store") == 0 || strcmp(name, "listen") == 0)
            set_line(table, name, plain_text(&section.value, &cli->arena), OL_FROM_FILE);
        bool is_settings = strcmp(name, "relay") == 0 || strcmp(name, "alerts") == 0 ||
                           strcmp(name, "retention") == 0 || strcmp(name, "types") == 0 ||
                           strcmp(name, "serve") == 0 || strcmp(name, "tracing") == 0;
        while (is_settings && ol_json_next(&section.value, &it)) {
            const char *key = ol_json_string(&it.key, &cli->arena, NULL);
            set_line(table, ol_arena_print(&cli->arena, "%s.%s", name, key),
                     plain_text(&it.value, &cli->arena), OL_FROM_FILE);
        }
    }
}

static int load_file(struct ol_cli *cli, const char *path, struct config_lines *table)
{
    struct ol_yaml yaml;
    outlog_err err;
    const char *text = ol_cli_text_or_file(cli, ol_arena_print(&cli->arena, "@%s", path));
    if (!text)
        return OL_EXIT_FAILED;
    if (ol_yaml_read(text, strlen(text), &cli->arena, &yaml, &err) < 0) {
        ol_err_prefix(&err, "%s", path);
        return ol_cli_report(&err);
    }
    if (ol_config_check(yaml.json, yaml.bytes, &err) < 0) {
        ol_err_prefix(&err, "%s: line %d", path, ol_yaml_line(&yaml, err.pointer));
        return ol_cli_report(&err);
    }
    read_file(cli, &yaml, table);
    return OL_EXIT_DONE;
}

static void print_lines(const struct ol_cli *cli, const struct config_lines *table)
{
    struct ol_buf line = {0};
    for (size_t i = 0; i < table->count; i++) {
        const struct config_line *l = &table->lines[i];
        if (cli->json) {
            ol_buf_text(&line, "{\"key\":");
            ol_buf_json_text(&line, l->key);
            ol_buf_text(&line, ",\"value\":");
            ol_buf_json_text(&line, l->value);
            ol_buf_print(&line, ",\"from\":\"%s\"}", origins[l->from]);
        } else {
            ol_cli_put_wide(&line, l->key, 24);
            ol_buf_char(&line, ' ');
            ol_cli_put_wide(&line, l->value, 30);
            ol_buf_print(&line, " %s%s%s", ol_cli_dim(cli), origins[l->from], ol_cli_plain(cli));
        }
        ol_cli_put_line(&line);
    }
    ol_buf_clear(&line);
}

static int run_config(struct ol_cli *cli)
{
    const char *file = NULL, *store = NULL;
    const struct ol_option options[] = {{"f", OL_OPTION_STRING, &file, NULL},
                                        {"config", OL_OPTION_STRING, &file, NULL},
                                        {0}};
    static struct config_lines table, from_file;
    outlog_err err;
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("config takes no argument, found '%s'", cli->argv[0]);
    if (file && (status = load_file(cli, file, &from_file)))
        return status;
    for (size_t i = 0; i < from_file.count; i++)
        if (strcmp(from_file.lines[i].key, "store") == 0)
            store = from_file.lines[i].value;
    if (store && cli->store_from == OL_FROM_DEFAULT) {
        cli->store = store;
        cli->store_from = OL_FROM_FILE;
    }
    for (size_t i = 0; i < CONFIG_DEFAULT_COUNT; i++)
        set_line(&table, defaults[i].key, defaults[i].value, OL_FROM_DEFAULT);
    set_line(&table, "relay.lanes", strncmp(cli->store, "sqlite:", 7) == 0 ? "1" : "8",
             OL_FROM_DEFAULT);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (read_store(cli, log, &table, &err) < 0) {
        status = ol_cli_report(&err);
    } else {
        for (size_t i = 0; i < from_file.count; i++)
            set_line(&table, from_file.lines[i].key, from_file.lines[i].value, OL_FROM_FILE);
        set_line(&table, "store", without_password(cli->store, &cli->arena), cli->store_from);
        print_lines(cli, &table);
    }
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_config = {
    .name = "config",
    .summary = "the effective settings, and where each came from",
    .help =
        "usage: outlog config [-f FILE] [--json]\n\n"
        "Prints every setting with its origin: default, store (written by `outlog apply`), file (-f FILE,\n"
        "as it would be applied), environment, flag. A later origin in this list overrides an earlier\n"
        "one. Passwords are not shown.\n\n"
        "  outlog config\n"
        "  outlog config -f outlog.yaml\n",
    .run = run_config,
};
