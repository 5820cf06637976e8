/* auth.c: the cache of tokens, their rate limits, and the checks of a request. */
#include "server/http/auth.h"

#include "auth/token.h"
#include "base/clock.h"
#include "log/log.h"
#include "server/http/router.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct auth_entry {
    struct ol_token token;
    double allowance; /* requests it may make now */
    int64_t counted_at, used_at;
    int64_t recorded_at; /* when last_used_at was last stored */
};

struct ol_auth {
    pthread_mutex_t lock;
    struct auth_entry *entries; /* by hash */
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

static int compare_hashes(const void *a, const void *b)
{
    return strcmp(((const struct auth_entry *)a)->token.hash,
                  ((const struct auth_entry *)b)->token.hash);
}

static struct auth_entry *find_entry(struct ol_auth *auth, const char *hash)
{
    struct auth_entry key = {0};
    memcpy(key.token.hash, hash, sizeof key.token.hash);
    return auth->count ? bsearch(&key, auth->entries, auth->count, sizeof key, compare_hashes)
                       : NULL;
}

/* --- refreshing --- */

struct auth_loading {
    struct auth_entry *entries;
    size_t count, capacity;
    bool failed;
};

static void on_token(void *user, const struct ol_token *token)
{
    struct auth_loading *loading = user;
    if (loading->count == loading->capacity) {
        size_t capacity = loading->capacity ? loading->capacity * 2 : 16;
        struct auth_entry *grown = reallocarray(loading->entries, capacity, sizeof *grown);
        if (!grown) {
            loading->failed = true;
            return;
        }
        loading->entries = grown;
        loading->capacity = capacity;
    }
    loading->entries[loading->count++] = (struct auth_entry){.token = *token};
}

/* Replace the cache; what is not in the store is carried over. */
static void replace_entries(struct ol_auth *auth, struct auth_loading *loading)
{
    for (size_t i = 0; i < loading->count; i++) {
        const struct auth_entry *old = find_entry(auth, loading->entries[i].token.hash);
        struct auth_entry *entry = &loading->entries[i];
        if (old) {
            entry->allowance = old->allowance;
            entry->counted_at = old->counted_at;
            entry->used_at = old->used_at;
            entry->recorded_at = old->recorded_at;
        }
    }
    free(auth->entries);
    auth->entries = loading->entries;
    auth->count = loading->count;
}

enum { RECORD_USE_US = 10 * 1000000, RECORD_USES_MAX = 64 };

/* last_used_at is written at most every ten seconds per token. */
static void record_uses(struct ol_auth *auth, outlog *log)
{
    char ids[RECORD_USES_MAX][37];
    size_t count = 0;
    int64_t now = ol_clock_wall_us();

    pthread_mutex_lock(&auth->lock);
    for (size_t i = 0; i < auth->count && count < RECORD_USES_MAX; i++) {
        struct auth_entry *entry = &auth->entries[i];
        if (entry->used_at > entry->recorded_at && now - entry->recorded_at > RECORD_USE_US) {
            memcpy(ids[count++], entry->token.id, sizeof ids[0]);
            entry->recorded_at = now;
        }
    }
    pthread_mutex_unlock(&auth->lock);
    for (size_t i = 0; i < count; i++)
        ol_token_used(log, ids[i], NULL); // only shown to people: a failure does not matter
}

int ol_auth_refresh(struct ol_auth *auth, outlog *log, outlog_err *err)
{
    struct auth_loading loading = {0};
    if (ol_token_each(log, true, on_token, &loading, err) < 0 || loading.failed) {
        free(loading.entries);
        return -1;
    }
    if (loading.count)
        qsort(loading.entries, loading.count, sizeof *loading.entries, compare_hashes);
    pthread_mutex_lock(&auth->lock);
    replace_entries(auth, &loading);
    pthread_mutex_unlock(&auth->lock);
    record_uses(auth, log);
    return 0;
}

/* --- checking --- */

static bool is_within_rate(struct auth_entry *entry)
{
    int64_t now = ol_clock_boot_us();
    double rate = entry->token.rate;
    if (rate <= 0)
        return true;
    double burst = rate < 1 ? 1 : rate; // the requests of one second may come at once
    entry->allowance += (double)(now - entry->counted_at) / 1e6 * rate;
    if (!entry->counted_at || entry->allowance > burst)
        entry->allowance = burst;
    entry->counted_at = now;
    if (entry->allowance < 1)
        return false;
    entry->allowance -= 1;
    return true;
}

enum auth_result { AUTH_OK, AUTH_UNKNOWN, AUTH_RATE_LIMITED };

static enum auth_result check_token(struct ol_auth *auth, const char *hash,
                                    struct ol_request *request)
{
    enum auth_result result = AUTH_UNKNOWN;
    pthread_mutex_lock(&auth->lock);
    struct auth_entry *entry = find_entry(auth, hash);
    if (entry) {
        result = is_within_rate(entry) ? AUTH_OK : AUTH_RATE_LIMITED;
        entry->used_at = ol_clock_wall_us();
        memcpy(request->who.token_id, entry->token.id, sizeof request->who.token_id);
        request->who.scope = (enum ol_scope)entry->token.scope;
        request->who.org_id =
            entry->token.has_org
                ? ol_arena_copy(&request->arena, entry->token.org_id, strlen(entry->token.org_id))
                : NULL;
        if (entry->token.has_org && !request->who.org_id)
            result = AUTH_UNKNOWN; // out of memory must not give access to every org
    }
    pthread_mutex_unlock(&auth->lock);
    return result;
}

static bool answer_unauthorized(struct ol_request *request, const char *why)
{
    ol_problem_say(request, 401, "unauthorized", "%s", why);
    return false;
}

static bool read_hash(const struct ol_request *request, char hash[65])
{
    const char *header = ol_request_header(request, "authorization");
    if (!header || strncasecmp(header, "bearer ", 7) != 0)
        return false;
    ol_token_hash(header + 7 + strspn(header + 7, " "), hash);
    return true;
}

bool ol_auth_recognizes(struct ol_auth *auth, const struct ol_request *request)
{
    char hash[65];
    if (!read_hash(request, hash))
        return false;
    pthread_mutex_lock(&auth->lock);
    bool is_there = find_entry(auth, hash) != NULL;
    pthread_mutex_unlock(&auth->lock);
    return is_there;
}

bool ol_auth_knows(struct ol_auth *auth, struct ol_request *request)
{
    char hash[65];
    return request->who.is_dev ||
           (read_hash(request, hash) && check_token(auth, hash, request) == AUTH_OK);
}

bool ol_auth_admit(struct ol_auth *auth, struct ol_request *request)
{
    const char *header = ol_request_header(request, "authorization");
    char hash[65];
    outlog_err err;

    if (request->who.is_dev)
        return true;
    if (!header)
        return answer_unauthorized(request,
                                   "a token is needed: Authorization: Bearer TOKEN (make one with "
                                   "`outlog token create`)");
    if (!read_hash(request, hash))
        return answer_unauthorized(request, "only Bearer tokens are accepted");
    enum auth_result result = check_token(auth, hash, request);
    if (result == AUTH_UNKNOWN) {
        bool is_there = false;
        if (ol_token_find(request->log, hash, &is_there, &err) < 0) {
            ol_problem(request, &err);
            return false;
        }
        if (is_there && ol_auth_refresh(auth, request->log, &err) == 0)
            result = check_token(auth, hash, request);
    }
    if (result == AUTH_RATE_LIMITED) {
        ol_problem_say(request, 429, "rate_limited",
                       "this token makes more requests than its rate");
        return false;
    }
    return result == AUTH_OK || answer_unauthorized(request, "this token is not known, or revoked");
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
