/* query.h: the tables that scripts/embed_sql.py generates from sql/. */
#ifndef OL_STORE_QUERY_H
#define OL_STORE_QUERY_H

#include <stdint.h>

/* A piece of SQL, then perhaps a parameter; left out when parameter `when` is absent. */
struct ol_query_piece {
    const char *text; /* NULL ends the list */
    int16_t param;    /* -1: none follows */
    int16_t when;     /* -1: always included */
};

struct ol_query {
    const char *name;
    const struct ol_query_piece *pieces;
    uint32_t param_count;
    uint32_t literal_mask; /* parameters written into the text as numbers */
    uint32_t replan_mask;  /* parameters whose presence needs a plan for these values, not a generic
                              one */
    const char *params;    /* their names, with a space between */
};

struct ol_migration {
    int version; /* 0 ends the list */
    const char *name;
    const char *sql;
};

extern const struct ol_query ol_queries_postgres[], ol_queries_sqlite[];
extern const struct ol_migration ol_migrations_postgres[], ol_migrations_sqlite[];
extern const char ol_bootstrap_postgres[], ol_bootstrap_sqlite[];
extern const char ol_event_types_json[];

#endif
