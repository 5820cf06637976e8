/* owner.c: the rows and files of owners. See owner.h for O1 to O3. */
#include "store/owner.h"

#include "base/clock.h"
#include "base/random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LOOK_US = 250000,       /* between two looks at the files */
    PEERS_US = 1000000,     /* between two reads of the rows */
    WRITTEN_US = 600000000, /* after this time a row is written again, so that it is not purged */
};
#define PURGE_SEEN_US (24 * 3600 * INT64_C(1000000))
#define PURGE_DIED_US (600 * INT64_C(1000000)) /* nobody needs a note longer than the lease */

void ol_owner_init(struct ol_owner *owner, const char *kind, const char *name, int64_t lease_us,
                   int64_t margin_us)
{
    *owner = (struct ol_owner){.kind = kind,
                               .name = name,
                               .lease_us = lease_us,
                               .margin_us = margin_us ? margin_us : ol_owner_margin_us(lease_us),
                               .listed_at = INT64_MIN / 2,
                               .looked_at = INT64_MIN / 2};
    owner->file.fd = -1;
    ol_uuid_make(owner->run);
}

/* Is `relay: {takeover: lease}` set? */
static int read_takeover(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_SETTING_GET, OL_PARAMS(ol_value_text("relay.takeover")), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    owner->is_by_lease = got > 0 && strcmp(ol_rows_text(&rows, 0, NULL), "\"lease\"") == 0;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static void open_file(struct ol_owner *owner, const struct ol_conn *conn)
{
    if (!conn->store->run_folder(conn, owner->folder, sizeof owner->folder)) {
        owner->folder[0] = '\0';
        return;
    }
    mkdir(owner->folder, 0700);
    if (ol_run_file_open(&owner->file, owner->folder, owner->run))
        ol_run_file_sweep(owner->folder);
    else
        owner->folder[0] = '\0';
}

/* Write the row, or write it again (O2). */
static int write_row(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    const struct ol_run_file *file = &owner->file;
    bool has_file = file->fd >= 0;
    ol_run_file_touch(file);
    owner->written_at = ol_clock_boot_us();
    return ol_store_exec(conn, OL_Q_OWNER_PUT,
                         OL_PARAMS(ol_value_text(owner->run), ol_value_text(owner->kind),
                                   ol_value_text(owner->name), ol_value_int(owner->lease_us),
                                   ol_value_int(owner->margin_us),
                                   ol_value_text(has_file ? file->boot_id : NULL),
                                   has_file ? ol_value_int(file->device) : ol_value_text(NULL),
                                   has_file ? ol_value_int(file->inode) : ol_value_text(NULL)),
                         NULL, err);
}

static int purge_rows(const struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    int64_t died_us = owner->lease_us * 2 > PURGE_DIED_US ? owner->lease_us * 2 : PURGE_DIED_US;
    return ol_store_exec(conn, OL_Q_OWNERS_PURGE,
                         OL_PARAMS(ol_value_int(died_us), ol_value_int(PURGE_SEEN_US)), NULL, err);
}

int ol_owner_open(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    if (read_takeover(owner, conn, err) < 0)
        return -1;
    if (owner->is_by_lease)
        return 0;
    open_file(owner, conn);
    return write_row(owner, conn, err) < 0 ? -1 : purge_rows(owner, conn, err);
}

/* --- the session's lock --- */

/* 28493 in the upper 16 bits: a key that nothing else of ours uses. */
static int64_t draw_key(void)
{
    uint64_t key;
    ol_random_bytes(&key, sizeof key);
    return (int64_t)(UINT64_C(28493) << 48 | (key >> 16 | 1));
}

/* *key = 0: it could not be locked, so only the lease counts. */
static int lock_key(struct ol_conn *conn, int64_t *key, int64_t *pid, outlog_err *err)
{
    struct ol_rows rows;
    *key = draw_key();
    if (ol_store_query(conn, OL_Q_OWNER_LOCK, OL_PARAMS(ol_value_int(*key)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got <= 0 || !ol_rows_int(&rows, 0))
        *key = 0;
    *pid = got > 0 ? ol_rows_int(&rows, 1) : 0;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

int ol_owner_join_session(struct ol_owner *owner, struct ol_conn *conn, bool *is_new,
                          outlog_err *err)
{
    uint64_t session = conn->session;
    int64_t key = 0, pid = 0;
    *is_new = false;
    if (!owner->sends || owner->is_by_lease || !conn->store->has_sessions ||
        owner->session == session)
        return 0;
    if (!conn->is_pooled && lock_key(conn, &key, &pid, err) < 0)
        return -1;
    if (ol_store_exec(conn, OL_Q_OWNER_KEY,
                      OL_PARAMS(ol_value_text(owner->run),
                                key ? ol_value_int(key) : ol_value_text(NULL),
                                ol_value_int(ol_owner_confidence_us(owner->lease_us))),
                      NULL, err) < 0)
        return -1;
    owner->session = session;
    owner->lock_key = key;
    owner->backend_pid = pid;
    owner->beat_at = 0;
    *is_new = true;
    return 0;
}

void ol_owner_forget_session(struct ol_owner *owner)
{
    owner->session = 0;
}

/* How much the wall clock is ahead. It runs on while a machine is paused and the boot clock does
 * not. */
static int64_t find_offset(int64_t now)
{
    return ol_clock_wall_us() - now;
}

int ol_owner_beat(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    int64_t pid, now = ol_clock_boot_us(), confidence = ol_owner_confidence_us(owner->lease_us);
    if (!owner->lock_key || now < owner->beat_at || conn->session != owner->session)
        return 0;
    int64_t offset = find_offset(now);
    if (ol_store_number(conn, OL_Q_OWNER_BEAT, OL_NO_PARAMS, &pid, err) < 0)
        return -1;
    owner->beat_at = now + confidence / 3;
    if (pid == owner->backend_pid && conn->session == owner->session) {
        owner->confident_until = now + confidence; // from before it was sent
        owner->clock_offset = offset;
    }
    return 0;
}

bool ol_owner_is_confident(const struct ol_owner *owner, int64_t now)
{
    int64_t half = ol_owner_confidence_us(owner->lease_us) / 2;
    return !owner->lock_key ||
           (now < owner->confident_until && find_offset(now) - owner->clock_offset < half);
}

/* --- others --- */

static int list_peers(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    size_t count = 0, capacity = 0;
    int more;
    if (ol_store_query(conn, OL_Q_OWNER_LIST,
                       OL_PARAMS(ol_value_text(owner->file.boot_id), ol_value_text(owner->run)),
                       &rows, err) < 0)
        return -1;
    free(owner->peers);
    owner->peers = NULL;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            struct ol_owner_peer *wider = realloc(owner->peers, capacity * sizeof *wider);
            if (!wider) {
                more = ol_no_memory(err);
                break;
            }
            owner->peers = wider;
        }
        struct ol_owner_peer *peer = &owner->peers[count++];
        *peer =
            (struct ol_owner_peer){.device = ol_rows_int(&rows, 1), .inode = ol_rows_int(&rows, 2)};
        snprintf(peer->run, sizeof peer->run, "%s", ol_rows_text(&rows, 0, NULL));
    }
    ol_rows_end(&rows);
    owner->peer_count = count;
    return more;
}

/* It no longer counts for the fair share either. The file has served once the note is stored. */
static int note_death(struct ol_owner *owner, struct ol_conn *conn, const char *run,
                      outlog_err *err)
{
    const struct ol_value *who = OL_PARAMS(ol_value_text(run));
    if (conn->store->begin(conn, err) < 0)
        return -1;
    if (ol_store_exec(conn, OL_Q_OWNER_DIED, who, NULL, err) < 0 ||
        ol_store_exec(conn, OL_Q_RELAY_REMOVE, who, NULL, err) < 0 ||
        conn->store->commit(conn, err) < 0) {
        if (conn->in_transaction)
            conn->store->rollback(conn);
        return -1;
    }
    ol_run_file_forget(owner->folder, run);
    return 0;
}

static int look_at_files(struct ol_owner *owner, struct ol_conn *conn, bool *found, outlog_err *err)
{
    for (size_t i = 0; i < owner->peer_count; i++) {
        const struct ol_owner_peer *peer = &owner->peers[i];
        if (!ol_run_file_is_dead(owner->folder, peer->run, peer->device, peer->inode))
            continue;
        if (note_death(owner, conn, peer->run, err) < 0)
            return -1;
        *found = true;
    }
    return 0;
}

static int64_t find_free_since(const struct ol_owner *owner, const char *run, int64_t key,
                               int64_t now)
{
    for (size_t i = 0; i < owner->suspect_count; i++)
        if (owner->suspects[i].lock_key == key && strcmp(owner->suspects[i].run, run) == 0)
            return owner->suspects[i].free_at;
    return now;
}

/* Whose lock is free now, and since when we know it. A key that was free once stays free: a new
 * session has another one (rule 27). */
static int list_suspects(struct ol_owner *owner, struct ol_conn *conn, outlog_err *err)
{
    enum { SUSPECTS_MAX = 256 };
    struct ol_owner_suspect *found = calloc(SUSPECTS_MAX, sizeof *found);
    struct ol_rows rows;
    size_t count = 0;
    int more;
    if (!found)
        return ol_no_memory(err);
    if (ol_store_query(conn, OL_Q_OWNER_FREE, OL_PARAMS(ol_value_text(owner->run)), &rows, err) <
        0) {
        free(found);
        return -1;
    }
    int64_t now = ol_clock_boot_us(); // after the answer (rule 26)
    while ((more = ol_rows_next(&rows, err)) > 0 && count < SUSPECTS_MAX) {
        struct ol_owner_suspect *suspect = &found[count++];
        snprintf(suspect->run, sizeof suspect->run, "%s", ol_rows_text(&rows, 0, NULL));
        suspect->lock_key = ol_rows_int(&rows, 1);
        suspect->confidence_us = ol_rows_int(&rows, 2);
        suspect->free_at = find_free_since(owner, suspect->run, suspect->lock_key, now);
    }
    ol_rows_end(&rows);
    free(owner->suspects);
    owner->suspects = found;
    owner->suspect_count = count;
    return more < 0 ? -1 : 0;
}

static int look_at_sessions(struct ol_owner *owner, struct ol_conn *conn, bool *found,
                            outlog_err *err)
{
    int64_t now = ol_clock_boot_us();
    if (!owner->sends || !conn->store->has_sessions || conn->is_pooled ||
        now - owner->suspected_at < ol_owner_confidence_us(owner->lease_us) / 3)
        return 0;
    owner->suspected_at = now;
    if (list_suspects(owner, conn, err) < 0)
        return -1;
    now = ol_clock_boot_us();
    for (size_t i = 0; i < owner->suspect_count; i++) {
        const struct ol_owner_suspect *suspect = &owner->suspects[i];
        if (now - suspect->free_at < ol_owner_grace_us(suspect->confidence_us))
            continue;
        const struct ol_value run = ol_value_text(suspect->run);
        if (ol_store_exec(conn, OL_Q_OWNER_LOST, OL_PARAMS(run, ol_value_int(suspect->lock_key)),
                          NULL, err) < 0 ||
            ol_store_exec(conn, OL_Q_RELAY_REMOVE, OL_PARAMS(run), NULL, err) < 0)
            return -1;
        *found = true;
    }
    return 0;
}

int ol_owner_look(struct ol_owner *owner, struct ol_conn *conn, bool *found, outlog_err *err)
{
    int64_t now = ol_clock_boot_us();
    if (owner->is_by_lease || now < ol_owner_next_look(owner))
        return 0;
    owner->looked_at = now;
    if (now - owner->written_at >= WRITTEN_US && write_row(owner, conn, err) < 0)
        return -1;
    if (look_at_sessions(owner, conn, found, err) < 0)
        return -1;
    if (!owner->folder[0])
        return 0;
    if (now - owner->listed_at >= PEERS_US) {
        if (list_peers(owner, conn, err) < 0)
            return -1;
        owner->listed_at = now;
    }
    return look_at_files(owner, conn, found, err);
}

int64_t ol_owner_next_look(const struct ol_owner *owner)
{
    return owner->is_by_lease ? INT64_MAX : owner->looked_at + LOOK_US;
}

/* --- the end --- */

void ol_owner_remove(struct ol_owner *owner, struct ol_conn *conn)
{
    outlog_err ignored; // a row that stays is purged
    if (!owner->is_by_lease)
        ol_store_exec(conn, OL_Q_OWNER_REMOVE, OL_PARAMS(ol_value_text(owner->run)), NULL,
                      &ignored);
    ol_run_file_remove(&owner->file);
}

void ol_owner_close(struct ol_owner *owner)
{
    ol_run_file_close(&owner->file);
    free(owner->peers);
    free(owner->suspects);
    owner->peers = NULL;
    owner->suspects = NULL;
    owner->peer_count = owner->suspect_count = 0;
}
