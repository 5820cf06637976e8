/* farewell.c: see farewell.h. */
#include "store/farewell.h"

#include "base/clock.h"
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
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
    bool is_done;
    struct call *next; /* of those that were left behind */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news; /* a call is done, the store is given up, the process ends */
    sem_t begun;
    char *store;
    pthread_t watch;
    struct ol_farewell_line *lines;
    struct call *left; /* who nobody waits for until the end */
    bool is_ending;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_bool is_prepared, is_over;

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

/* A server that has no place for us, or does not know us, is there all the same. */
static bool is_here(const char *url)
{
    PGconn *pg = connect_to(url, "2");
    bool is_connected = PQstatus(pg) == CONNECTION_OK;
    PGresult *result = is_connected ? PQexec(pg, "")
                                    : NULL; // a pooler may answer for a server that is away
    bool answers = PQresultStatus(result) == PGRES_EMPTY_QUERY;
    PQclear(result);
    PQfinish(pg);
    return is_connected ? answers : PQping(url) == PQPING_OK;
}

static void free_call(struct call *call)
{
    PQfinish(call->pg);
    free(call->url);
    free(call);
}

static void *run_call(void *argument)
{
    struct call *call = argument;
    if (call->is_question)
        call->is_here = is_here(call->url);
    else
        call->pg = connect_to(call->url, NULL);
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

/* Start a call and wait for it, at most so long (0: as long as the store is not given up). NULL: it was left, or
 * never began. The caller frees it. */
static struct call *call_out(const char *url, bool is_question, int64_t most_ms)
{
    struct call *call = calloc(1, sizeof *call);

    if (!call || !(call->url = strdup(url))) {
        free(call);
        return NULL;
    }
    call->is_question = is_question;
    if (pthread_create(&call->thread, NULL, run_call, call) != 0) {
        free_call(call);
        return NULL;
    }
    struct timespec until = after_ms(most_ms);
    int result = 0;
    pthread_mutex_lock(&all.lock);
    while (!call->is_done && !atomic_load(&is_over) && !(is_question && all.is_ending) &&
           result != ETIMEDOUT)
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

PGconn *ol_farewell_dial(const char *url)
{
    if (!atomic_load(&is_prepared))
        return connect_to(url, NULL);
    struct call *call = atomic_load(&is_over) ? NULL : call_out(url, false, 0);
    if (!call)
        return NULL;
    PGconn *pg = call->pg;
    call->pg = NULL;
    free_call(call);
    return pg;
}

/* --- cutting them --- */

void ol_farewell_hold(struct ol_farewell_line *line, PGconn *pg)
{
    if (!atomic_load(&is_prepared))
        return;
    line->fd = fcntl(PQsocket(pg), F_DUPFD_CLOEXEC, 3);
    if (line->fd < 0)
        return; // it will be waited for, as without this
    pthread_mutex_lock(&all.lock);
    line->next = all.lines;
    line->is_held = true;
    all.lines = line;
    if (atomic_load(&is_over))
        shutdown(line->fd, SHUT_RDWR);
    pthread_mutex_unlock(&all.lock);
}

void ol_farewell_let_go(struct ol_farewell_line *line)
{
    if (!line->is_held)
        return;
    pthread_mutex_lock(&all.lock);
    struct ol_farewell_line **at = &all.lines;
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
    for (struct ol_farewell_line *line = all.lines; line; line = line->next)
        shutdown(line->fd, SHUT_RDWR);
    pthread_cond_broadcast(&all.news);
    pthread_mutex_unlock(&all.lock);
}

/* --- the watch --- */

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
    int64_t heard_at = ol_clock_boot_us();
    bool goes_on = rest(AGAIN_MS); // most are done by then
    while (goes_on) {
        int64_t left_ms = PATIENCE_MS - (ol_clock_boot_us() - heard_at) / 1000;
        struct call *call = left_ms > 0 ? call_out(all.store, true, left_ms) : NULL;
        bool was_heard = call && call->is_here;
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

int ol_farewell_prepare(const char *store, outlog_err *err)
{
    pthread_condattr_t monotonic;
    if (strncmp(store, "postgres", 8) != 0 || atomic_load(&is_prepared))
        return 0;
    if (!(all.store = strdup(store)))
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
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

void ol_farewell_begin(void)
{
    if (atomic_load(&is_prepared))
        sem_post(&all.begun);
}

bool ol_farewell_is_over(void)
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

int ol_farewell_end(int status)
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
    free(all.store);
    return status;
}
