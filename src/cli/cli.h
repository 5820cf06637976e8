/* cli.h: what the commands share: options, opening the store, output. */
#ifndef OL_CLI_CLI_H
#define OL_CLI_CLI_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "cli/commands.h"
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

/* What every command gets. */
struct ol_cli {
    const char *store; /* URL */
    enum ol_option_source store_from;
    bool json;
    bool color;
    int argc; /* the words that are left after ol_cli_options() */
    char **argv;
    struct ol_arena arena; /* main() clears it after the command */
};

struct ol_cli_command {
    const char *name;
    const char *summary; /* one line for `outlog --help` */
    const char *help;    /* usage, what it does, examples */
    int (*run)(struct ol_cli *cli);
};

#define OL_CLI_DECLARE(name) extern const struct ol_cli_command ol_command_##name;
OL_CLI_COMMANDS(OL_CLI_DECLARE)
#undef OL_CLI_DECLARE

/* Read the options of a command, and the global ones; the words stay in cli->argv. Returns 0, or
 * OL_EXIT_USAGE after printing what is wrong. */
int ol_cli_options(struct ol_cli *cli, const struct ol_option *options);

/* Print what is wrong with the command line; returns OL_EXIT_USAGE. */
int ol_cli_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Print an error with its code; returns OL_EXIT_FAILED. */
int ol_cli_report(const outlog_err *err);

/* Set up logging from --log-format logfmt|json and --log-level debug|info|warn|error; each may be
 * NULL. Returns 0 or OL_EXIT_USAGE. */
int ol_cli_log(const char *format, const char *level);

/* Whether the store is an SQLite file that does not exist. Prints that: opening the file would
 * create an empty one. */
bool ol_cli_is_missing(const struct ol_cli *cli);

/* Open the store of this command; its schema must exist. NULL after printing why not. */
outlog *ol_cli_open(struct ol_cli *cli);

/* Parse a time: RFC 3339, or how long ago ("1h"). Returns 0 or -1. */
int ol_cli_time(const char *text, int64_t *out);

/* --since and --until, either of which may be NULL; returns 0 or OL_EXIT_USAGE. */
int ol_cli_window(const char *since, const char *until, int64_t *from, int64_t *to);

/* Split "TYPE/ID"; returns 0 or OL_EXIT_USAGE. */
int ol_cli_aggregate(struct ol_cli *cli, const char *text, const char **type, const char **id);

/* Split "TYPE:ID"; NULL leaves both as they are. Returns 0 or OL_EXIT_USAGE. */
int ol_cli_actor(struct ol_cli *cli, const char *text, const char **type, const char **id);

/* An event has an org or belongs to the infrastructure, not both; returns 0 or OL_EXIT_USAGE. */
int ol_cli_org_or_infra(const char *org_id, bool is_infrastructure);

/* Parse an event_id or 0; false when `text` is neither. */
bool ol_cli_event_id(const char *text, int64_t *out);

/* A verb of a command: `outlog consumers create NAME`. */
struct ol_cli_verb {
    const char *name;
    int words; /* including its own name; the third word is an event_id */
    int (*run)(struct ol_cli *cli, outlog *log, void *args, outlog_err *err);
    const char *usage;
};

/* Find the verb that the words name. The last entry of `verbs` has no name: it runs when there are
 * no words. The third word, if any, becomes *event_id. Returns 0 or OL_EXIT_USAGE. */
int ol_cli_verb(const struct ol_cli *cli, const struct ol_cli_verb *verbs,
                const struct ol_cli_verb **out, int64_t *event_id);

/* Open the store and run the verb; prints its error. Returns the exit status. */
int ol_cli_run_verb(struct ol_cli *cli, const struct ol_cli_verb *verb, void *args);

/* Around a change of many messages: begin makes `how` count into `result`, end prints the counts.
 * After an error end prints them too if some messages were changed before it. `why_skipped` is the
 * reason that messages were left alone. */
void ol_cli_bulk_result_begin(const struct ol_cli *cli, struct ol_bulk_result *result,
                              struct outlog_requeue *how);
void ol_cli_bulk_result_end(const struct ol_cli *cli, struct ol_bulk_result *result, int status,
                            const char *why_skipped);

/* Check that a value is NULL or one of `words`, a list that ends with NULL. Returns 0 or
 * OL_EXIT_USAGE. */
int ol_cli_one_of(const char *flag, const char *value, const char *const *words);

/* Print why a file cannot be read, by errno; returns OL_EXIT_FAILED. */
int ol_cli_unreadable(const char *path);

/* The text itself, the content of a file for @FILE, or standard input for @-. The result has no NUL
 * byte. NULL after printing why. */
const char *ol_cli_text_or_file(struct ol_cli *cli, const char *text);

/* The same for any bytes. */
const char *ol_cli_bytes_or_file(struct ol_cli *cli, const char *text, size_t *bytes);

/* 0, or OL_EXIT_FAILED after printing that `text`, given as `what`, is not JSON. */
int ol_cli_check_json(const char *what, const char *text);

/* --- output --- */

struct ol_json;

/* A string member of an object, in the command's arena; `otherwise` if there is none. */
const char *ol_cli_field(struct ol_cli *cli, const struct ol_json *object, const char *name,
                         const char *otherwise);

/* Print the list of a page {name: […], next_after?}, one line per entry: with --json as it is, else
 * as `put` writes it. */
int ol_cli_page(struct ol_cli *cli, const struct ol_buf *page, const char *name,
                void (*put)(struct ol_cli *cli, const struct ol_json *one, struct ol_buf *line),
                outlog_err *err);

/* Colours, or "" when the output is not a terminal. */
const char *ol_cli_dim(const struct ol_cli *cli);
const char *ol_cli_bold(const struct ol_cli *cli);
const char *ol_cli_accent(const struct ol_cli *cli);
const char *ol_cli_good(const struct ol_cli *cli);
const char *ol_cli_bad(const struct ol_cli *cli);
const char *ol_cli_plain(const struct ol_cli *cli);

/* Add text that we did not write, such as a payload. Control bytes are escaped: they must not reach
 * the terminal. */
void ol_cli_put_safe(struct ol_buf *out, const char *text, size_t bytes);

/* The same, padded with spaces to `width`. */
void ol_cli_put_wide(struct ol_buf *out, const char *text, size_t width);

/* 1234567 as 1,234,567. */
const char *ol_cli_thousands(int64_t number, char out[32]);

/* How long ago a wall time was, such as "5 min"; "-" for 0. */
const char *ol_cli_age(int64_t since, char out[32]);

/* Write the buffer and a newline to standard output and empty it; false when that failed. */
bool ol_cli_put_line(struct ol_buf *line);

/* Add one event as a line: JSON with --json, else for people. */
void ol_cli_put_event(const struct ol_cli *cli, const struct outlog_event *event,
                      struct ol_buf *out);

/* Add one message as a line, the same way. */
void ol_cli_put_message(const struct ol_cli *cli, const struct outlog_message *message,
                        struct ol_buf *out);

/* Print a page of messages, with a hint on standard error when there are more. */
int ol_cli_put_messages(struct ol_cli *cli, outlog *log, const struct outlog_message_filter *filter,
                        const char *after, size_t limit, outlog_err *err);

/* Progress on standard error, redrawn in place. Only a terminal gets it. */
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
