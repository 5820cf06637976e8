/* quota.c: see quota.h. All quotas of the process are in one list under one lock; each has a lock
 * of its own for its counts. There are as many as destinations, so a list is enough. */
#include "relay/target/quota.h"

#include <assert.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MEMBERS = 64, HUNGRY_US = 300000, ROUND_US = 250000 };

struct ol_quota {
    struct ol_quota *next;
    uint64_t store;
    char *name;
    int user_count; /* under the list's lock */

    pthread_mutex_t lock;
    struct ol_limits limits;
    int member_count; /* places of `members` that were ever used */
    struct member {
        int user_count; /* targets: an old one may still have messages in flight */
        int in_flight;
        int64_t hungry_at; /* when it last wanted a place */
    } members[MOST_MEMBERS];
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

static int find_number(const struct ol_quota *quota)
{
    for (int i = 0; i < MOST_MEMBERS; i++)
        if (quota->members[i].user_count == 0)
            return i;
    return MOST_MEMBERS - 1; // the late ones are one member together
}

bool ol_quota_join(struct ol_quota_member *member, uint64_t store, const char *name,
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
    member->quota = quota;
    member->number = find_number(quota);
    quota->members[member->number].user_count++;
    if (quota->member_count <= member->number)
        quota->member_count = member->number + 1;
    pthread_mutex_unlock(&quota->lock);
    return true;
}

void ol_quota_leave(struct ol_quota_member *member)
{
    struct ol_quota *quota = member->quota;
    if (!quota)
        return;
    pthread_mutex_lock(&quota->lock);
    struct member *own = &quota->members[member->number];
    if (--own->user_count == 0) {
        assert(own->in_flight == 0);
        own->hungry_at = 0;
    }
    pthread_mutex_unlock(&quota->lock);
    member->quota = NULL;
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
static int count_hungry(const struct ol_quota *quota, int number, int64_t now_us, int *before)
{
    int count = 0;
    *before = 0;
    for (int i = 0; i < quota->member_count; i++) {
        const struct member *m = &quota->members[i];
        if (i != number &&
            (m->user_count == 0 || (m->in_flight == 0 && now_us - m->hungry_at > HUNGRY_US)))
            continue;
        *before += i < number;
        count++;
    }
    return count;
}

/* Places of a member: an equal share, and one of those left over when it is its turn. Whoever is
 * alone has them all. */
static int share_of(const struct ol_quota *quota, int number, int64_t now_us)
{
    int before, places = quota->limits.concurrency;
    int count = count_hungry(quota, number, now_us, &before);
    assert(count > 0); // itself at least
    int turn = (int)((before + now_us / ROUND_US) % count);
    return places / count + (turn < places % count);
}

bool ol_quota_take(struct ol_quota_member *member, size_t bytes, int64_t now_us)
{
    struct ol_quota *quota = member->quota;
    struct member *own = &quota->members[member->number];
    pthread_mutex_lock(&quota->lock);
    own->hungry_at = now_us;
    bool may = !quota->limits.concurrency ||
               own->in_flight < share_of(quota, member->number, now_us);
    bool taken = may && ol_limits_take(&quota->limits, bytes, now_us);
    own->in_flight += taken;
    pthread_mutex_unlock(&quota->lock);
    return taken;
}

void ol_quota_give(struct ol_quota_member *member, size_t bytes)
{
    struct ol_quota *quota = member->quota;
    pthread_mutex_lock(&quota->lock);
    ol_limits_give(&quota->limits, bytes);
    quota->members[member->number].in_flight--;
    pthread_mutex_unlock(&quota->lock);
}

int ol_quota_places(struct ol_quota_member *member, int64_t now_us, int64_t *interval_us)
{
    struct ol_quota *quota = member->quota;
    struct member *own = &quota->members[member->number];
    int places = INT_MAX, before;
    pthread_mutex_lock(&quota->lock);
    own->hungry_at = now_us;
    if (quota->limits.concurrency) {
        int left = quota->limits.concurrency - quota->limits.in_flight;
        places = share_of(quota, member->number, now_us) - own->in_flight;
        places = places < left ? places : left;
        places = places > 0 ? places : 0;
    }
    *interval_us = quota->limits.interval_us * count_hungry(quota, member->number, now_us, &before);
    pthread_mutex_unlock(&quota->lock);
    return places;
}
