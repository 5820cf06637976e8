/* export.c: outlog export: the log as lines, in one stream or in compressed segments. */
#include "cli/cli.h"

#include "export/export.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { SEGMENT = 100000 };

/* A file that is compressed, or standard output that is not. */
struct out {
    gzFile file;
    const char *name;
    int64_t lines;
};

static int write_line(void *user, const char *line, size_t bytes, outlog_err *err)
{
    struct out *out = user;
    bool is_written = out->file ? gzwrite(out->file, line, (unsigned)bytes) == (int)bytes
                                : fwrite(line, 1, bytes, stdout) == bytes;
    out->lines++;
    return is_written ? 0 : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", out->name, strerror(errno));
}

static int write_buf(struct out *out, struct ol_buf *line, outlog_err *err)
{
    int result = line->failed ? ol_no_memory(err) : write_line(out, line->data, line->bytes, err);
    ol_buf_clear(line);
    return result;
}

/* Begin a file, or a stream. */
static int write_head(outlog *log, struct out *out, int64_t after, outlog_err *err)
{
    struct ol_buf line = {0};
    int64_t settled;
    if (outlog_settled(log, &settled, err) < 0)
        return -1;
    ol_export_head(&line, after, settled);
    return write_buf(out, &line, err);
}

static int write_end(struct out *out, int64_t count, outlog_err *err)
{
    struct ol_buf line = {0};
    ol_export_end(&line, count);
    return write_buf(out, &line, err);
}

static int to_stream(outlog *log, const char *path, int64_t *count, outlog_err *err)
{
    struct out out = {.name = path ? path : "standard output"};
    size_t bytes = path ? strlen(path) : 0;
    bool is_packed = bytes > 3 && strcmp(path + bytes - 3, ".gz") == 0;
    int64_t last, upto;

    if (path && !(out.file = gzopen(path, is_packed ? "wb" : "wbT")))
        return ol_fail(err, OUTLOG_STORE_ERROR, "cannot write %.200s: %s; check the path", path,
                       strerror(errno));
    int result = -1;
    if (write_head(log, &out, 0, err) == 0 &&
        ol_export_state(log, write_line, &out, &upto, err) == 0 &&
        ol_export_events(log, 0, upto, 0, write_line, &out, &last, count, err) == 0)
        result = write_end(&out, *count, err);
    if (out.file && gzclose(out.file) != Z_OK && result == 0)
        result = ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", path, strerror(errno));
    if (!out.file && fflush(stdout) != 0 && result == 0)
        result = ol_fail(err, OUTLOG_STORE_ERROR, "standard output: %s", strerror(errno));
    return result;
}

/* --- segments
 * ------------------------------------------------------------------------------------------ */

static int open_draft(const char *folder, const char *name, char path[1100], struct out *out,
                      outlog_err *err)
{
    snprintf(path, 1100, "%.1000s/%s", folder, name);
    *out = (struct out){.file = gzopen(path, "wb"), .name = path};
    return out->file ? 0 : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", path, strerror(errno));
}

/* A file is whole or not there: it gets its name at the end. */
static int keep(const char *draft, const char *name, outlog_err *err)
{
    return rename(draft, name) == 0
               ? 0
               : ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", name, strerror(errno));
}

static int close_draft(struct out *out, int result, outlog_err *err)
{
    if (gzclose(out->file) != Z_OK && result == 0)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", out->name, strerror(errno));
    return result;
}

static int write_segment(outlog *log, const char *folder, int64_t upto, int64_t *after,
                         int64_t *count, outlog_err *err)
{
    char draft[1100], name[1200];
    struct out out;
    int64_t last = *after;
    int result = -1;

    *count = 0;
    if (open_draft(folder, "draft.tmp", draft, &out, err) < 0)
        return -1;
    if (write_head(log, &out, *after, err) == 0 &&
        ol_export_events(log, *after, upto, SEGMENT, write_line, &out, &last, count, err) == 0)
        result = write_end(&out, *count, err);
    result = close_draft(&out, result, err);
    snprintf(name, sizeof name, "%.1000s/events-%012lld-%012lld.ndjson.gz", folder,
             (long long)*after, (long long)last);
    *after = last;
    if (result == 0 && *count > 0)
        return keep(draft, name, err);
    remove(draft);
    return result;
}

/* The state, as a draft: it gets its name when the events that belong to it are there. */
static int draft_state(outlog *log, const char *folder, char draft[1100], int64_t *upto,
                       outlog_err *err)
{
    struct out out;
    int result = -1;
    if (open_draft(folder, "state.tmp", draft, &out, err) < 0)
        return -1;
    if (write_head(log, &out, 0, err) == 0 &&
        ol_export_state(log, write_line, &out, upto, err) == 0)
        result = write_end(&out, 0, err);
    return close_draft(&out, result, err);
}

/* Up to where the segments of a folder reach without a hole. */
static int reach(const char *folder, int64_t *out, outlog_err *err)
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

static int to_segments(outlog *log, const char *folder, int64_t *total, outlog_err *err)
{
    int64_t after = 0, upto = 0, count = SEGMENT;
    char draft[1100], name[1100];
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", folder, strerror(errno));
    if (reach(folder, &after, err) < 0 || draft_state(log, folder, draft, &upto, err) < 0)
        return -1;
    for (*total = 0; count == SEGMENT; *total += count)
        if (write_segment(log, folder, upto, &after, &count, err) < 0)
            return -1;
    snprintf(name, sizeof name, "%.1000s/state.ndjson.gz", folder);
    return keep(draft, name, err);
}

static int run(struct ol_cli *cli)
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
    if ((segments ? to_segments(log, segments, &count, &err)
                  : to_stream(log, output, &count, &err)) < 0 ||
        ol_export_claimed(log, &claimed, &err) < 0)
        status = ol_cli_report(&err);
    outlog_close(log);
    if (status == OL_EXIT_DONE)
        fprintf(stderr, "outlog export: %s events\n", ol_cli_thousands(count, number));
    if (status == OL_EXIT_DONE && claimed)
        fprintf(
            stderr,
            "outlog export: %s messages are on their way, and would be delivered again: stop the"
            " relays before the last export of a move\n",
            ol_cli_thousands(claimed, number));
    return status;
}

const struct ol_cli_command ol_command_export = {
    .name = "export",
    .summary = "the log as lines, for backup or another store",
    .help =
        "usage: outlog export [--output FILE] [--segments FOLDER]\n\n"
        "Writes everything a store holds as NDJSON to standard output or a file (compressed when it\n"
        "ends in .gz): events, messages and what became of them, effects, runs, sessions, consumers,\n"
        "idempotency records, configuration and the hashes of tokens; not the views of projections,\n"
        "which are built anew. With --segments into a folder of compressed files of 100,000 events\n"
        "each; a repeat adds only the events that came since. Everything keeps its id. For a move, stop\n"
        "writers and relays before the last export.\n\n"
        "  outlog export > log.ndjson\n"
        "  outlog export --segments /backup/log\n",
    .run = run,
};
