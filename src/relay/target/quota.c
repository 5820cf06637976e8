/* quota.c: all quotas of the process are in one list under one lock; each quota has its own lock
 * for its counts. There are as many as destinations, so a list is enough. */
#include "relay/target/quota.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { QUOTA_MEMBERS_MAX = 64, QUOTA_ACTIVE_US = 300000, QUOTA_ROUND_US = 250000 };

struct ol_quota {
    struct ol_quota *next;
    uint64_t store;
    char *name;
    int user_count; /* under the list's lock */

    pthread_mutex_t lock;
    struct ol_limits limits;
    int member_count; /* entries of `members` that were ever used */
    struct quota_thread {
        int user_count; /* targets: a replaced one may still have messages in flight */
        int in_flight;
        int64_t wanted_at; /* when it last wanted a place */
    } members[QUOTA_MEMBERS_MAX];
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ol_quota *quotas;

/* --- taking part --- */

static struct ol_quota *find_or_add(uint64_t store, const char *name)
{
    struct ol_quota *quota = quotas;
    while (quota && (quota->store != store || strcmp(quota->name, name) != 0))
        quota = quota->next;
    if (quota)
        return quota;
    if (!(quota = calloc(1, sizeof *quota)) || !(quota->name = strdup(name))) {
        free(quota);
        return NULL;
    }
    quota->store = store;
    ol_limits_init(&quota->limits, 0, 0, 0, 0);
    pthread_mutex_init(&quota->lock, NULL);
    quota->next = quotas;
    quotas = quota;
    return quota;
}

/* New limits, while what is in flight stays counted. */
static void set_limits(struct ol_limits *limits, const struct ol_settings *s)
{
    struct ol_limits before = *limits;
    ol_limits_init(limits, s->concurrency, s->rate_count, s->rate_period_us,
                   (size_t)s->budget_bytes);
    limits->in_flight = before.in_flight;
    limits->in_flight_bytes = before.in_flight_bytes;
    limits->next_at = limits->interval_us ? before.next_at : INT64_MIN;
}

static int find_free_member(const struct ol_quota *quota)
{
    for (int i = 0; i < QUOTA_MEMBERS_MAX; i++)
        if (quota->members[i].user_count == 0)
            return i;
    return QUOTA_MEMBERS_MAX - 1; // the last ones share one member
}

bool ol_quota_join(struct ol_quota_member *quota_thread, uint64_t store, const char *name,
                   const struct ol_settings *settings)
{
    pthread_mutex_lock(&list_lock);
    struct ol_quota *quota = find_or_add(store, name);
    if (quota)
        quota->user_count++;
    pthread_mutex_unlock(&list_lock);
    if (!quota)
        return false;
    pthread_mutex_lock(&quota->lock);
    set_limits(&quota->limits, settings);
    quota_thread->quota = quota;
    quota_thread->number = find_free_member(quota);
    quota->members[quota_thread->number].user_count++;
    if (quota->member_count <= quota_thread->number)
        quota->member_count = quota_thread->number + 1;
    pthread_mutex_unlock(&quota->lock);
    return true;
}

void ol_quota_leave(struct ol_quota_member *quota_thread)
{
    struct ol_quota *quota = quota_thread->quota;
    if (!quota)
        return;
    pthread_mutex_lock(&quota->lock);
    struct quota_thread *own = &quota->members[quota_thread->number];
    if (--own->user_count == 0) {
        assert(own->in_flight == 0);
        own->wanted_at = 0;
    }
    pthread_mutex_unlock(&quota->lock);
    quota_thread->quota = NULL;
    pthread_mutex_lock(&list_lock);
    if (--quota->user_count == 0) {
        struct ol_quota **at = &quotas;
        while (*at != quota)
            at = &(*at)->next;
        *at = quota->next;
        pthread_mutex_destroy(&quota->lock);
        free(quota->name);
        free(quota);
    }
    pthread_mutex_unlock(&list_lock);
}

/* --- places --- */

/* How many members want places now, this one included, and how many of them come before it. */
static int count_active(const struct ol_quota *quota, int number, int64_t now_us, int *before)
{
    int count = 0;
    *before = 0;
    for (int i = 0; i < quota->member_count; i++) {
        const struct quota_thread *m = &quota->members[i];
        if (i != number &&
            (m->user_count == 0 || (m->in_flight == 0 && now_us - m->wanted_at > QUOTA_ACTIVE_US)))
            continue;
        *before += i < number;
        count++;
    }
    return count;
}

/* Places of a member: an equal share, and one of those left over when it is its turn. A single
 * active member has them all. */
static int find_share(const struct ol_quota *quota, int number, int64_t now_us)
{
    int before, places = quota->limits.concurrency;
    int count = count_active(quota, number, now_us, &before);
    assert(count > 0); // itself at least
    int turn = (int)((before + now_us / QUOTA_ROUND_US) % count);
    return places / count + (turn < places % count);
}

bool ol_quota_take(struct ol_quota_member *quota_thread, size_t bytes, int64_t now_us)
{
    struct ol_quota *quota = quota_thread->quota;
    struct quota_thread *own = &quota->members[quota_thread->number];
    pthread_mutex_lock(&quota->lock);
    own->wanted_at = now_us;
    bool may = !quota->limits.concurrency ||
               own->in_flight < find_share(quota, quota_thread->number, now_us);
    bool taken = may && ol_limits_take(&quota->limits, bytes, now_us);
    own->in_flight += taken;
    pthread_mutex_unlock(&quota->lock);
    return taken;
}

void ol_quota_give(struct ol_quota_member *quota_thread, size_t bytes)
{
    struct ol_quota *quota = quota_thread->quota;
    pthread_mutex_lock(&quota->lock);
    ol_limits_give(&quota->limits, bytes);
    quota->members[quota_thread->number].in_flight--;
    pthread_mutex_unlock(&quota->lock);
}

int ol_quota_places(struct ol_quota_member *quota_thread, int64_t now_us, int64_t *interval_us)
{
    struct ol_quota *quota = quota_thread->quota;
    struct quota_thread *own = &quota->members[quota_thread->number];
    int places = INT_MAX, before;
    pthread_mutex_lock(&quota->lock);
    own->wanted_at = now_us;
    if (quota->limits.concurrency) {
        int left = quota->limits.concurrency - quota->limits.in_flight;
        places = find_share(quota, quota_thread->number, now_us) - own->in_flight;
        places = places < left ? places : left;
        places = places > 0 ? places : 0;
    }
    *interval_us = quota->limits.interval_us *
                   count_active(quota, quota_thread->number, now_us, &before);
    pthread_mutex_unlock(&quota->lock);
    return places;
}
