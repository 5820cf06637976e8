/* file.c: files by device and inode, one entry per file that this process has open. */
#include "store/sqlite/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ol_sqlite_file {
    struct ol_sqlite_file *next;
    char *path; /* absolute */
    dev_t device;
    ino_t inode;
    atomic_ullong wal_inode; /* 0: not known */
    int users;
    int readers; /* of them, those that have the WAL open */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ol_sqlite_file *files;

static int refuse_moved(const struct ol_sqlite_conn *conn, const char *what, outlog_err *err)
{
    return ol_fail(err, OUTLOG_UNAVAILABLE,
                   "%s: %s while it was open; nothing was stored: put it back, or restart outlog "
                   "on the file that is there now",
                   conn->base.name, what);
}

static int check_same(const struct ol_sqlite_conn *conn, const struct ol_sqlite_file *file,
                      const struct stat *found, outlog_err *err)
{
    return found->st_ino == file->inode && found->st_dev == file->device
               ? 0
               : refuse_moved(conn, "the file was replaced by another one", err);
}

/* A connection that has read the file has its WAL open, and as long as somebody has, the WAL is the
 * same file. The last one that closes it deletes it, also while another one is being opened. With
 * the lock held, but for a reader. */
static int check_wal(struct ol_sqlite_conn *conn, outlog_err *err)
{
    char wal[PATH_MAX];
    struct stat found;
    unsigned long long known = atomic_load(&conn->file->wal_inode);
    snprintf(wal, sizeof wal, "%s-wal",
             conn->db ? sqlite3_db_filename(conn->db, "main") : conn->path);
    if (stat(wal, &found) < 0)
        return known ? refuse_moved(conn, "its -wal file was deleted or renamed", err) : 0;
    if (!known && conn->is_reader)
        atomic_store(&conn->file->wal_inode, found.st_ino);
    return !known || found.st_ino == known
               ? 0
               : refuse_moved(conn, "its -wal file was replaced by another one", err);
}

/* The first check after SQLite has read the file. */
static int join_readers(struct ol_sqlite_conn *conn, outlog_err *err)
{
    pthread_mutex_lock(&lock);
    conn->is_reader = true;
    conn->file->readers++;
    int result = check_wal(conn, err);
    pthread_mutex_unlock(&lock);
    return result;
}

/* --- opening --- */

static char *make_absolute(const char *path)
{
    char folder[PATH_MAX], *out;
    if (*path == '/')
        return strdup(path);
    if (!getcwd(folder, sizeof folder) || asprintf(&out, "%s/%s", folder, path) < 0)
        return NULL;
    return out;
}

/* If it cannot be created, SQLite's own attempt gives the error. */
static void create_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
}

/* With the lock held. *out stays NULL for what is no file, which SQLite refuses or keeps in memory.
 */
static int find_file(struct ol_sqlite_conn *conn, struct ol_sqlite_file **out, outlog_err *err)
{
    struct stat found;
    struct ol_sqlite_file *file = files;
    while (file && strcmp(file->path, conn->path) != 0)
        file = file->next;
    if (!file)
        create_file(conn->path);
    bool is_there = stat(conn->path, &found) == 0;
    if (file) {
        *out = file;
        return is_there ? check_same(conn, file, &found, err)
                        : refuse_moved(conn, "the file was deleted or renamed", err);
    }
    if (!is_there || !S_ISREG(found.st_mode))
        return 0;
    if (!(file = calloc(1, sizeof *file)) || !(file->path = strdup(conn->path))) {
        free(file);
        return ol_no_memory(err);
    }
    file->device = found.st_dev;
    file->inode = found.st_ino;
    file->next = files;
    *out = files = file;
    return 0;
}

/* Inodes are reused, so the time of birth belongs to the name of a file. */
static void name_place(struct ol_sqlite_conn *conn)
{
    struct statx found;
    if (statx(AT_FDCWD, conn->path, 0, STATX_INO | STATX_BTIME, &found) == 0)
        snprintf(conn->base.place, sizeof conn->base.place, "%llu.%lld.%u",
                 (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
                 found.stx_btime.tv_nsec);
}

int ol_sqlite_file_open(struct ol_sqlite_conn *conn, outlog_err *err)
{
    struct ol_sqlite_file *file = NULL;
    if (*conn->path == ':') // in memory
        return 0;
    char *absolute = make_absolute(conn->path);
    if (!absolute)
        return ol_no_memory(err);
    free(conn->path);
    conn->path = absolute;
    pthread_mutex_lock(&lock);
    int result = find_file(conn, &file, err);
    if (result == 0 && file) {
        file->users++;
        conn->file = file;
    }
    if (result == 0 && file)
        result = check_wal(conn, err);
    pthread_mutex_unlock(&lock);
    if (result == 0 && file)
        name_place(conn);
    return result;
}

void ol_sqlite_file_leave(struct ol_sqlite_conn *conn)
{
    if (!conn->is_reader)
        return;
    conn->is_reader = false;
    pthread_mutex_lock(&lock);
    if (--conn->file->readers == 0)
        atomic_store(&conn->file->wal_inode, 0);
    pthread_mutex_unlock(&lock);
}

void ol_sqlite_file_close(struct ol_sqlite_conn *conn)
{
    struct ol_sqlite_file *file = conn->file, **at = &files;
    if (!file)
        return;
    conn->file = NULL;
    pthread_mutex_lock(&lock);
    if (--file->users == 0) {
        while (*at != file)
            at = &(*at)->next;
        *at = file->next;
        free(file->path);
        free(file);
    }
    pthread_mutex_unlock(&lock);
}

/* --- checking --- */

int ol_sqlite_file_check(struct ol_sqlite_conn *conn, bool is_writing, outlog_err *err)
{
    struct stat found;
    if (!conn->file)
        return 0;
    if (stat(conn->path, &found) < 0)
        return refuse_moved(conn, "the file was deleted or renamed", err);
    if (check_same(conn, conn->file, &found, err) < 0)
        return -1;
    if (is_writing && !(found.st_mode & 0222))
        return ol_fail(err, OUTLOG_READ_ONLY,
                       "%s: the file was made read-only while it was open; nothing was stored",
                       conn->base.name);
    return conn->is_reader ? check_wal(conn, err) : join_readers(conn, err);
}
