/* options.c: reads the command line. Options are long (and -f where it is usual) and may come
 * before or after the words; `--` ends them. */
#include "base/duration.h"
#include "base/timestamp.h"
#include "cli/cli.h"

#include "base/clock.h"
#include "base/json/json.h"
#include "base/logline.h"
#include "store/sqlite/conn.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

int ol_cli_usage(const char *format, ...)
{
    char text[1000];
    struct ol_buf line = {0};
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ol_cli_put_safe(&line, text, strlen(text));
    fprintf(stderr, "outlog: %s [usage]\n", line.data ? line.data : "");
    ol_buf_clear(&line);
    return OL_EXIT_USAGE;
}

int ol_cli_one_of(const char *flag, const char *value, const char *const *words)
{
    char known[200] = "";
    for (size_t i = 0; value && words[i]; i++) {
        if (strcmp(value, words[i]) == 0)
            return 0;
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s",
                 i == 0         ? ""
                 : words[i + 1] ? ", "
                                : " or ",
                 words[i]);
    }
    return value ? ol_cli_usage("--%s is %s, not '%s'", flag, known, value) : 0;
}

int ol_cli_report(const outlog_err *err)
{
    struct ol_buf line = {0};
    ol_cli_put_safe(&line, err->message, strlen(err->message));
    fprintf(stderr, "outlog: %s [%s]\n", line.data ? line.data : "", outlog_code_name(err->code));
    ol_buf_clear(&line);
    return OL_EXIT_FAILED;
}

static int choose_word(const char *name, const char *value, const char *const *known)
{
    for (int i = 0; known[i]; i++)
        if (strcmp(value, known[i]) == 0)
            return i;
    ol_cli_usage("--%s is %s or %s, not '%s'", name, known[0],
                 known[2] ? "info, warn, error" : known[1], value);
    return -1;
}

int ol_cli_log(const char *format, const char *level)
{
    static const char *const formats[] = {"logfmt", "json", NULL}, *const levels[] = {"debug",
                                                                                      "info",
                                                                                      "warn",
                                                                                      "error",
                                                                                      NULL};
    int how = choose_word("log-format", format ? format : "logfmt", formats);
    int lowest = how < 0 ? -1 : choose_word("log-level", level ? level : "info", levels);
    if (lowest < 0)
        return OL_EXIT_USAGE;
    ol_logline_setup((enum ol_logline_format)how, (enum ol_logline_level)lowest);
    return 0;
}

static const struct ol_option *find_option(const struct ol_option *options, const char *name,
                                           size_t bytes)
{
    for (; options && options->name; options++)
        if (strlen(options->name) == bytes && memcmp(options->name, name, bytes) == 0)
            return options;
    return NULL;
}

/* Whether the word is a one-letter option of this command, such as -f. */
static bool is_short(const struct ol_option *options, const char *word)
{
    return word[0] == '-' && word[1] && !word[2] && find_option(options, word + 1, 1);
}

static int read_value(const struct ol_option *option, const char *value)
{
    char *end;
    if (option->kind == OL_OPTION_STRING) {
        *(const char **)option->into = value;
        return 0;
    }
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || end == value || *end)
        return ol_cli_usage("--%s takes a whole number, not '%s'", option->name, value);
    *(int64_t *)option->into = number;
    return 0;
}

/* Read the option at argv[i]; returns how many arguments it used, or -1. */
static int read_option(const struct ol_option *const *tables, int argc, char **argv, int i)
{
    const char *name = argv[i] + (argv[i][1] == '-' ? 2 : 1), *equals = strchr(name, '=');
    size_t bytes = equals ? (size_t)(equals - name) : strlen(name);
    const struct ol_option *option = find_option(tables[0], name, bytes);

    if (!option)
        option = find_option(tables[1], name, bytes);
    if (!option) {
        ol_cli_usage("unknown option --%.*s; --help lists the options", (int)bytes, name);
        return -1;
    }
    if (option->was_given)
        *option->was_given = true;
    if (option->kind == OL_OPTION_FLAG) {
        if (equals) {
            ol_cli_usage("--%s takes no value", option->name);
            return -1;
        }
        *(bool *)option->into = true;
        return 1;
    }
    if (equals)
        return read_value(option, equals + 1) == 0 ? 1 : -1;
    if (i + 1 >= argc) {
        ol_cli_usage("--%s needs a value", option->name);
        return -1;
    }
    return read_value(option, argv[i + 1]) == 0 ? 2 : -1;
}

int ol_cli_options(struct ol_cli *cli, const struct ol_option *options)
{
    bool has_store = false;
    const struct ol_option global[] = {{"store", OL_OPTION_STRING, &cli->store, &has_store},
                                       {"json", OL_OPTION_FLAG, &cli->json, NULL},
                                       {0}};
    const struct ol_option *tables[] = {options, global};
    int words = 0;
    bool only_words = false;

    for (int i = 0; i < cli->argc;) {
        char *word = cli->argv[i];
        if (!only_words && strcmp(word, "--") == 0) {
            only_words = true;
            i++;
        } else if (!only_words && (strncmp(word, "--", 2) == 0 || is_short(options, word))) {
            int used = read_option(tables, cli->argc, cli->argv, i);
            if (used < 0)
                return OL_EXIT_USAGE;
            i += used;
        } else if (!only_words && word[0] == '-' && word[1]) {
            return ol_cli_usage("unknown option %s; options begin with two dashes", word);
        } else {
            cli->argv[words++] = word;
            i++;
        }
    }
    cli->argc = words;
    if (has_store)
        cli->store_from = OL_FROM_FLAG;
    return 0;
}

bool ol_cli_is_missing(const struct ol_cli *cli)
{
    outlog_err err;
    if (!ol_sqlite_is_missing(cli->store))
        return false;
    ol_fail(&err, OUTLOG_NO_SCHEMA,
            "there is no %.200s; make it with `outlog init`, or name another by --store",
            cli->store);
    ol_cli_report(&err);
    return true;
}

outlog *ol_cli_open(struct ol_cli *cli)
{
    outlog *log = NULL;
    outlog_err err;
    int64_t settled;
    if (ol_cli_is_missing(cli))
        return NULL;
    if (outlog_open(cli->store, &log, &err) == 0 && outlog_settled(log, &settled, &err) == 0)
        return log;
    ol_cli_report(&err);
    outlog_close(log);
    return NULL;
}

int ol_cli_time(const char *text, int64_t *out)
{
    int64_t ago;
    if (ol_timestamp_parse(text, strlen(text), out) == 0)
        return 0;
    if (ol_duration_parse(text, &ago) < 0)
        return -1;
    *out = ol_clock_wall_us() - ago;
    return 0;
}

int ol_cli_window(const char *since, const char *until, int64_t *from, int64_t *to)
{
    if ((since && ol_cli_time(since, from) < 0) || (until && ol_cli_time(until, to) < 0))
        return ol_cli_usage(
            "--since and --until are times like 2026-01-31T12:00:00Z or spans like 1h");
    return 0;
}

int ol_cli_aggregate(struct ol_cli *cli, const char *text, const char **type, const char **id)
{
    const char *slash = strchr(text, '/');
    if (!slash || slash == text || !slash[1])
        return ol_cli_usage("--aggregate is TYPE/ID, like order/o-1, not '%s'", text);
    *type = ol_arena_copy(&cli->arena, text, (size_t)(slash - text));
    *id = slash + 1;
    return 0;
}

int ol_cli_actor(struct ol_cli *cli, const char *text, const char **type, const char **id)
{
    const char *colon = text ? strchr(text, ':') : NULL;
    if (!text)
        return 0;
    if (!colon || colon == text || !colon[1])
        return ol_cli_usage(
            "--actor is TYPE:ID, like user:u-7 or service_principal:billing, not '%s'", text);
    *type = ol_arena_copy(&cli->arena, text, (size_t)(colon - text));
    *id = colon + 1;
    return 0;
}

int ol_cli_org_or_infra(const char *org_id, bool is_infrastructure)
{
    return org_id && is_infrastructure
               ? ol_cli_usage(
                     "--org and --infra exclude each other: infrastructure events have no org")
               : 0;
}

bool ol_cli_event_id(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end != text && !*end && *out >= 0;
}

int ol_cli_verb(const struct ol_cli *cli, const struct ol_cli_verb *verbs,
                const struct ol_cli_verb **out, int64_t *event_id)
{
    char known[200] = "";
    const struct ol_cli_verb *verb = verbs;
    for (; verb->name && (!cli->argc || strcmp(verb->name, cli->argv[0]) != 0); verb++) {
        size_t bytes = strlen(known);
        snprintf(known + bytes, sizeof known - bytes, "%s%s", bytes ? ", " : "", verb->name);
    }
    if (cli->argc && !verb->name)
        return ol_cli_usage("%.*s takes %s, not '%s'", (int)strcspn(verbs->usage, " "),
                            verbs->usage, known, cli->argv[0]);
    if (cli->argc != verb->words)
        return ol_cli_usage("usage: outlog %s", verb->usage);
    if (cli->argc > 2 && !ol_cli_event_id(cli->argv[2], event_id))
        return ol_cli_usage("'%s' is not an event_id", cli->argv[2]);
    *out = verb;
    return 0;
}

int ol_cli_run_verb(struct ol_cli *cli, const struct ol_cli_verb *verb, void *args)
{
    outlog_err err;
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    int status = verb->run(cli, log, args, &err) < 0 ? ol_cli_report(&err) : 0;
    outlog_close(log);
    return status;
}

int ol_cli_unreadable(const char *path)
{
    outlog_err err;
    ol_fail(&err, errno == ENOENT ? OUTLOG_NOT_FOUND : OUTLOG_INVALID_FIELD,
            "cannot read %.200s: %s; check the path", path, strerror(errno));
    return ol_cli_report(&err);
}

const char *ol_cli_bytes_or_file(struct ol_cli *cli, const char *text, size_t *bytes)
{
    *bytes = strlen(text);
    if (text[0] != '@')
        return text;
    FILE *file = strcmp(text, "@-") == 0 ? stdin : fopen(text + 1, "rb");
    struct ol_buf content = {0};
    char chunk[65536];
    size_t got;
    const char *copy = NULL;

    if (!file) {
        ol_cli_unreadable(text + 1);
        return NULL;
    }
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        ol_buf_add(&content, chunk, got);
    if (ferror(file) || content.failed)
        ol_cli_unreadable(text + 1);
    else
        copy = ol_arena_copy(&cli->arena, content.data, content.bytes);
    *bytes = content.bytes;
    if (file != stdin)
        fclose(file);
    ol_buf_clear(&content);
    return copy;
}

int ol_cli_check_json(const char *what, const char *text)
{
    struct ol_json json;
    outlog_err err;
    if (ol_json_parse(text, strlen(text), &json, &err) == 0)
        return 0;
    ol_err_prefix(&err, "%s", what);
    return ol_cli_report(&err);
}

const char *ol_cli_text_or_file(struct ol_cli *cli, const char *text)
{
    size_t bytes;
    outlog_err err;
    const char *content = ol_cli_bytes_or_file(cli, text, &bytes);
    if (!content || strlen(content) == bytes)
        return content;
    ol_fail(&err, OUTLOG_INVALID_JSON, "%.200s contains a NUL byte, which JSON text cannot have",
            text + 1);
    ol_cli_report(&err);
    return NULL;
}
