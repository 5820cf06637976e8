/* owner.c: the rows and files of owners. See owner.h for O1 to O3. */
#include "store/owner.h"

#include "base/clock.h"

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

int ol_owner_look(struct ol_owner *owner, struct ol_conn *conn, bool *found, outlog_err *err)
{
    int64_t now = ol_clock_boot_us();
    if (owner->is_by_lease || now < ol_owner_next_look(owner))
        return 0;
    owner->looked_at = now;
    if (now - owner->written_at >= WRITTEN_US && write_row(owner, conn, err) < 0)
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
    owner->peers = NULL;
    owner->peer_count = 0;
}
