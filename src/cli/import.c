/* import.c: outlog import: loads an export into a new store. */
#include "cli/cli.h"

#include "export/import.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { IMPORT_CHUNK_BYTES = 64 * 1024 };

/* Read the next line, without its line feed. Returns 1, 0 at the end of the file, or -1. */
static int read_line(gzFile file, struct ol_buf *line, outlog_err *err)
{
    char chunk[IMPORT_CHUNK_BYTES];
    int why;
    ol_buf_reset(line);
    while (gzgets(file, chunk, sizeof chunk)) {
        ol_buf_text(line, chunk);
        if (line->failed)
            return ol_no_memory(err);
        if (line->bytes && line->data[line->bytes - 1] == '\n') {
            line->data[--line->bytes] = '\0';
            return 1;
        }
    }
    const char *text = gzerror(file, &why);
    if (why != Z_OK && why != Z_STREAM_END)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "cannot be read: %s", text);
    return line->bytes ? 1 : 0;
}

static int import_file(struct ol_import *import, const char *path, outlog_err *err)
{
    bool is_stdin = strcmp(path, "-") == 0;
    gzFile file = is_stdin ? gzdopen(0, "rb") : gzopen(path, "rb"); // zlib also reads plain text
    struct ol_buf line = {0};
    long number = 0;
    int more = -1;

    if (!file)
        return ol_fail(err, errno == ENOENT ? OUTLOG_NOT_FOUND : OUTLOG_INVALID_FIELD,
                       "cannot read %.200s: %s; check the path", path, strerror(errno));
    while ((more = read_line(file, &line, err)) > 0) {
        number++;
        if (line.bytes && ol_import_line(import, line.data, line.bytes, err) < 0) {
            more = -1;
            break;
        }
    }
    if (more < 0)
        ol_err_prefix(err, "%s: line %ld", is_stdin ? "standard input" : path, number);
    ol_buf_clear(&line);
    gzclose(file);
    return more;
}

/* Import the segments in the order of their names; state.ndjson.gz sorts after them. */
static int import_folder(struct ol_import *import, const char *folder, outlog_err *err)
{
    struct dirent **files;
    char path[1400];
    int count = scandir(folder, &files, NULL, alphasort), result = 0;
    if (count < 0)
        return ol_fail(err, OUTLOG_STORE_ERROR, "%s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        const char *name = files[i]->d_name;
        size_t bytes = strlen(name);
        bool is_part = bytes > 10 && strcmp(name + bytes - 10, ".ndjson.gz") == 0;
        snprintf(path, sizeof path, "%.1000s/%.255s", folder, name);
        if (is_part && result == 0)
            result = import_file(import, path, err);
        free(files[i]);
    }
    free(files);
    return result;
}

static int run_import(struct ol_cli *cli)
{
    const struct ol_option table[] = {{0}};
    struct ol_import *import = NULL;
    struct stat info;
    int64_t count = 0;
    char number[32];
    outlog_err err;

    int status = ol_cli_options(cli, table);
    if (status)
        return status;
    if (cli->argc != 1)
        return ol_cli_usage("import takes FILE, FOLDER, or - for standard input");
    const char *path = cli->argv[0];
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    outlog *log = ol_cli_open(cli);
    if (!log)
        return OL_EXIT_FAILED;
    if (ol_import_open(log, &import, &err) < 0 ||
        (is_folder ? import_folder(import, path, &err) : import_file(import, path, &err)) < 0 ||
        ol_import_finish(import, &count, &err) < 0)
        status = ol_cli_report(&err);
    ol_import_close(import);
    outlog_close(log);
    if (status == OL_EXIT_DONE)
        fprintf(stderr, "outlog import: %s events\n", ol_cli_thousands(count, number));
    return status;
}

const struct ol_cli_command ol_command_import = {
    .name = "import",
    .summary = "load an export into a new store",
    .help =
        "usage: outlog import FILE|FOLDER|-\n\n"
        "Loads what `outlog export` wrote, compressed or not, into a store that `outlog init` has just\n"
        "created. Everything keeps its id, so a repeated request is still recognised after a move. After\n"
        "an interruption run the import again on the same store. Do not append to it meanwhile.\n\n"
        "  outlog import backup.ndjson.gz --store sqlite:new.db\n"
        "  outlog --store sqlite:old.db export | outlog --store postgres://… import -\n",
    .run = run_import,
};
