/* export.c: outlog export: writes the store as lines to one stream, or to compressed segments. */
#include "cli/cli.h"

#include "export/export.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { EXPORT_SEGMENT_EVENTS = 100000 };

/* A compressed file, or standard output when `file` is NULL. */
struct export_file {
    gzFile file;
    const char *name;
    int64_t lines;
};

static int write_line(void *user, const char *line, size_t bytes, outlog_err *err)
{
    struct export_file *out = user;
    bool is_written = out->file ? gzwrite(out->file, line, (unsigned)bytes) == (int)bytes
                                : fwrite(line, 1, bytes, stdout) == bytes;
    out->lines++;
    return is_written ? 0 : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", out->name, strerror(errno));
}

static int write_buf(struct export_file *out, struct ol_buf *line, outlog_err *err)
{
    int result = line->failed ? ol_no_memory(err) : write_line(out, line->data, line->bytes, err);
    ol_buf_clear(line);
    return result;
}

/* Write the first line of a file or stream. */
static int write_head(outlog *log, struct export_file *out, int64_t after, outlog_err *err)
{
    struct ol_buf line = {0};
    int64_t settled;
    if (outlog_settled(log, &settled, err) < 0)
        return -1;
    ol_export_head(&line, after, settled);
    return write_buf(out, &line, err);
}

static int write_end(struct export_file *out, int64_t count, outlog_err *err)
{
    struct ol_buf line = {0};
    ol_export_end(&line, count);
    return write_buf(out, &line, err);
}

static int export_stream(outlog *log, const char *path, int64_t *count, outlog_err *err)
{
    struct export_file out = {.name = path ? path : "standard output"};
    size_t bytes = path ? strlen(path) : 0;
    bool is_packed = bytes > 3 && strcmp(path + bytes - 3, ".gz") == 0;
    struct ol_export_cursor cursor = {0};

    if (path && !(out.file = gzopen(path, is_packed ? "wb" : "wbT")))
        return ol_fail(err, OUTLOG_STORE_ERROR, "cannot write %.200s: %s; check the path", path,
                       strerror(errno));
    int result = -1;
    if (write_head(log, &out, 0, err) == 0 &&
        ol_export_state(log, write_line, &out, &cursor.upto, err) == 0 &&
        ol_export_events(log, &cursor, write_line, &out, err) == 0)
        result = write_end(&out, cursor.count, err);
    *count = cursor.count;
    if (out.file && gzclose(out.file) != Z_OK && result == 0)
        result = ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", path, strerror(errno));
    if (!out.file && fflush(stdout) != 0 && result == 0)
        result = ol_fail(err, OUTLOG_STORE_ERROR, "standard output: %s", strerror(errno));
    return result;
}

/* --- segments --- */

static int open_draft(const char *folder, const char *name, char path[1100],
                      struct export_file *out, outlog_err *err)
{
    snprintf(path, 1100, "%.1000s/%s", folder, name);
    *out = (struct export_file){.file = gzopen(path, "wb"), .name = path};
    return out->file ? 0 : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", path, strerror(errno));
}

/* A file gets its name when it is complete, so a segment is never partial. */
static int rename_draft(const char *draft, const char *name, outlog_err *err)
{
    return rename(draft, name) == 0
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", name, strerror(errno));
}

static int close_draft(struct export_file *out, int result, outlog_err *err)
{
    if (gzclose(out->file) != Z_OK && result == 0)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", out->name, strerror(errno));
    return result;
}

/* Write the next segment of the cursor. If there are no events after it, no file is left. */
static int write_segment(outlog *log, const char *folder, struct ol_export_cursor *cursor,
                         outlog_err *err)
{
    char draft[1100], name[1200];
    struct export_file out;
    int64_t after = cursor->after;
    int result = -1;

    if (open_draft(folder, "draft.tmp", draft, &out, err) < 0)
        return -1;
    if (write_head(log, &out, after, err) == 0 &&
        ol_export_events(log, cursor, write_line, &out, err) == 0)
        result = write_end(&out, cursor->count, err);
    result = close_draft(&out, result, err);
    snprintf(name, sizeof name, "%.1000s/events-%012lld-%012lld.ndjson.gz", folder,
             (long long)after, (long long)cursor->after);
    if (result == 0 && cursor->count > 0)
        return rename_draft(draft, name, err);
    remove(draft);
    return result;
}

/* Write the state to a draft. It gets its name after the events that belong to it are written. */
static int write_state_draft(outlog *log, const char *folder, char draft[1100], int64_t *upto,
                             outlog_err *err)
{
    struct export_file out;
    int result = -1;
    if (open_draft(folder, "state.tmp", draft, &out, err) < 0)
        return -1;
    if (write_head(log, &out, 0, err) == 0 &&
        ol_export_state(log, write_line, &out, upto, err) == 0)
        result = write_end(&out, 0, err);
    return close_draft(&out, result, err);
}

/* The last event_id of the segments in a folder that follow each other without a gap. */
static int find_segments_end(const char *folder, int64_t *out, outlog_err *err)
{
    struct dirent **files;
    long long from, to;
    int count = scandir(folder, &files, NULL, alphasort);
    if (count < 0)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", folder, strerror(errno));
    *out = 0;
    for (int i = 0; i < count; i++) {
        if (sscanf(files[i]->d_name, "events-%lld-%lld.ndjson.gz", &from, &to) == 2 && from == *out)
            *out = to;
        free(files[i]);
    }
    free(files);
    return 0;
}

static int export_segments(outlog *log, const char *folder, int64_t *total, outlog_err *err)
{
    struct ol_export_cursor cursor = {.limit = EXPORT_SEGMENT_EVENTS};
    char draft[1100], name[1100];
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", folder, strerror(errno));
    if (find_segments_end(folder, &cursor.after, err) < 0 ||
        write_state_draft(log, folder, draft, &cursor.upto, err) < 0)
        return -1;
    *total = 0;
    do {
        if (write_segment(log, folder, &cursor, err) < 0)
            return -1;
        *total += cursor.count;
    } while (cursor.count == EXPORT_SEGMENT_EVENTS);
    snprintf(name, sizeof name, "%.1000s/state.ndjson.gz", folder);
    return rename_draft(draft, name, err);
}

static int run_export(struct ol_cli *cli)
{
    const char *output = NULL, *segments = NULL;
    const struct ol_option table[] = {{"output", OL_OPTION_STRING, &output, NULL},
                                      {"segments", OL_OPTION_STRING, &segments, NULL},
                                      {0}};
    int64_t count = 0, claimed = 0;
    char number[32];
    outlog_err err;

    int status = ol_cli_options(cli, table);
    if (status)
        return status;
    if (cli->argc || (output && segments))
        return ol_cli_usage(
            "export takes --output FILE or --segments FOLDER, or writes to standard output");
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if ((segments ? export_segments(log, segments, &count, &err)
                  : export_stream(log, output, &count, &err)) < 0 ||
        ol_export_claimed(log, &claimed, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    if (status == OL_EXIT_DONE)
        fprintf(stderr, "outlog export: %s events\n", ol_cli_thousands(count, number));
    if (status == OL_EXIT_DONE && claimed)
        fprintf(stderr,
                "outlog export: %s messages are claimed and may be delivered again: stop the"
                " relays before the last export of a move\n",
                ol_cli_thousands(claimed, number));
    return status;
}

const struct ol_cli_command ol_command_export = {
    .name = "export",
    .summary = "write the store as lines, for backup or another store",
    .help =
        "usage: outlog export [--output FILE] [--segments FOLDER]\n\n"
        "Writes the content of a store as NDJSON to standard output or a file (compressed when its name\n"
        "ends in .gz): events, messages with their attempts, effects, runs, sessions, consumers,\n"
        "idempotency records, configuration and the hashes of tokens; not the views of projections,\n"
        "which are rebuilt. --segments writes a folder of compressed files of 100,000 events each; a\n"
        "repeat adds only the new events. Everything keeps its id. For a move, stop writers and relays\n"
        "before the last export.\n\n"
        "  outlog export > log.ndjson\n"
        "  outlog export --segments /backup/log\n",
    .run = run_export,
};
