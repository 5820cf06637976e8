/* gather.c: a VFS before SQLite's own. */
#include "store/gather.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <string.h>

enum { FRAME_HEAD = 24, ROOM = 120 * 1024 }; // SQLite's own VFS takes less than 128 KB at a time

/* A WAL file. SQLite's own file lies behind it. */
struct gathering {
    sqlite3_file base; /* first */
    bool is_direct;    /* G2: nothing may be kept */
    bool is_ending;    /* G2: a transaction ends here */
    sqlite3_int64 at;  /* where in the file `data` belongs */
    int bytes;
    char *data; /* NULL: nothing was written yet */
};

static sqlite3_vfs *beneath;

static struct gathering *own(sqlite3_file *file)
{
    return (struct gathering *)file;
}

static sqlite3_file *inner(sqlite3_file *file)
{
    return (sqlite3_file *)(own(file) + 1);
}

static int flush(sqlite3_file *file)
{
    struct gathering *kept = own(file);
    int result = SQLITE_OK;
    if (kept->bytes)
        result = inner(file)->pMethods->xWrite(inner(file), kept->data, kept->bytes, kept->at);
    if (result == SQLITE_OK)
        kept->bytes = 0;
    return result;
}

/* Whether these bytes touch what is kept, or follow it, and there is room for them. */
static bool fits(const struct gathering *kept, int bytes, sqlite3_int64 at)
{
    return kept->bytes && at >= kept->at && at <= kept->at + kept->bytes &&
           at + bytes - kept->at <= ROOM;
}

/* In the head of the frame that ends a transaction stands how large the database is then; in others, 0. */
static void look_at_head(struct gathering *kept, const unsigned char *head)
{
    kept->is_ending = head[4] || head[5] || head[6] || head[7];
}

static int put(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
    struct gathering *kept = own(file);
    if (!fits(kept, bytes, at)) {
        int result = flush(file);
        if (result != SQLITE_OK)
            return result;
        if (!kept->data && !kept->is_direct)
            kept->data = sqlite3_malloc(ROOM);
        if (!kept->data || bytes > ROOM)
            return inner(file)->pMethods->xWrite(inner(file), data, bytes, at);
        kept->at = at;
    }
    int end = (int)(at - kept->at) + bytes;
    memcpy(kept->data + (at - kept->at), data, (size_t)bytes);
    if (end > kept->bytes)
        kept->bytes = end;
    return SQLITE_OK;
}

static int gather(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
    if (bytes == FRAME_HEAD)
        look_at_head(own(file), data);
    int result = put(file, data, bytes, at);
    return result == SQLITE_OK && own(file)->is_ending ? flush(file) : result;
}

/* --- all else comes after what is kept --- */

static int close_file(sqlite3_file *file)
{
    int result = flush(file), closed = inner(file)->pMethods->xClose(inner(file));
    sqlite3_free(own(file)->data);
    return result == SQLITE_OK ? closed : result;
}

static int read_file(sqlite3_file *file, void *out, int bytes, sqlite3_int64 at)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xRead(inner(file), out, bytes, at) : result;
}

static int cut(sqlite3_file *file, sqlite3_int64 bytes)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xTruncate(inner(file), bytes) : result;
}

static int sync_file(sqlite3_file *file, int flags)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xSync(inner(file), flags) : result;
}

static int measure(sqlite3_file *file, sqlite3_int64 *out)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xFileSize(inner(file), out) : result;
}

static int lock(sqlite3_file *file, int level)
{
    return inner(file)->pMethods->xLock(inner(file), level);
}

static int unlock(sqlite3_file *file, int level)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xUnlock(inner(file), level) : result;
}

static int is_reserved(sqlite3_file *file, int *out)
{
    return inner(file)->pMethods->xCheckReservedLock(inner(file), out);
}

static int control(sqlite3_file *file, int what, void *argument)
{
    int result = flush(file);
    return result == SQLITE_OK ? inner(file)->pMethods->xFileControl(inner(file), what, argument)
                               : result;
}

static int sector(sqlite3_file *file)
{
    return inner(file)->pMethods->xSectorSize(inner(file));
}

static int traits(sqlite3_file *file)
{
    return inner(file)->pMethods->xDeviceCharacteristics(inner(file));
}

/* --- the VFS --- */

static const sqlite3_io_methods methods = {
    .iVersion = 1,
    .xClose = close_file,
    .xRead = read_file,
    .xWrite = gather,
    .xTruncate = cut,
    .xSync = sync_file,
    .xFileSize = measure,
    .xLock = lock,
    .xUnlock = unlock,
    .xCheckReservedLock = is_reserved,
    .xFileControl = control,
    .xSectorSize = sector,
    .xDeviceCharacteristics = traits,
};

/* Files of other kinds are SQLite's own from the first. */
static int open_file(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    if (!(flags & SQLITE_OPEN_WAL))
        return beneath->xOpen(beneath, name, file, flags, out);
    memset(file, 0, sizeof(struct gathering));
    int result = beneath->xOpen(beneath, name, inner(file), flags, out);
    if (!inner(file)->pMethods)
        return result;
    file->pMethods = &methods; // to be closed, also after an error
    own(file)->is_direct = result != SQLITE_OK ||
                           !(traits(file) & SQLITE_IOCAP_POWERSAFE_OVERWRITE);
    return result;
}

static sqlite3_vfs gathering_vfs;
static bool is_there;

static void begin(void)
{
    beneath = sqlite3_vfs_find(NULL);
    if (!beneath)
        return;
    gathering_vfs = *beneath; // what it does not do is done by the functions of the one beneath
    gathering_vfs.zName = "outlog";
    gathering_vfs.pNext = NULL;
    gathering_vfs.szOsFile = (int)sizeof(struct gathering) + beneath->szOsFile;
    gathering_vfs.xOpen = open_file;
    is_there = sqlite3_vfs_register(&gathering_vfs, 0) == SQLITE_OK;
}

const char *ol_gather_vfs(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, begin);
    return is_there ? gathering_vfs.zName : NULL;
}
