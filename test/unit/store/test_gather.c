/* test_gather.c: a file whose writes are gathered is the file it would be without.
 *
 * Beneath lies SQLite's own VFS, with a switch that makes its writes fail and a count of them. */
#include "store/gather.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

enum { MOST = 2 * 1024 * 1024, FRAME = 24 + 4096 };

/* --- the VFS beneath --- */

static sqlite3_vfs flaky_vfs, *unix_vfs;
static sqlite3_io_methods flaky_methods;
static int (*unix_write)(sqlite3_file *, const void *, int, sqlite3_int64);
static int writes;
static bool is_full, is_fragile;

static int count_write(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at)
{
    writes++;
    return is_full ? SQLITE_FULL : unix_write(file, data, bytes, at);
}

static int traits(sqlite3_file *file)
{
    (void)file;
    return is_fragile ? 0 : SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int open_flaky(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out)
{
    (void)vfs;
    int result = unix_vfs->xOpen(unix_vfs, name, file, flags, out);
    if (result != SQLITE_OK || !(flags & SQLITE_OPEN_WAL))
        return result;
    flaky_methods = *file->pMethods;
    unix_write = flaky_methods.xWrite;
    flaky_methods.xWrite = count_write;
    flaky_methods.xDeviceCharacteristics = traits;
    file->pMethods = &flaky_methods;
    return result;
}

static char folder[] = "/tmp/outlog-gather-XXXXXX", path[64], db_path[64];

static int set_up(void **state)
{
    FILE *file;
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/x-wal", folder);
    snprintf(db_path, sizeof db_path, "%s/x", folder); // a WAL takes its mode from it
    if (!(file = fopen(db_path, "w")) || fclose(file) != 0)
        return -1;
    unix_vfs = sqlite3_vfs_find(NULL);
    flaky_vfs = *unix_vfs;
    flaky_vfs.zName = "flaky";
    flaky_vfs.xOpen = open_flaky;
    return sqlite3_vfs_register(&flaky_vfs, 1);
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static sqlite3_file *open_wal(void)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(ol_gather_vfs());
    sqlite3_file *file = calloc(1, (size_t)vfs->szOsFile);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_WAL;
    assert_non_null(file);
    unlink(path);
    writes = 0;
    is_full = false;
    assert_int_equal(vfs->xOpen(vfs, path, file, flags, NULL), SQLITE_OK);
    return file;
}

static void close_wal(sqlite3_file *file)
{
    file->pMethods->xClose(file);
    free(file);
}

/* --- what it should be --- */

static unsigned char truth[MOST], seen[MOST];
static sqlite3_int64 truth_bytes;

static void write_both(sqlite3_file *file, sqlite3_int64 at, int bytes)
{
    for (int i = 0; i < bytes; i++)
        truth[at + i] = (unsigned char)rand();
    if (bytes == 24) // no transaction ends there
        memset(truth + at + 4, 0, 4);
    if (at > truth_bytes) // what is skipped is zeros
        memset(truth + truth_bytes, 0, (size_t)(at - truth_bytes));
    if (at + bytes > truth_bytes)
        truth_bytes = at + bytes;
    assert_int_equal(file->pMethods->xWrite(file, truth + at, bytes, at), SQLITE_OK);
}

static void compare_with_disk(void)
{
    FILE *disk = fopen(path, "rb");
    assert_non_null(disk);
    assert_int_equal(fread(seen, 1, MOST, disk), truth_bytes);
    fclose(disk);
    assert_memory_equal(seen, truth, (size_t)truth_bytes);
}

static void read_some(sqlite3_file *file)
{
    sqlite3_int64 at = truth_bytes ? rand() % truth_bytes : 0;
    int bytes = (int)(truth_bytes - at < FRAME ? truth_bytes - at : FRAME);
    assert_int_equal(file->pMethods->xRead(file, seen, bytes, at), SQLITE_OK);
    assert_memory_equal(seen, truth + at, (size_t)bytes);
}

/* One frame after the other, as a rule; sometimes over or across what was written, or far from it. */
static void write_some(sqlite3_file *file, sqlite3_int64 *next)
{
    int dice = rand() % 20, bytes = dice < 9 ? 24 : dice < 18 ? 4096 : 1 + rand() % 130000;
    sqlite3_int64 at = dice % 9 == 8 ? rand() % (truth_bytes + 9000) : *next;
    if (at + bytes > MOST)
        return;
    write_both(file, at, bytes);
    *next = at + bytes;
}

static void test_it_is_the_file_it_would_be(void **state)
{
    (void)state;
    sqlite3_file *file = open_wal();
    sqlite3_int64 next = 0, size;
    truth_bytes = 0;
    srand(7);
    for (int i = 0; i < 20000; i++) {
        int dice = rand() % 300;
        if (dice < 290) {
            write_some(file, &next);
        } else if (dice < 294) {
            read_some(file);
        } else if (dice < 296) {
            assert_int_equal(file->pMethods->xFileSize(file, &size), SQLITE_OK);
            assert_int_equal(size, truth_bytes);
        } else if (dice < 298) {
            next = truth_bytes = truth_bytes ? rand() % truth_bytes : 0;
            assert_int_equal(file->pMethods->xTruncate(file, truth_bytes), SQLITE_OK);
        } else {
            assert_int_equal(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
            compare_with_disk();
        }
    }
    close_wal(file);
    compare_with_disk();
}

static void write_frames(sqlite3_file *file, int count)
{
    truth_bytes = 0;
    for (int i = 0; i < count; i++) {
        write_both(file, truth_bytes, 24);
        write_both(file, truth_bytes, 4096);
    }
}

static void test_a_hundred_frames_are_a_few_writes(void **state)
{
    (void)state;
    sqlite3_file *file = open_wal();
    write_frames(file, 100);
    assert_int_equal(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
    compare_with_disk();
    assert_in_range(writes, 1, 4);
    close_wal(file);
}

static void test_what_could_not_be_written_is_told_and_tried_again(void **state)
{
    (void)state;
    sqlite3_file *file = open_wal();
    sqlite3_int64 size;
    write_frames(file, 10);
    is_full = true;
    assert_int_equal(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_FULL);
    assert_int_equal(file->pMethods->xRead(file, seen, 24, 0), SQLITE_FULL);
    assert_int_equal(file->pMethods->xFileSize(file, &size), SQLITE_FULL);
    assert_int_equal(file->pMethods->xWrite(file, truth, 24, MOST), SQLITE_FULL); // elsewhere
    is_full = false;
    write_both(file, truth_bytes, 4096);
    assert_int_equal(file->pMethods->xSync(file, SQLITE_SYNC_NORMAL), SQLITE_OK);
    compare_with_disk();
    close_wal(file);
}

static void test_nothing_is_kept_where_a_write_may_damage_its_neighbours(void **state)
{
    (void)state;
    is_fragile = true;
    sqlite3_file *file = open_wal();
    write_frames(file, 10);
    compare_with_disk();
    assert_int_equal(writes, 20);
    close_wal(file);
    is_fragile = false;
}

/* --- under SQLite --- */

static void run(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", sql, message);
}

static void expect(sqlite3 *db, const char *sql, const char *wanted)
{
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(statement, 0), wanted);
    sqlite3_finalize(statement);
}

static sqlite3 *open_db(const char *vfs)
{
    sqlite3 *db;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    assert_int_equal(sqlite3_open_v2(db_path, &db, flags, vfs), SQLITE_OK);
    run(db, "pragma journal_mode=wal; pragma synchronous=full; pragma cache_size=10;"
            "create table if not exists t (a integer primary key, b text);"
            "create index if not exists i on t (b)");
    return db;
}

#define MANY                                                                          \
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 3000) " \
    "insert into t (b) select hex(randomblob(200)) from n;"

static void test_transactions_larger_than_the_cache(void **state)
{
    (void)state;
    sqlite3 *db = open_db(ol_gather_vfs()), *other = open_db(NULL);
    run(db, "begin;" MANY);
    expect(other, "select count(*) from t", "0");
    run(db, "savepoint s;" MANY "rollback to s; update t set b = 'x' || b; commit");
    expect(other, "select count(*) from t where b like 'x%'", "3000");
    run(db, "begin;" MANY "rollback; begin;" MANY "commit; pragma wal_checkpoint(truncate);" MANY);
    expect(other, "select count(*) from t", "9000");
    expect(other, "pragma integrity_check", "ok");
    run(other, "delete from t");
    expect(db, "select count(*) from t", "0");
    sqlite3_close(other);
    sqlite3_close(db);
}

static void copy_file(const char *from, const char *suffix)
{
    char command[256];
    snprintf(command, sizeof command, "cp %s%s %s/copy%s", from, suffix, folder, suffix);
    assert_int_equal(system(command), 0);
}

/* What lies on the disk after each commit is what a process that is killed there leaves behind. */
static void expect_on_disk(const char *wanted)
{
    char copy[64];
    sqlite3 *db;
    copy_file(db_path, "");
    copy_file(db_path, "-wal");
    snprintf(copy, sizeof copy, "%s/copy", folder);
    assert_int_equal(sqlite3_open_v2(copy, &db, SQLITE_OPEN_READWRITE, "unix"), SQLITE_OK);
    expect(db, "select count(*) from t", wanted);
    expect(db, "pragma integrity_check", "ok");
    sqlite3_close(db);
}

static void test_a_commit_is_in_the_file_whether_it_is_synced_or_not(void **state)
{
    (void)state;
    static const char *modes[] = {"pragma synchronous=full", "pragma synchronous=normal",
                                  "pragma synchronous=off"};
    for (int i = 0; i < 3; i++) {
        sqlite3 *db = open_db(ol_gather_vfs()), *other = open_db(NULL);
        run(db, modes[i]);
        run(db, "delete from t; insert into t (b) values ('one')");
        expect(other, "select count(*) from t", "1");
        expect_on_disk("1");
        run(db, "begin;" MANY "update t set b = 'x' || b; update t set b = 'y' || b; commit");
        expect(other, "select count(*) from t where b like 'yx%'", "3001");
        expect_on_disk("3001");
        sqlite3_close(other);
        sqlite3_close(db);
    }
}

static void test_a_full_disk_is_a_refused_transaction(void **state)
{
    (void)state;
    sqlite3 *db = open_db(ol_gather_vfs()), *other = open_db(NULL);
    run(db, "delete from t; insert into t (b) values ('first')");
    is_full = true;
    assert_int_equal(sqlite3_exec(db, "insert into t (b) values ('second')", NULL, NULL, NULL),
                     SQLITE_FULL);
    assert_int_equal(sqlite3_exec(db, MANY, NULL, NULL, NULL), SQLITE_FULL);
    is_full = false;
    expect(other, "select count(*) from t", "1");
    run(db, MANY);
    expect(other, "select count(*) from t", "3001");
    expect(other, "pragma integrity_check", "ok");
    sqlite3_close(other);
    sqlite3_close(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_the_file_it_would_be),
        cmocka_unit_test(test_a_hundred_frames_are_a_few_writes),
        cmocka_unit_test(test_what_could_not_be_written_is_told_and_tried_again),
        cmocka_unit_test(test_nothing_is_kept_where_a_write_may_damage_its_neighbours),
        cmocka_unit_test(test_transactions_larger_than_the_cache),
        cmocka_unit_test(test_a_commit_is_in_the_file_whether_it_is_synced_or_not),
        cmocka_unit_test(test_a_full_disk_is_a_refused_transaction),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
