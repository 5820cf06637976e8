/* prefetch.c: statements go out in libpq's pipeline mode; results are read in the same order. */
#include "store/postgres/prefetch.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool has_same_subject(const struct ol_prefetch_key *a, const struct ol_prefetch_key *b)
{
    return a->id == b->id && a->numbers[0] == b->numbers[0];
}

static bool is_equal(const struct ol_prefetch_key *a, const struct ol_prefetch_key *b)
{
    return a->id == b->id && a->statement_key == b->statement_key && a->count == b->count &&
           memcmp(a->numbers, b->numbers, (size_t)a->count * sizeof *a->numbers) == 0;
}

static void clear_entry(struct ol_prefetch_entry *entry)
{
    PQclear(entry->answer);
    *entry = (struct ol_prefetch_entry){0};
}

/* The slot of a request with the same subject, else a free one; 0: none. */
static int find_slot(const struct ol_prefetch *prefetch, const struct ol_prefetch_key *key)
{
    int free_slot = 0;
    for (int i = 0; i < OL_PREFETCH_SLOTS; i++) {
        if (prefetch->entries[i].is_used && has_same_subject(&prefetch->entries[i].key, key))
            return i + 1;
        if (!prefetch->entries[i].is_used)
            free_slot = i + 1;
    }
    return free_slot;
}

void ol_prefetch_request(struct ol_prefetch *prefetch, const char *statement,
                         const struct ol_prefetch_key *key)
{
    int slot = find_slot(prefetch, key);
    if (prefetch->requested || !slot || slot == prefetch->in_flight)
        return;
    struct ol_prefetch_entry *entry = &prefetch->entries[slot - 1];
    clear_entry(entry);
    entry->key = *key;
    entry->is_used = true;
    snprintf(entry->statement, sizeof entry->statement, "%s", statement);
    prefetch->requested = slot;
}

/* A statement's result, then the end of its results, then the sync. A lost connection returns
 * fewer; its first result is the error. */
static PGresult *read_result(PGconn *pg)
{
    PGresult *result = PQgetResult(pg), *more;
    while (result && (more = PQgetResult(pg)))
        PQclear(more);
    more = PQgetResult(pg);
    assert(!more || PQresultStatus(more) == PGRES_PIPELINE_SYNC || PQstatus(pg) != CONNECTION_OK);
    PQclear(more);
    return result;
}

static void receive_answer(struct ol_prefetch *prefetch, PGconn *pg)
{
    if (!prefetch->in_flight)
        return;
    struct ol_prefetch_entry *entry = &prefetch->entries[prefetch->in_flight - 1];
    prefetch->in_flight = 0;
    entry->answer = read_result(pg);
    if (PQresultStatus(entry->answer) != PGRES_TUPLES_OK)
        clear_entry(entry); // the query is then run again, and fails with the reason
}

static bool send_statement(PGconn *pg, const struct ol_prefetch_statement *statement)
{
    return PQsendQueryPrepared(pg, statement->name, statement->count, statement->values,
                               statement->lengths, statement->formats, 1) &&
           PQpipelineSync(pg);
}

static bool send_request(PGconn *pg, const struct ol_prefetch_entry *entry)
{
    char text[OL_PREFETCH_NUMBERS][24];
    const char *values[OL_PREFETCH_NUMBERS];
    for (int i = 0; i < entry->key.count; i++) {
        snprintf(text[i], sizeof text[i], "%lld", (long long)entry->key.numbers[i]);
        values[i] = text[i];
    }
    return send_statement(pg, &(struct ol_prefetch_statement){.name = entry->statement,
                                                              .count = entry->key.count,
                                                              .values = values});
}

PGresult *ol_prefetch_take(struct ol_prefetch *prefetch, PGconn *pg,
                           const struct ol_prefetch_key *key)
{
    int slot = find_slot(prefetch, key);
    if (!slot || !prefetch->entries[slot - 1].is_used)
        return NULL;
    struct ol_prefetch_entry *entry = &prefetch->entries[slot - 1];
    if (slot == prefetch->in_flight)
        receive_answer(prefetch, pg);
    PGresult *answer = is_equal(&entry->key, key) ? entry->answer : NULL;
    if (answer)
        entry->answer = NULL;
    clear_entry(entry);
    return answer;
}

bool ol_prefetch_is_busy(const struct ol_prefetch *prefetch)
{
    return prefetch->requested || prefetch->in_flight;
}

PGresult *ol_prefetch_execute(struct ol_prefetch *prefetch, PGconn *pg,
                              const struct ol_prefetch_statement *statement)
{
    int requested = prefetch->requested;
    prefetch->requested = 0;
    if (PQpipelineStatus(pg) == PQ_PIPELINE_OFF)
        PQenterPipelineMode(pg);
    bool is_sent = send_statement(pg, statement);
    bool is_requested = is_sent && requested && send_request(pg, &prefetch->entries[requested - 1]);
    receive_answer(prefetch, pg); // it was sent before this statement
    if (requested && !is_requested)
        clear_entry(&prefetch->entries[requested - 1]);
    else
        prefetch->in_flight = requested;
    return is_sent ? read_result(pg) : NULL;
}

void ol_prefetch_finish(struct ol_prefetch *prefetch, PGconn *pg)
{
    if (prefetch->requested)
        clear_entry(&prefetch->entries[prefetch->requested - 1]);
    prefetch->requested = 0;
    receive_answer(prefetch, pg);
    if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF)
        PQexitPipelineMode(pg);
}

void ol_prefetch_drop(struct ol_prefetch *prefetch)
{
    for (int i = 0; i < OL_PREFETCH_SLOTS; i++)
        clear_entry(&prefetch->entries[i]);
    prefetch->requested = prefetch->in_flight = 0;
}
