/* auth.c: tokens in memory. */
#include "server/http/auth.h"

#include "auth/token.h"
#include "base/clock.h"
#include "log/log.h"
#include "server/http/router.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct ol_token token;
    double allowance; /* requests it may make now */
    int64_t counted_at, used_at, noted_at;
};

struct ol_auth {
    pthread_mutex_t lock;
    struct entry *entries; /* by hash */
    size_t count;
};

int ol_auth_open(struct ol_auth **out, outlog_err *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return ol_no_memory(err);
    pthread_mutex_init(&(*out)->lock, NULL);
    return 0;
}

void ol_auth_close(struct ol_auth *auth)
{
    if (!auth)
        return;
    pthread_mutex_destroy(&auth->lock);
    free(auth->entries);
    free(auth);
}

static int by_hash(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->token.hash, ((const struct entry *)b)->token.hash);
}

static struct entry *find(struct ol_auth *auth, const char *hash)
{
    struct entry key = {0};
    memcpy(key.token.hash, hash, sizeof key.token.hash);
    return auth->count ? bsearch(&key, auth->entries, auth->count, sizeof key, by_hash) : NULL;
}

/* --- refreshing --- */

struct loading {
    struct entry *entries;
    size_t count, room;
    bool failed;
};

static void take(void *user, const struct ol_token *token)
{
    struct loading *loading = user;
    if (loading->count == loading->room) {
        size_t room = loading->room ? loading->room * 2 : 16;
        struct entry *grown = reallocarray(loading->entries, room, sizeof *grown);
        if (!grown) {
            loading->failed = true;
            return;
        }
        loading->entries = grown;
        loading->room = room;
    }
    loading->entries[loading->count++] = (struct entry){.token = *token};
}

/* Carry over what only memory knows. */
static void adopt(struct ol_auth *auth, struct loading *loading)
{
    for (size_t i = 0; i < loading->count; i++) {
        const struct entry *old = find(auth, loading->entries[i].token.hash);
        struct entry *entry = &loading->entries[i];
        if (old) {
            entry->allowance = old->allowance;
            entry->counted_at = old->counted_at;
            entry->used_at = old->used_at;
            entry->noted_at = old->noted_at;
        }
    }
    free(auth->entries);
    auth->entries = loading->entries;
    auth->count = loading->count;
}

enum { NOTE_EVERY_US = 10 * 1000000, MOST_NOTES = 64 };

/* last_used_at is written at most every ten seconds a token. */
static void note_uses(struct ol_auth *auth, outlog *log)
{
    char ids[MOST_NOTES][37];
    size_t count = 0;
    int64_t now = ol_clock_wall_us();

    pthread_mutex_lock(&auth->lock);
    for (size_t i = 0; i < auth->count && count < MOST_NOTES; i++) {
        struct entry *entry = &auth->entries[i];
        if (entry->used_at > entry->noted_at && now - entry->noted_at > NOTE_EVERY_US) {
            memcpy(ids[count++], entry->token.id, sizeof ids[0]);
            entry->noted_at = now;
        }
    }
    pthread_mutex_unlock(&auth->lock);
    for (size_t i = 0; i < count; i++)
        ol_token_used(log, ids[i], NULL); // only for people to look at: a failure costs nothing
}

int ol_auth_refresh(struct ol_auth *auth, outlog *log, outlog_err *err)
{
    struct loading loading = {0};
    if (ol_token_each(log, true, take, &loading, err) < 0 || loading.failed) {
        free(loading.entries);
        return -1;
    }
    if (loading.count)
        qsort(loading.entries, loading.count, sizeof *loading.entries, by_hash);
    pthread_mutex_lock(&auth->lock);
    adopt(auth, &loading);
    pthread_mutex_unlock(&auth->lock);
    note_uses(auth, log);
    return 0;
}

/* --- asking --- */

static bool is_within_rate(struct entry *entry)
{
    int64_t now = ol_clock_boot_us();
    double rate = entry->token.rate;
    if (rate <= 0)
        return true;
    double most = rate < 1 ? 1 : rate; // a second's worth may come at once
    entry->allowance += (double)(now - entry->counted_at) / 1e6 * rate;
    if (!entry->counted_at || entry->allowance > most)
        entry->allowance = most;
    entry->counted_at = now;
    if (entry->allowance < 1)
        return false;
    entry->allowance -= 1;
    return true;
}

enum verdict { GOOD, UNKNOWN, TOO_FAST };

static enum verdict look(struct ol_auth *auth, const char *hash, struct ol_request *request)
{
    enum verdict verdict = UNKNOWN;
    pthread_mutex_lock(&auth->lock);
    struct entry *entry = find(auth, hash);
    if (entry) {
        verdict = is_within_rate(entry) ? GOOD : TOO_FAST;
        entry->used_at = ol_clock_wall_us();
        memcpy(request->who.token_id, entry->token.id, sizeof request->who.token_id);
        request->who.scope = (enum ol_scope)entry->token.scope;
        request->who.org_id =
            entry->token.has_org
                ? ol_arena_copy(&request->arena, entry->token.org_id, strlen(entry->token.org_id))
                : NULL;
        if (entry->token.has_org && !request->who.org_id)
            verdict = UNKNOWN; // out of memory must not widen what it may see
    }
    pthread_mutex_unlock(&auth->lock);
    return verdict;
}

static bool refuse(struct ol_request *request, const char *why)
{
    ol_problem_say(request, 401, "unauthorized", "%s", why);
    return false;
}

bool ol_auth_knows(struct ol_auth *auth, struct ol_request *request)
{
    const char *header = ol_request_header(request, "authorization");
    char hash[65];
    if (request->who.is_dev)
        return true;
    if (!header || strncasecmp(header, "bearer ", 7) != 0)
        return false;
    ol_token_hash(header + 7 + strspn(header + 7, " "), hash);
    return look(auth, hash, request) == GOOD;
}

bool ol_auth_admit(struct ol_auth *auth, struct ol_request *request)
{
    const char *header = ol_request_header(request, "authorization");
    char hash[65];
    outlog_err err;

    if (request->who.is_dev)
        return true;
    if (!header)
        return refuse(request, "a token is needed: Authorization: Bearer TOKEN (make one with "
                               "`outlog token create`)");
    if (strncasecmp(header, "bearer ", 7) != 0)
        return refuse(request, "only Bearer tokens are taken");
    ol_token_hash(header + 7 + strspn(header + 7, " "), hash);
    enum verdict verdict = look(auth, hash, request);
    if (verdict == UNKNOWN) {
        bool is_there = false;
        if (ol_token_find(request->log, hash, &is_there, &err) < 0) {
            ol_problem(request, &err);
            return false;
        }
        if (is_there && ol_auth_refresh(auth, request->log, &err) == 0)
            verdict = look(auth, hash, request);
    }
    if (verdict == TOO_FAST) {
        ol_problem_say(request, 429, "rate_limited",
                       "this token makes more requests than its rate");
        return false;
    }
    return verdict == GOOD || refuse(request, "this token is not known, or revoked");
}

bool ol_auth_is_valid(struct ol_auth *auth, const struct ol_identity *who)
{
    bool found = who->is_dev;
    pthread_mutex_lock(&auth->lock);
    for (size_t i = 0; i < auth->count && !found; i++)
        found = strcmp(auth->entries[i].token.id, who->token_id) == 0;
    pthread_mutex_unlock(&auth->lock);
    return found;
}

bool ol_auth_allows(struct ol_request *request)
{
    const struct ol_route *route = request->route;
    enum ol_scope has = request->who.scope, needs = route->scope;

    if (has != needs && has != OL_SCOPE_ADMIN && needs != OL_SCOPE_NONE) {
        static const char *const names[] = {"none", "read", "append", "admin"};
        ol_problem_say(request, 403, "forbidden", "this call needs a token of scope %s",
                       names[needs]);
        return false;
    }
    if (request->who.org_id && !route->takes_org) {
        ol_problem_say(request, 403, "forbidden",
                       "this call needs a token that is bound to no org");
        return false;
    }
    return true;
}
