/* counter_map.c: open addressing; names with a count of 0 are dropped when the table grows. */
#include "base/counter_map.h"

#include <stdlib.h>
#include <string.h>

static size_t hash_key(const char *key)
{
    uint64_t h = 14695981039346656037u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 1099511628211u;
    return (size_t)(h ^ h >> 29);
}

void ol_counter_map_clear(struct ol_counter_map *map)
{
    for (size_t i = 0; i < map->capacity; i++)
        free(map->entries[i].key);
    free(map->entries);
    *map = (struct ol_counter_map){0};
}

static struct ol_counter_map_entry *find_entry(const struct ol_counter_map *map, const char *key)
{
    size_t i = hash_key(key) & (map->capacity - 1);
    while (map->entries[i].key && strcmp(map->entries[i].key, key) != 0)
        i = (i + 1) & (map->capacity - 1);
    return &map->entries[i];
}

static bool grow_map(struct ol_counter_map *map)
{
    size_t live = 0;
    for (size_t i = 0; i < map->capacity; i++)
        live += map->entries[i].key && map->entries[i].count != 0;
    struct ol_counter_map wider = {.capacity = 64};
    while (wider.capacity < live * 4)
        wider.capacity *= 2;
    if (!(wider.entries = calloc(wider.capacity, sizeof *wider.entries)))
        return false;
    for (size_t i = 0; i < map->capacity; i++) {
        struct ol_counter_map_entry *entry = &map->entries[i];
        if (entry->key && entry->count != 0) {
            *find_entry(&wider, entry->key) = *entry;
            wider.used++;
            entry->key = NULL;
        }
    }
    ol_counter_map_clear(map);
    *map = wider;
    return true;
}

bool ol_counter_map_add(struct ol_counter_map *map, const char *key, int64_t by)
{
    if (map->used * 2 >= map->capacity && !grow_map(map))
        return false;
    struct ol_counter_map_entry *entry = find_entry(map, key);
    if (!entry->key) {
        if (!(entry->key = strdup(key)))
            return false;
        map->used++;
    }
    entry->count += by;
    return true;
}

int64_t ol_counter_map_get(const struct ol_counter_map *map, const char *key)
{
    return map->capacity ? find_entry(map, key)->count : 0;
}
