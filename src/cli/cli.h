/* cli.h: what the verbs of the command line share. */
#ifndef OL_CLI_CLI_H
#define OL_CLI_CLI_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "outbox/bulk_result.h"

#include <stdio.h>

enum { OL_EXIT_DONE = 0, OL_EXIT_FAILED = 1, OL_EXIT_USAGE = 2 };

/* --- the command line --- */

enum ol_option_kind { OL_OPTION_FLAG, OL_OPTION_STRING, OL_OPTION_NUMBER };

struct ol_option {
    const char *name; /* without the dashes; NULL ends the table */
    enum ol_option_kind kind;
    void *into;      /* bool *, const char ** or int64_t * */
    bool *was_given; /* may be NULL */
};

/* Where a setting came from. */
enum ol_option_source {
    OL_FROM_DEFAULT,
    OL_FROM_FILE,
    OL_FROM_ENVIRONMENT,
    OL_FROM_FLAG,
    OL_FROM_STORE
};

/* Where everything a command needs comes together. */
struct ol_cli {
    const char *store; /* URL */
    enum ol_option_source store_from;
    bool json;
    bool color;
    int argc; /* what is left after the options: the words */
    char **argv;
    struct ol_arena arena; /* dies with the command */
};

struct ol_cli_command {
    const char *name;
    const char *summary; /* one line for `outlog --help` */
    const char *help;    /* usage, what it does, examples */
    int (*run)(struct ol_cli *cli);
};

extern const struct ol_cli_command ol_command_init, ol_command_append, ol_command_events,
    ol_command_trace, ol_command_causality, ol_command_consumers, ol_command_doctor,
    ol_command_bench, ol_command_version, ol_command_relay, ol_command_send, ol_command_apply,
    ol_command_outbox, ol_command_dead, ol_command_requeue, ol_command_kill, ol_command_notices,
    ol_command_sessions, ol_command_destinations, ol_command_stats, ol_command_config,
    ol_command_serve, ol_command_token, ol_command_runs, ol_command_run_one, ol_command_verify,
    ol_command_signal, ol_command_step, ol_command_tool, ol_command_projections, ol_command_sinks,
    ol_command_export, ol_command_import;

/* Read the options of a command (and the global ones), leaving the words in cli->argv. Returns 0,
 * or OL_EXIT_USAGE after having said what is wrong. */
int ol_cli_options(struct ol_cli *cli, const struct ol_option *options);

/* Say what is wrong with the command line; returns OL_EXIT_USAGE. */
int ol_cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Say what went wrong; returns OL_EXIT_FAILED. */
int ol_cli_report(const outlog_err *err);

/* --log-format logfmt|json and --log-level debug|info|warn|error, as given or NULL. 0, or wrong
 * usage. */
int ol_cli_log(const char *format, const char *level);

/* Is the store a file that is not there? Says so: to open it would leave an empty one behind. */
bool ol_cli_is_missing(const struct ol_cli *cli);

/* Open the store of this command; the schema must be there. NULL after having said why not. */
outlog *ol_cli_open(struct ol_cli *cli);

/* A time: RFC 3339, or how long ago ("1h"). Returns 0 or -1. */
int ol_cli_time(const char *text, int64_t *out);

/* --since and --until, either of which may be NULL; returns 0 or OL_EXIT_USAGE. */
int ol_cli_window(const char *since, const char *until, int64_t *from, int64_t *to);

/* "TYPE/ID" in two; returns 0 or OL_EXIT_USAGE. */
int ol_cli_aggregate(struct ol_cli *cli, const char *text, const char **type, const char **id);

/* "TYPE:ID" in two; NULL leaves both as they are. Returns 0 or OL_EXIT_USAGE. */
int ol_cli_actor(struct ol_cli *cli, const char *text, const char **type, const char **id);

/* An event has an org or is of the infrastructure, not both; returns 0 or OL_EXIT_USAGE. */
int ol_cli_org_or_infra(const char *org_id, bool is_infrastructure);

/* An event_id, or 0; false when `text` is neither. */
bool ol_cli_event_id(const char *text, int64_t *out);

/* What a command can do: `outlog consumers create NAME`. */
struct ol_cli_verb {
    const char *name;
    int words; /* with its own name; a third one is an event_id */
    int (*run)(struct ol_cli *cli, outlog *log, void *wish, outlog_err *err);
    const char *usage;
};

/* The verb that the words name, of a list that ends with a name that is NULL: that one is meant
 * where there are no words. Fills *event_id where there is a third. Returns 0 or OL_EXIT_USAGE. */
int ol_cli_verb(const struct ol_cli *cli, const struct ol_cli_verb *verbs,
                const struct ol_cli_verb **out, int64_t *event_id);

/* Open the store, do it, say what went wrong; returns the exit status. */
int ol_cli_do(struct ol_cli *cli, const struct ol_cli_verb *verb, void *wish);

/* Count what a change of many messages did; then tell it, after an error too if something was done
 * before, and why others were left alone. */
void ol_cli_bulk_result_begin(const struct ol_cli *cli, struct ol_bulk_result *tally,
                              struct outlog_requeue *how);
void ol_cli_bulk_result_end(const struct ol_cli *cli, struct ol_bulk_result *tally, int result,
                            const char *why_skipped);

/* A value that must be one of these words, of a list that ends with NULL, if it is given at all.
 * Returns 0 or OL_EXIT_USAGE. */
int ol_cli_one_of(const char *flag, const char *value, const char *const *words);

/* Say that a file cannot be read, by errno; returns OL_EXIT_FAILED. */
int ol_cli_unreadable(const char *path);

/* Text, or @FILE for what a file holds, or @- for standard input. NULL after having said why. */
const char *ol_cli_text_or_file(struct ol_cli *cli, const char *text);

/* The same where any bytes may be. */
const char *ol_cli_bytes_or_file(struct ol_cli *cli, const char *text, size_t *bytes);

/* 0, or OL_EXIT_FAILED after having said that `text`, given as `what`, is no JSON. */
int ol_cli_check_json(const char *what, const char *text);

/* --- output --- */

struct ol_json;

/* A text of an object, in the command's arena; `otherwise` where there is none. */
const char *ol_cli_field(struct ol_cli *cli, const struct ol_json *object, const char *name,
                         const char *otherwise);

/* Print what a page {name: […], next_after?} lists, one a line: as it stands, or as `put` shows it.
 */
int ol_cli_page(struct ol_cli *cli, const struct ol_buf *page, const char *name,
                void (*put)(struct ol_cli *cli, const struct ol_json *one, struct ol_buf *line),
                outlog_err *err);

/* Colours, or "" when the output is no terminal. */
const char *ol_cli_dim(const struct ol_cli *cli);
const char *ol_cli_bold(const struct ol_cli *cli);
const char *ol_cli_accent(const struct ol_cli *cli);
const char *ol_cli_good(const struct ol_cli *cli);
const char *ol_cli_bad(const struct ol_cli *cli);
const char *ol_cli_plain(const struct ol_cli *cli);

/* Text from a payload or a stranger: control bytes are shown, never sent to the terminal. */
void ol_cli_put_safe(struct ol_buf *out, const char *text, size_t bytes);

/* The same, and spaces up to `width`. */
void ol_cli_put_wide(struct ol_buf *out, const char *text, size_t width);

/* 1234567 as 1,234,567. */
const char *ol_cli_thousands(int64_t number, char out[32]);

/* How long ago, in words; "-" for 0. */
const char *ol_cli_age(int64_t since, char out[32]);

/* Write the buffer and a newline to standard output and empty it; false when that failed. */
bool ol_cli_put_line(struct ol_buf *line);

/* One event as a line: JSON with --json, else for people. */
void ol_cli_put_event(const struct ol_cli *cli, const struct outlog_event *event,
                      struct ol_buf *out);

/* One message as a line, the same way. */
void ol_cli_put_message(const struct ol_cli *cli, const struct outlog_message *message,
                        struct ol_buf *out);

/* A page of messages, with a hint on standard error when there are more. */
int ol_cli_put_messages(struct ol_cli *cli, outlog *log, const struct outlog_message_filter *filter,
                        const char *after, size_t limit, outlog_err *err);

/* Progress on standard error, drawn in place on a terminal and nowhere else. */
struct ol_progress {
    const char *what;
    int64_t total; /* 0: not known */
    int64_t done;
    int64_t started_at, drawn_at; /* boot clock */
    bool is_shown;
};
void ol_progress_begin(struct ol_progress *progress, const char *what, int64_t total);
void ol_progress_move(struct ol_progress *progress, int64_t done);
void ol_progress_end(struct ol_progress *progress);

#endif
