/* counter_map.h: counts by name. */
#ifndef OL_BASE_COUNTER_MAP_H
#define OL_BASE_COUNTER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ol_counter_map_entry {
    char *key; /* NULL: free */
    int64_t count;
};

/* Start from {0}. Names are copied. */
struct ol_counter_map {
    struct ol_counter_map_entry *entries;
    size_t capacity, used; /* `used` includes names whose count fell to 0, until the table grows */
};

void ol_counter_map_clear(struct ol_counter_map *map);

/* Add to the count of `key` (by may be negative); false when memory is out. */
bool ol_counter_map_add(struct ol_counter_map *map, const char *key, int64_t by);

/* The count of `key`; 0 when it was never added. */
int64_t ol_counter_map_get(const struct ol_counter_map *map, const char *key);

#endif
