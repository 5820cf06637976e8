/* shutdown.c: see shutdown.h. */
#include "store/postgres/shutdown.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PATIENCE_MS = 2000, AGAIN_MS = 100, LOOK_MS = 500 };

/* Somebody who connects, or asks whether the server is there. */
struct call {
    char *url;
    PGconn *pg;
    pthread_t thread;
    bool is_question, is_here; /* a question: was it answered? */
    struct ol_buf pids, idle;  /* it asks for whom of these its server does nothing: "1,2" (F3) */
    struct ol_buf dead;        /* and whose transactions to end (F5) */
    char host[128];            /* and port, who answered */
    bool is_hasty;             /* it began when the process was asked to end */
    bool is_done;
    struct call *next; /* of those that were left behind */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news; /* it begins, a call is done, the store is given up, the process ends */
    sem_t begun;
    char *store;
    pthread_t watch;
    struct ol_tracked_conn *lines;
    struct call *left; /* who nobody waits for until the end */
    struct ol_buf
        dead; /* the watch's own: who served the lines that it cut, until somebody was told */
    bool is_ending;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool is_prepared, is_begun, is_over;

/* --- making connections --- */

/* Defaults first: what the URL says comes later and wins, except over `patience`. */
static PGconn *connect_to(const char *url, const char *patience)
{
    const char *attributes = strchr(url, ',') ? "read-write" : "any"; // of several hosts
    // clang-format off
    const char *keys[] = {"fallback_application_name", "connect_timeout", "keepalives_idle",
                          "keepalives_interval", "keepalives_count", "tcp_user_timeout",
                          "target_session_attrs", "client_encoding", "dbname",
                          patience ? "connect_timeout" : NULL, NULL};
    const char *values[] = {"outlog", "10", "5", "5", "3", "20000", attributes, "UTF8", url,
                            patience, NULL};
    // clang-format on
    return PQconnectdbParams(keys, values, 1);
}

/* Which of these processes do nothing but wait for their client, or are none. */
static void find_idle(PGconn *pg, const char *pids, struct ol_buf *idle)
{
    static const char question[] =
        "select p from unnest(string_to_array($1, ',')::int[]) p " // lint: sql
        "left join pg_catalog.pg_stat_activity a on a.pid = p "    // lint: sql
        "where a.pid is null or a.wait_event_type = 'Client'";     // lint: sql
    PGresult *result = PQexecParams(pg, question, 1, NULL, &pids, NULL, NULL, 0);
    for (int i = 0; i < PQntuples(result); i++)
        ol_buf_print(idle, ",%s,", PQgetvalue(result, i, 0));
    PQclear(result);
}

/* F5. Only what has stood still since before its line was cut: numbers of processes are used again.
 */
static void end_dead(PGconn *pg, const char *pids)
{
    static const char order[] = "select pg_catalog.pg_terminate_backend(a.pid) " // lint: sql
                                "from pg_catalog.pg_stat_activity a "
                                "where a.pid = any (string_to_array($1, ',')::int[]) " // lint: sql
                                "and a.state like 'idle in transaction%' "             // lint: sql
                                "and a.state_change < now() - interval '1 second'";    // lint: sql
    PQclear(PQexecParams(pg, order, 1, NULL, &pids, NULL, NULL, 0));
}

static void write_host(const PGconn *pg, char out[128])
{
    snprintf(out, 128, "%.100s:%.20s", PQhost(pg), PQport(pg));
}

/* A server that has no place for us, or does not know us, is there all the same. */
static bool is_here(struct call *question)
{
    PGconn *pg = connect_to(question->url, "2");
    bool is_connected = PQstatus(pg) == CONNECTION_OK;
    PGresult *result = is_connected ? PQexec(pg, "")
                                    : NULL; // a pooler may answer for a server that is away
    bool answers = PQresultStatus(result) == PGRES_EMPTY_QUERY;
    PQclear(result);
    if (answers && question->pids.bytes)
        find_idle(pg, question->pids.data, &question->idle);
    if (answers && question->dead.bytes)
        end_dead(pg, question->dead.data);
    if (answers)
        write_host(pg, question->host);
    PQfinish(pg);
    return is_connected ? answers : PQping(question->url) == PQPING_OK;
}

static void free_call(struct call *call)
{
    PQfinish(call->pg);
    ol_buf_clear(&call->pids);
    ol_buf_clear(&call->idle);
    ol_buf_clear(&call->dead);
    free(call->url);
    free(call);
}

static void *run_call(void *argument)
{
    struct call *call = argument;
    if (call->is_question)
        call->is_here = is_here(call);
    else
        call->pg = connect_to(call->url, call->is_hasty ? "2" : NULL);
    pthread_mutex_lock(&all.lock);
    call->is_done = true;
    pthread_cond_broadcast(&all.news);
    pthread_mutex_unlock(&all.lock);
    return NULL;
}

static struct timespec after_ms(int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += ms % 1000 * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return until;
}

/* Not where several hosts may be there at a time, each with its own processes. */
static bool can_tell(void)
{
    return !strchr(all.store, ',') || !strstr(all.store, "target_session_attrs");
}

/* Who serves us. */
static void name_lines(struct ol_buf *out)
{
    pthread_mutex_lock(&all.lock);
    for (struct ol_tracked_conn *line = all.lines; line; line = line->next) {
        int pid = atomic_load(&line->pid);
        if (pid)
            ol_buf_print(out, "%s%d", out->bytes ? "," : "", pid);
    }
    pthread_mutex_unlock(&all.lock);
}

/* Start a call and wait for it, at most so long (0: as long as the store is not given up). NULL: it
 * was left, or never began. The caller frees it. */
static struct call *call_out(const char *url, bool is_question, int64_t most_ms)
{
    struct call *call = calloc(1, sizeof *call);

    if (!call || !(call->url = strdup(url))) {
        free(call);
        return NULL;
    }
    call->is_question = is_question;
    call->is_hasty = atomic_load(&is_begun);
    if (is_question && can_tell()) {
        name_lines(&call->pids);
        call->dead = all.dead;
        all.dead = (struct ol_buf){0};
    }
    if (pthread_create(&call->thread, NULL, run_call, call) != 0) {
        free_call(call);
        return NULL;
    }
    struct timespec until = after_ms(most_ms);
    int result = 0;
    pthread_mutex_lock(&all.lock);
    while (!call->is_done && !atomic_load(&is_over) && !(is_question && all.is_ending) &&
           call->is_hasty == atomic_load(&is_begun) && result != ETIMEDOUT)
        result = most_ms ? pthread_cond_timedwait(&all.news, &all.lock, &until)
                         : pthread_cond_wait(&all.news, &all.lock);
    bool is_done = call->is_done;
    if (!is_done) {
        call->next = all.left;
        all.left = call;
    }
    pthread_mutex_unlock(&all.lock);
    if (!is_done)
        return NULL;
    pthread_join(call->thread, NULL);
    return call;
}

PGconn *ol_shutdown_connect(const char *url)
{
    if (!atomic_load(&is_prepared))
        return connect_to(url, NULL);
    bool was_begun = atomic_load(&is_begun);
    struct call *call = atomic_load(&is_over) ? NULL : call_out(url, false, 0);
    if (!call && !was_begun && atomic_load(&is_begun)) // a silent host takes its time no longer
        return ol_shutdown_connect(url);
    if (!call)
        return NULL;
    PGconn *pg = call->pg;
    call->pg = NULL;
    free_call(call);
    return pg;
}

/* --- cutting them --- */

void ol_shutdown_track(struct ol_tracked_conn *line, PGconn *pg)
{
    if (!atomic_load(&is_prepared))
        return;
    line->fd = fcntl(PQsocket(pg), F_DUPFD_CLOEXEC, 3);
    if (line->fd < 0)
        return; // it will be waited for, as without this
    pthread_mutex_lock(&all.lock);
    line->next = all.lines;
    line->is_held = true;
    atomic_store(&line->pid, 0); // until it is known
    write_host(pg, line->host);
    all.lines = line;
    if (atomic_load(&is_over))
        shutdown(line->fd, SHUT_RDWR);
    pthread_mutex_unlock(&all.lock);
}

void ol_shutdown_untrack(struct ol_tracked_conn *line)
{
    if (!line->is_held)
        return;
    pthread_mutex_lock(&all.lock);
    struct ol_tracked_conn **at = &all.lines;
    while (*at != line)
        at = &(*at)->next;
    *at = line->next;
    pthread_mutex_unlock(&all.lock);
    close(line->fd);
    line->is_held = false;
}

static void give_up(void)
{
    pthread_mutex_lock(&all.lock);
    atomic_store(&is_over, true);
    for (struct ol_tracked_conn *line = all.lines; line; line = line->next)
        shutdown(line->fd, SHUT_RDWR);
    pthread_cond_broadcast(&all.news);
    pthread_mutex_unlock(&all.lock);
}

static uint64_t received_by(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_bytes_received : 0;
}

static bool is_idle(int pid, const struct ol_buf *idle)
{
    char name[16];
    snprintf(name, sizeof name, ",%d,", pid);
    return pid && idle->bytes && strstr(idle->data, name);
}

/* F3; on the other side they may be alive (F5). */
static void cut_dead(const struct call *call)
{
    int64_t now = ol_clock_boot_us();
    pthread_mutex_lock(&all.lock);
    for (struct ol_tracked_conn *line = all.lines; line; line = line->next) {
        unsigned waits = atomic_load(&line->waits);
        uint64_t received = received_by(line->fd);
        bool is_silent = waits % 2 && waits == line->seen && received == line->received &&
                         is_idle(atomic_load(&line->pid), &call->idle);
        bool is_elsewhere = can_tell() && call->host[0] && strcmp(line->host, call->host) != 0;
        if (!is_silent)
            line->silent_at = now;
        bool is_dead = now - line->silent_at >= PATIENCE_MS * 1000;
        if (is_elsewhere || is_dead)
            shutdown(line->fd, SHUT_RDWR);
        if (is_dead && !is_elsewhere)
            ol_buf_print(&all.dead, "%s%d", all.dead.bytes ? "," : "", atomic_load(&line->pid));
        line->seen = waits;
        line->received = received;
    }
    pthread_mutex_unlock(&all.lock);
}

/* --- the watch --- */

/* Hosts are asked one after the other, and each may be silent. */
static int64_t patience_ms(void)
{
    int64_t hosts = 1;
    for (const char *at = all.store; (at = strchr(at, ',')); at++)
        hosts++;
    return hosts == 1 ? PATIENCE_MS : hosts * PATIENCE_MS + LOOK_MS;
}

/* Wait, unless the process ends meanwhile: then false. */
static bool rest(int64_t ms)
{
    struct timespec until = after_ms(ms);
    pthread_mutex_lock(&all.lock);
    while (!all.is_ending && pthread_cond_timedwait(&all.news, &all.lock, &until) != ETIMEDOUT)
        ;
    bool goes_on = !all.is_ending;
    pthread_mutex_unlock(&all.lock);
    return goes_on;
}

/* From the wish to end until the end: the store answers at least so often, or is given up. */
static void *watch(void *unused)
{
    (void)unused;
    while (sem_wait(&all.begun) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&all.lock);
    pthread_cond_broadcast(&all.news);
    pthread_mutex_unlock(&all.lock);
    int64_t heard_at = ol_clock_boot_us();
    bool goes_on = rest(AGAIN_MS); // most are done by then
    while (goes_on) {
        int64_t left_ms = patience_ms() - (ol_clock_boot_us() - heard_at) / 1000;
        struct call *call = left_ms > 0 ? call_out(all.store, true, left_ms) : NULL;
        bool was_heard = call && call->is_here;
        if (was_heard)
            cut_dead(call);
        if (call)
            free_call(call);
        if (was_heard)
            heard_at = ol_clock_boot_us();
        else if (left_ms <= 0)
            break;
        goes_on = rest(was_heard ? LOOK_MS : AGAIN_MS);
    }
    if (goes_on)
        give_up();
    return NULL;
}

int ol_shutdown_prepare(const char *store, outlog_err *err)
{
    pthread_condattr_t monotonic;
    if (strncmp(store, "postgres", 8) != 0 || atomic_load(&is_prepared))
        return 0;
    if (!(all.store = strdup(store)))
        return ol_no_memory(err);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&all.news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sem_init(&all.begun, 0, 0);
    if (pthread_create(&all.watch, NULL, watch, NULL) != 0) {
        free(all.store);
        return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
    }
    atomic_store(&is_prepared, true);
    return 0;
}

void ol_shutdown_begin(void)
{
    if (!atomic_load(&is_prepared))
        return;
    atomic_store(&is_begun, true);
    sem_post(&all.begun);
}

bool ol_shutdown_is_over(void)
{
    return atomic_load(&is_over);
}

/* Wait a moment for those who were left behind. */
static bool all_are_back(void)
{
    struct timespec until = after_ms(atomic_load(&is_over) ? 0 : LOOK_MS);
    int result = 0;
    pthread_mutex_lock(&all.lock);
    struct call *call = all.left;
    while (call && result != ETIMEDOUT) {
        if (call->is_done)
            call = call->next;
        else
            result = pthread_cond_timedwait(&all.news, &all.lock, &until);
    }
    pthread_mutex_unlock(&all.lock);
    return !call;
}

int ol_shutdown_end(int status)
{
    if (!atomic_exchange(&is_prepared, false))
        return status;
    pthread_mutex_lock(&all.lock);
    all.is_ending = true;
    pthread_cond_broadcast(&all.news);
    pthread_mutex_unlock(&all.lock);
    sem_post(&all.begun);
    pthread_join(all.watch, NULL);
    if (!all_are_back()) { // libraries may not be taken from under their feet
        fflush(NULL);
        _exit(status);
    }
    for (struct call *call = all.left, *next; call; call = next) {
        next = call->next;
        pthread_join(call->thread, NULL);
        free_call(call);
    }
    ol_buf_clear(&all.dead);
    free(all.store);
    return status;
}
