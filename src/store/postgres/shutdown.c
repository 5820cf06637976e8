/* shutdown.c: tracked connections, threads that connect or probe, and the watchdog thread. */
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

enum { SILENCE_MAX_MS = 2000, PROBE_RETRY_MS = 100, PROBE_INTERVAL_MS = 500 };

/* A thread that connects, or probes whether the server answers (F4). */
struct connect_task {
    char *url;
    PGconn *pg;
    pthread_t thread;
    bool is_probe, is_answered; /* of a probe */
    struct ol_buf pids, idle;   /* a probe asks which of these backends are idle: "1,2" (F3) */
    struct ol_buf dead;         /* and terminates these, if idle in a transaction (F5) */
    char host[128];             /* and port, that answered */
    bool is_in_shutdown;        /* started after the process was asked to end */
    bool is_done;
    struct connect_task *next; /* in the list of abandoned ones */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* it begins, a task is done, the store is given up, the process ends */
    sem_t begun;
    char *store;
    pthread_t watchdog;
    struct ol_tracked_conn *tracked;
    struct connect_task *abandoned; /* joined or left alone at exit */
    struct ol_buf dead; /* used by the watchdog only: backends of cut connections, until a probe
                           takes them (F5) */
    bool is_ending;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool is_prepared, is_begun, is_over;

/* --- making connections --- */

/* Defaults first: settings of the URL come later and win, except over `timeout`. */
static PGconn *connect_to(const char *url, const char *timeout)
{
    const char *attributes = strchr(url, ',') ? "read-write" : "any"; // of several hosts
    // clang-format off
    const char *keys[] = {"fallback_application_name", "connect_timeout", "keepalives_idle",
                          "keepalives_interval", "keepalives_count", "tcp_user_timeout",
                          "target_session_attrs", "client_encoding", "dbname",
                          timeout ? "connect_timeout" : NULL, NULL};
    const char *values[] = {"outlog", "10", "5", "5", "3", "20000", attributes, "UTF8", url,
                            timeout, NULL};
    // clang-format on
    return PQconnectdbParams(keys, values, 1);
}

/* Which of these backends only wait for their client, or do not exist. */
static void find_idle(PGconn *pg, const char *pids, struct ol_buf *idle)
{
    static const char query[] =
        "select p from unnest(string_to_array($1, ',')::int[]) p " // lint: sql
        "left join pg_catalog.pg_stat_activity a on a.pid = p "    // lint: sql
        "where a.pid is null or a.wait_event_type = 'Client'";     // lint: sql
    PGresult *result = PQexecParams(pg, query, 1, NULL, &pids, NULL, NULL, 0);
    for (int i = 0; i < PQntuples(result); i++)
        ol_buf_print(idle, ",%s,", PQgetvalue(result, i, 0));
    PQclear(result);
}

/* F5. Only those idle since before their connection was cut: process ids are reused. */
static void terminate_dead(PGconn *pg, const char *pids)
{
    static const char query[] = "select pg_catalog.pg_terminate_backend(a.pid) " // lint: sql
                                "from pg_catalog.pg_stat_activity a "
                                "where a.pid = any (string_to_array($1, ',')::int[]) " // lint: sql
                                "and a.state like 'idle in transaction%' "             // lint: sql
                                "and a.state_change < now() - interval '1 second'";    // lint: sql
    PQclear(PQexecParams(pg, query, 1, NULL, &pids, NULL, NULL, 0));
}

static void write_host(const PGconn *pg, char out[128])
{
    snprintf(out, 128, "%.100s:%.20s", PQhost(pg), PQport(pg));
}

/* A server that refuses us (too many connections, a wrong password) answers all the same. */
static bool probe_server(struct connect_task *probe)
{
    PGconn *pg = connect_to(probe->url, "2");
    bool is_connected = PQstatus(pg) == CONNECTION_OK;
    // A connect is no proof: a pooler accepts it even when its server does not answer.
    PGresult *result = is_connected ? PQexec(pg, "") : NULL;
    bool answers = PQresultStatus(result) == PGRES_EMPTY_QUERY;
    PQclear(result);
    if (answers && probe->pids.bytes)
        find_idle(pg, probe->pids.data, &probe->idle);
    if (answers && probe->dead.bytes)
        terminate_dead(pg, probe->dead.data);
    if (answers)
        write_host(pg, probe->host);
    PQfinish(pg);
    return is_connected ? answers : PQping(probe->url) == PQPING_OK;
}

static void free_task(struct connect_task *task)
{
    PQfinish(task->pg);
    ol_buf_clear(&task->pids);
    ol_buf_clear(&task->idle);
    ol_buf_clear(&task->dead);
    free(task->url);
    free(task);
}

static void *execute_task(void *argument)
{
    struct connect_task *task = argument;
    if (task->is_probe)
        task->is_answered = probe_server(task);
    else
        task->pg = connect_to(task->url, task->is_in_shutdown ? "2" : NULL);
    pthread_mutex_lock(&all.lock);
    task->is_done = true;
    pthread_cond_broadcast(&all.changed);
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

/* Process ids mean something only if all connections go to the same host: not when several hosts
 * may be in use at a time. */
static bool can_compare_pids(void)
{
    return !strchr(all.store, ',') || !strstr(all.store, "target_session_attrs");
}

/* The backends of all tracked connections. */
static void list_pids(struct ol_buf *out)
{
    pthread_mutex_lock(&all.lock);
    for (struct ol_tracked_conn *tracked = all.tracked; tracked; tracked = tracked->next) {
        int pid = atomic_load(&tracked->pid);
        if (pid)
            ol_buf_print(out, "%s%d", out->bytes ? "," : "", pid);
    }
    pthread_mutex_unlock(&all.lock);
}

/* Start a task and wait for it, at most `timeout_ms` (0: until the store is given up). NULL: it was
 * abandoned, or could not be started. The caller frees it. */
static struct connect_task *run_task(const char *url, bool is_probe, int64_t timeout_ms)
{
    struct connect_task *task = calloc(1, sizeof *task);

    if (!task || !(task->url = strdup(url))) {
        free(task);
        return NULL;
    }
    task->is_probe = is_probe;
    task->is_in_shutdown = atomic_load(&is_begun);
    if (is_probe && can_compare_pids()) {
        list_pids(&task->pids);
        task->dead = all.dead;
        all.dead = (struct ol_buf){0};
    }
    if (pthread_create(&task->thread, NULL, execute_task, task) != 0) {
        free_task(task);
        return NULL;
    }
    struct timespec until = after_ms(timeout_ms);
    int result = 0;
    pthread_mutex_lock(&all.lock);
    while (!task->is_done && !atomic_load(&is_over) && !(is_probe && all.is_ending) &&
           task->is_in_shutdown == atomic_load(&is_begun) && result != ETIMEDOUT)
        result = timeout_ms ? pthread_cond_timedwait(&all.changed, &all.lock, &until)
                            : pthread_cond_wait(&all.changed, &all.lock);
    bool is_done = task->is_done;
    if (!is_done) {
        task->next = all.abandoned;
        all.abandoned = task;
    }
    pthread_mutex_unlock(&all.lock);
    if (!is_done)
        return NULL;
    pthread_join(task->thread, NULL);
    return task;
}

PGconn *ol_shutdown_connect(const char *url)
{
    if (!atomic_load(&is_prepared))
        return connect_to(url, NULL);
    bool was_begun = atomic_load(&is_begun);
    struct connect_task *task = atomic_load(&is_over) ? NULL : run_task(url, false, 0);
    if (!task && !was_begun && atomic_load(&is_begun)) // retry with the short timeout
        return ol_shutdown_connect(url);
    if (!task)
        return NULL;
    PGconn *pg = task->pg;
    task->pg = NULL;
    free_task(task);
    return pg;
}

/* --- cutting connections --- */

void ol_shutdown_track(struct ol_tracked_conn *tracked, PGconn *pg)
{
    if (!atomic_load(&is_prepared))
        return;
    tracked->fd = fcntl(PQsocket(pg), F_DUPFD_CLOEXEC, 3);
    if (tracked->fd < 0)
        return; // it cannot be cut, as without this module
    pthread_mutex_lock(&all.lock);
    tracked->next = all.tracked;
    tracked->is_tracked = true;
    atomic_store(&tracked->pid, 0); // until the session has begun
    write_host(pg, tracked->host);
    all.tracked = tracked;
    if (atomic_load(&is_over))
        shutdown(tracked->fd, SHUT_RDWR);
    pthread_mutex_unlock(&all.lock);
}

void ol_shutdown_untrack(struct ol_tracked_conn *tracked)
{
    if (!tracked->is_tracked)
        return;
    pthread_mutex_lock(&all.lock);
    struct ol_tracked_conn **at = &all.tracked;
    while (*at != tracked)
        at = &(*at)->next;
    *at = tracked->next;
    pthread_mutex_unlock(&all.lock);
    close(tracked->fd);
    tracked->is_tracked = false;
}

static void give_up(void)
{
    pthread_mutex_lock(&all.lock);
    atomic_store(&is_over, true);
    for (struct ol_tracked_conn *tracked = all.tracked; tracked; tracked = tracked->next)
        shutdown(tracked->fd, SHUT_RDWR);
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

static uint64_t count_received(int fd)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_bytes_received : 0;
}

static bool is_backend_idle(int pid, const struct ol_buf *idle)
{
    char name[16];
    snprintf(name, sizeof name, ",%d,", pid);
    return pid && idle->bytes && strstr(idle->data, name);
}

/* F3. Their backends may still run (F5). */
static void cut_dead_conns(const struct connect_task *task)
{
    int64_t now = ol_clock_boot_us();
    pthread_mutex_lock(&all.lock);
    for (struct ol_tracked_conn *tracked = all.tracked; tracked; tracked = tracked->next) {
        unsigned waits = atomic_load(&tracked->waits);
        uint64_t received = count_received(tracked->fd);
        bool is_silent = waits % 2 && waits == tracked->seen && received == tracked->received &&
                         is_backend_idle(atomic_load(&tracked->pid), &task->idle);
        bool is_elsewhere = can_compare_pids() && task->host[0] &&
                            strcmp(tracked->host, task->host) != 0;
        if (!is_silent)
            tracked->silent_at = now;
        bool is_dead = now - tracked->silent_at >= SILENCE_MAX_MS * 1000;
        if (is_elsewhere || is_dead)
            shutdown(tracked->fd, SHUT_RDWR);
        if (is_dead && !is_elsewhere)
            ol_buf_print(&all.dead, "%s%d", all.dead.bytes ? "," : "", atomic_load(&tracked->pid));
        tracked->seen = waits;
        tracked->received = received;
    }
    pthread_mutex_unlock(&all.lock);
}

/* --- the watchdog --- */

/* Hosts are tried one after the other, and each may be silent. */
static int64_t silence_max_ms(void)
{
    int64_t hosts = 1;
    for (const char *at = all.store; (at = strchr(at, ',')); at++)
        hosts++;
    return hosts == 1 ? SILENCE_MAX_MS : hosts * SILENCE_MAX_MS + PROBE_INTERVAL_MS;
}

/* Wait `ms`. False, and at once, when the process ends. */
static bool sleep_ms(int64_t ms)
{
    struct timespec until = after_ms(ms);
    pthread_mutex_lock(&all.lock);
    while (!all.is_ending && pthread_cond_timedwait(&all.changed, &all.lock, &until) != ETIMEDOUT)
        ;
    bool is_running = !all.is_ending;
    pthread_mutex_unlock(&all.lock);
    return is_running;
}

/* From SIGTERM until the process ends: probe the store, and give it up when it stays silent. */
static void *run_watchdog(void *unused)
{
    (void)unused;
    while (sem_wait(&all.begun) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&all.lock);
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    int64_t answered_at = ol_clock_boot_us();
    bool is_running = sleep_ms(PROBE_RETRY_MS); // most daemons have ended by then
    while (is_running) {
        int64_t left_ms = silence_max_ms() - (ol_clock_boot_us() - answered_at) / 1000;
        struct connect_task *task = left_ms > 0 ? run_task(all.store, true, left_ms) : NULL;
        bool is_answered = task && task->is_answered;
        if (is_answered)
            cut_dead_conns(task);
        if (task)
            free_task(task);
        if (is_answered)
            answered_at = ol_clock_boot_us();
        else if (left_ms <= 0)
            break;
        is_running = sleep_ms(is_answered ? PROBE_INTERVAL_MS : PROBE_RETRY_MS);
    }
    if (is_running)
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
    pthread_cond_init(&all.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sem_init(&all.begun, 0, 0);
    if (pthread_create(&all.watchdog, NULL, run_watchdog, NULL) != 0) {
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

/* Wait a moment for abandoned threads. False: some still run. */
static bool wait_for_abandoned(void)
{
    struct timespec until = after_ms(atomic_load(&is_over) ? 0 : PROBE_INTERVAL_MS);
    int result = 0;
    pthread_mutex_lock(&all.lock);
    struct connect_task *task = all.abandoned;
    while (task && result != ETIMEDOUT) {
        if (task->is_done)
            task = task->next;
        else
            result = pthread_cond_timedwait(&all.changed, &all.lock, &until);
    }
    pthread_mutex_unlock(&all.lock);
    return !task;
}

int ol_shutdown_end(int status)
{
    if (!atomic_exchange(&is_prepared, false))
        return status;
    pthread_mutex_lock(&all.lock);
    all.is_ending = true;
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
    sem_post(&all.begun);
    pthread_join(all.watchdog, NULL);
    if (!wait_for_abandoned()) { // exit() would unload libraries that those threads still use
        fflush(NULL);
        _exit(status);
    }
    for (struct connect_task *task = all.abandoned, *next; task; task = next) {
        next = task->next;
        pthread_join(task->thread, NULL);
        free_task(task);
    }
    ol_buf_clear(&all.dead);
    free(all.store);
    return status;
}
