/* apply.c: outlog apply: writes the configuration of outlog.yaml to the store. */
#include "cli/apply.h"

#include <string.h>

struct apply_args {
    const char *file, *actor;
    struct ol_config_options options;
};

static int parse_apply_args(struct ol_cli *cli, struct apply_args *args)
{
    const struct ol_option options[] = {{"f", OL_OPTION_STRING, &args->file, NULL},
                                        {"file", OL_OPTION_STRING, &args->file, NULL},
                                        {"prune", OL_OPTION_FLAG, &args->options.prune, NULL},
                                        {"dry-run", OL_OPTION_FLAG, &args->options.dry_run, NULL},
                                        {"actor", OL_OPTION_STRING, &args->actor, NULL},
                                        {0}};
    int status = ol_cli_options(cli, options);
    if (status)
        return status;
    if (cli->argc)
        return ol_cli_usage("apply takes no argument, found '%s'; the file is -f FILE",
                            cli->argv[0]);
    if (!args->file)
        return ol_cli_usage("apply needs -f FILE, as in: outlog apply -f outlog.yaml");
    return ol_cli_actor(cli, args->actor, &args->options.actor_type, &args->options.actor_id);
}

static void print_change(const struct ol_cli *cli, const struct ol_config_diff *change)
{
    static const char *const words[] = {"added", "changed", "removed"};
    static const char signs[] = {'+', '~', '-'};
    struct ol_buf line = {0};
    if (cli->json) {
        ol_buf_print(&line, "{\"change\":\"%s\",\"noun\":\"%s\",\"name\":", words[change->kind],
                     change->entry_kind);
        ol_buf_json_text(&line, change->name);
        ol_buf_text(&line, ",\"keys\":");
        ol_buf_json_text(&line, change->keys);
        ol_buf_char(&line, '}');
    } else {
        const char *color = change->kind == OL_DIFF_ADD      ? ol_cli_good(cli)
                            : change->kind == OL_DIFF_REMOVE ? ol_cli_bad(cli)
                                                             : ol_cli_accent(cli);
        ol_buf_print(&line, "%s%c %-11s ", color, signs[change->kind], change->entry_kind);
        ol_cli_put_safe(&line, change->name, strlen(change->name));
        if (change->keys) {
            ol_buf_text(&line, ": ");
            ol_cli_put_safe(&line, change->keys, strlen(change->keys));
        }
        ol_buf_text(&line, ol_cli_plain(cli));
    }
    ol_cli_put_line(&line);
    ol_buf_clear(&line);
}

static void print_changes(const struct ol_cli *cli, const struct apply_args *args,
                          const struct ol_config_diffs *changes)
{
    size_t counts[3] = {0};
    for (size_t i = 0; i < changes->count; i++) {
        print_change(cli, &changes->all[i]);
        counts[changes->all[i].kind]++;
    }
    if (cli->json)
        return;
    printf("= %zu same\n", changes->same_count);
    if (changes->count == 0)
        printf("nothing to change\n");
    else
        printf("%s%zu added, %zu changed, %zu removed\n", args->options.dry_run ? "would be: " : "",
               counts[OL_DIFF_ADD], counts[OL_DIFF_EDIT], counts[OL_DIFF_REMOVE]);
}

/* Use `store:` of the file unless a flag or the environment names a store. */
static void read_store_url(struct ol_cli *cli, const struct ol_yaml *yaml)
{
    struct ol_json object, store;
    if (cli->store_from != OL_FROM_DEFAULT ||
        ol_json_parse(yaml->json, yaml->bytes, &object, NULL) < 0)
        return;
    store = ol_json_get(&object, "store");
    const char *url = ol_json_string(&store, &cli->arena, NULL);
    if (url) {
        cli->store = url;
        cli->store_from = OL_FROM_FILE;
    }
}

int ol_cli_config_read(struct ol_cli *cli, const char *file, struct ol_yaml *out)
{
    const char *name = strcmp(file, "-") == 0 ? "standard input" : file;
    const char *text = ol_cli_text_or_file(cli, ol_arena_print(&cli->arena, "@%s", file));
    outlog_err err;

    if (!text)
        return OL_EXIT_FAILED;
    if (ol_yaml_read(text, strlen(text), &cli->arena, out, &err) < 0) {
        ol_err_prefix(&err, "%s", name);
        return ol_cli_report(&err);
    }
    if (ol_config_check(out->json, out->bytes, &err) < 0) {
        ol_err_prefix(&err, "%s: line %d", name, ol_yaml_line(out, err.pointer));
        return ol_cli_report(&err);
    }
    read_store_url(cli, out);
    return OL_EXIT_DONE;
}

int ol_cli_config_apply(struct ol_cli *cli, outlog *log, const char *file,
                        const struct ol_yaml *yaml, const struct ol_config_options *options,
                        struct ol_config_diffs *changes)
{
    outlog_err err;
    if (ol_config_apply(log, yaml->json, yaml->bytes, options, &cli->arena, changes, &err) == 0)
        return OL_EXIT_DONE;
    if (*err.pointer)
        ol_err_prefix(&err, "%s: line %d", strcmp(file, "-") == 0 ? "standard input" : file,
                      ol_yaml_line(yaml, err.pointer));
    return ol_cli_report(&err);
}

static int run_apply(struct ol_cli *cli)
{
    struct apply_args args = {0};
    struct ol_yaml yaml;
    struct ol_config_diffs changes;
    int status = parse_apply_args(cli, &args);

    if (status || (status = ol_cli_config_read(cli, args.file, &yaml)))
        return status;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    status = ol_cli_config_apply(cli, log, args.file, &yaml, &args.options, &changes);
    if (status == OL_EXIT_DONE)
        print_changes(cli, &args, &changes);
    outlog_close(log);
    return status;
}

const struct ol_cli_command ol_command_apply = {
    .name = "apply",
    .summary = "destinations, routes and settings from outlog.yaml",
    .help =
        "usage: outlog apply -f FILE [--prune] [--dry-run] [--actor TYPE:ID] [--json]\n\n"
        "Writes the file's configuration to the store, all of it or nothing, and shows the changes:\n"
        "+ added, ~ changed with the keys that differ, - removed, = how many are the same. Safe to\n"
        "repeat. What the file does not name stays as it is; --prune removes it. ${NAME} is stored as\n"
        "written and read by the process that delivers. Each change appends an audit event.\n\n"
        "  destinations:\n"
        "    billing: {type: webhook, url: \"https://billing.example/hooks\", secret: \"${BILLING_SECRET}\"}\n"
        "    ops: {type: stdout}\n"
        "  routes:\n"
        "    - {on: \"order.*\", to: billing, when: {/country: DE}}\n"
        "  types: {SEND_EMAIL: {retry: {base: 2s, max_attempts: 4}}}\n"
        "  alerts: {to: ops}\n\n"
        "  outlog apply -f outlog.yaml --dry-run\n"
        "  outlog apply -f outlog.yaml --prune\n"
        "  outlog events --infra --aggregate outlog.destination/billing\n",
    .run = run_apply,
};
