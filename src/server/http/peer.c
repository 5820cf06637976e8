/* peer.c: addresses in a hash table, with a bucket of tries each. */
#include "server/http/peer.h"

#include "base/random.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

enum { PEER_BUCKETS = 1024, PEERS_IDLE_MAX = 4096 };

struct ol_peer_table {
    struct ol_peer *buckets[PEER_BUCKETS];
    size_t idle_count; /* without a connection */
    uint64_t seed;     /* so that nobody can choose addresses of one bucket */
};

struct ol_peer_table *ol_peer_table_open(void)
{
    struct ol_peer_table *peers = calloc(1, sizeof *peers);
    if (peers)
        ol_random_bytes(&peers->seed, sizeof peers->seed);
    return peers;
}

void ol_peer_table_close(struct ol_peer_table *peers)
{
    for (size_t i = 0; peers && i < PEER_BUCKETS; i++)
        while (peers->buckets[i]) {
            struct ol_peer *peer = peers->buckets[i];
            peers->buckets[i] = peer->next;
            free(peer);
        }
    free(peers);
}

static void write_key(const struct sockaddr *address, unsigned char key[16])
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    memset(key, 0, 16);
    if (address->sa_family == AF_INET)
        memcpy(key, &((const struct sockaddr_in *)address)->sin_addr, 4);
    else if (address->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        memcpy(key, six->s6_addr + 12, 4);
    else if (address->sa_family == AF_INET6) {
        memcpy(key, six->s6_addr, 8);
        key[15] = 6;
    }
}

static struct ol_peer **find_bucket(struct ol_peer_table *peers, const unsigned char key[16])
{
    uint64_t hash = peers->seed;
    for (int i = 0; i < 16; i++)
        hash = (hash ^ key[i]) * UINT64_C(0x100000001b3);
    return &peers->buckets[(hash >> 32) % PEER_BUCKETS];
}

struct ol_peer *ol_peer_table_take(struct ol_peer_table *peers, const struct sockaddr *address)
{
    unsigned char key[16];
    write_key(address, key);
    struct ol_peer **bucket = find_bucket(peers, key), *peer = *bucket;
    while (peer && memcmp(peer->key, key, sizeof key) != 0)
        peer = peer->next;
    if (peer) {
        peers->idle_count -= peer->conn_count++ == 0;
        return peer;
    }
    if (!(peer = calloc(1, sizeof *peer)))
        return NULL;
    memcpy(peer->key, key, sizeof key);
    TAILQ_INIT(&peer->strangers);
    peer->conn_count = 1;
    peer->tries = OL_PEER_TRIES;
    peer->next = *bucket;
    *bucket = peer;
    return peer;
}

static void count_tries(struct ol_peer *peer, uint64_t now_ms)
{
    peer->tries += (double)(now_ms - peer->tried_at) / 1000;
    if (!peer->tried_at || peer->tries > OL_PEER_TRIES)
        peer->tries = OL_PEER_TRIES;
    peer->tried_at = now_ms;
}

bool ol_peer_try_token(struct ol_peer *peer, uint64_t now_ms)
{
    count_tries(peer, now_ms);
    if (peer->tries < 1)
        return false;
    peer->tries -= 1;
    return true;
}

/* Whether it can be forgotten. */
static bool is_forgiven(struct ol_peer *peer, uint64_t now_ms)
{
    if (peer->tried_at)
        count_tries(peer, now_ms);
    return peer->conn_count == 0 && peer->tries >= OL_PEER_TRIES;
}

static void free_peer(struct ol_peer_table *peers, struct ol_peer **link)
{
    struct ol_peer *peer = *link;
    *link = peer->next;
    peers->idle_count--;
    free(peer);
}

void ol_peer_table_release(struct ol_peer_table *peers, struct ol_peer *peer, uint64_t now_ms)
{
    if (--peer->conn_count > 0)
        return;
    peers->idle_count++;
    if (!is_forgiven(peer, now_ms) && peers->idle_count <= PEERS_IDLE_MAX)
        return;
    struct ol_peer **link = find_bucket(peers, peer->key);
    while (*link != peer)
        link = &(*link)->next;
    free_peer(peers, link);
}

void ol_peer_table_sweep(struct ol_peer_table *peers, uint64_t now_ms)
{
    for (size_t i = 0; i < PEER_BUCKETS && peers->idle_count; i++)
        for (struct ol_peer **link = &peers->buckets[i]; *link;)
            if (is_forgiven(*link, now_ms))
                free_peer(peers, link);
            else
                link = &(*link)->next;
}
