/* prefetch.c: see prefetch.h. */
#include "store/postgres/prefetch.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool is_about_same(const struct ol_prefetch_question *a,
                          const struct ol_prefetch_question *b)
{
    return a->id == b->id && a->numbers[0] == b->numbers[0];
}

static bool is_same(const struct ol_prefetch_question *a, const struct ol_prefetch_question *b)
{
    return a->id == b->id && a->key == b->key && a->count == b->count &&
           memcmp(a->numbers, b->numbers, (size_t)a->count * sizeof *a->numbers) == 0;
}

static void forget(struct ol_prefetch_entry *entry)
{
    PQclear(entry->answer);
    *entry = (struct ol_prefetch_entry){0};
}

/* The place of a question about the same, else a free one; 0: none. */
static int place_for(const struct ol_prefetch *ahead, const struct ol_prefetch_question *question)
{
    int free_place = 0;
    for (int i = 0; i < OL_PREFETCH_KEPT; i++) {
        if (ahead->kept[i].is_used && is_about_same(&ahead->kept[i].question, question))
            return i + 1;
        if (!ahead->kept[i].is_used)
            free_place = i + 1;
    }
    return free_place;
}

void ol_prefetch_request(struct ol_prefetch *ahead, const char *statement,
                         const struct ol_prefetch_question *question)
{
    int place = place_for(ahead, question);
    if (ahead->wished || !place || place == ahead->under_way)
        return;
    struct ol_prefetch_entry *entry = &ahead->kept[place - 1];
    forget(entry);
    entry->question = *question;
    entry->is_used = true;
    snprintf(entry->statement, sizeof entry->statement, "%s", statement);
    ahead->wished = place;
}

/* A statement's result, then the end of its results, then the sync. A lost connection answers less;
 * the first result says so. */
static PGresult *collect(PGconn *pg)
{
    PGresult *result = PQgetResult(pg), *more;
    while (result && (more = PQgetResult(pg)))
        PQclear(more);
    more = PQgetResult(pg);
    assert(!more || PQresultStatus(more) == PGRES_PIPELINE_SYNC || PQstatus(pg) != CONNECTION_OK);
    PQclear(more);
    return result;
}

static void take_in(struct ol_prefetch *ahead, PGconn *pg)
{
    if (!ahead->under_way)
        return;
    struct ol_prefetch_entry *entry = &ahead->kept[ahead->under_way - 1];
    ahead->under_way = 0;
    entry->answer = collect(pg);
    if (PQresultStatus(entry->answer) != PGRES_TUPLES_OK)
        forget(entry); // whoever asks again learns why
}

static bool send(PGconn *pg, const struct ol_prefetch_statement *statement)
{
    return PQsendQueryPrepared(pg, statement->name, statement->count, statement->values,
                               statement->lengths, statement->formats, 1) &&
           PQpipelineSync(pg);
}

static bool send_wish(PGconn *pg, const struct ol_prefetch_entry *entry)
{
    char text[OL_PREFETCH_NUMBERS][24];
    const char *values[OL_PREFETCH_NUMBERS];
    for (int i = 0; i < entry->question.count; i++) {
        snprintf(text[i], sizeof text[i], "%lld", (long long)entry->question.numbers[i]);
        values[i] = text[i];
    }
    return send(pg, &(struct ol_prefetch_statement){.name = entry->statement,
                                                    .count = entry->question.count,
                                                    .values = values});
}

PGresult *ol_prefetch_take(struct ol_prefetch *ahead, PGconn *pg,
                           const struct ol_prefetch_question *question)
{
    int place = place_for(ahead, question);
    if (!place || !ahead->kept[place - 1].is_used)
        return NULL;
    struct ol_prefetch_entry *entry = &ahead->kept[place - 1];
    if (place == ahead->under_way)
        take_in(ahead, pg);
    PGresult *answer = is_same(&entry->question, question) ? entry->answer : NULL;
    if (answer)
        entry->answer = NULL;
    forget(entry);
    return answer;
}

bool ol_prefetch_is_busy(const struct ol_prefetch *ahead)
{
    return ahead->wished || ahead->under_way;
}

PGresult *ol_prefetch_execute(struct ol_prefetch *ahead, PGconn *pg,
                              const struct ol_prefetch_statement *statement)
{
    int wished = ahead->wished;
    ahead->wished = 0;
    if (PQpipelineStatus(pg) == PQ_PIPELINE_OFF)
        PQenterPipelineMode(pg);
    bool is_sent = send(pg, statement);
    bool is_asked = is_sent && wished && send_wish(pg, &ahead->kept[wished - 1]);
    take_in(ahead, pg); // it was asked before this
    if (wished && !is_asked)
        forget(&ahead->kept[wished - 1]);
    else
        ahead->under_way = wished;
    return is_sent ? collect(pg) : NULL;
}

void ol_prefetch_finish(struct ol_prefetch *ahead, PGconn *pg)
{
    if (ahead->wished)
        forget(&ahead->kept[ahead->wished - 1]);
    ahead->wished = 0;
    take_in(ahead, pg);
    if (PQpipelineStatus(pg) != PQ_PIPELINE_OFF)
        PQexitPipelineMode(pg);
}

void ol_prefetch_drop(struct ol_prefetch *ahead)
{
    for (int i = 0; i < OL_PREFETCH_KEPT; i++)
        forget(&ahead->kept[i]);
    ahead->wished = ahead->under_way = 0;
}
