/* A store that is simulated, with those who use it, and what must be true of them. */
#ifndef SPW_TESTS_WORLD_H
#define SPW_TESTS_WORLD_H

#include "counted_context.h"
#include "private_place.h"
#include "store/store_state.h"
#include "stored_objects.h"

enum { SLOTS = 24, PEERS = 8, HELD = 6, DEPTH_MAX = 3, SIZE_MAX_BYTES = 3 << 19 };

/* A key, and the value that it has. */
typedef struct slot {
    spw_entry *entry; /* NULL: none */
    unsigned number;
    size_t size;
    bool is_lost;
} slot;

/* Something that was got from an entry, and is given back later. */
typedef struct hold {
    spw_entry *entry;      /* NULL: none */
    stored_object *object; /* of it */
    bool is_pinned;        /* else it is only that somebody still has the object */
    spw_payload *payload;  /* or its bytes */
    unsigned number;
    size_t size;
} hold;

typedef struct world {
    uint64_t seed, random;
    counted_context counted;
    private_place place;
    stored_objects objects;
    spw_store *store;
    private_place peer_place;
    spw_store *peer; /* of a peer's on the same host, with the same disk */
    slot slots[SLOTS];
    spw_entry *peers[PEERS]; /* what the peer has, until it lets go of that */
    hold holds[HELD];
    unsigned numbers, depth;
    uint64_t now_ms;
    uint64_t refused_packs;
    bool disk_fails; /* for this run */
    uint64_t losses, acquired, left, failed, ahead, received, adopted;
} world;

/* Chance, by the seed: splitmix64. */
static inline uint64_t next(world *w)
{
    uint64_t z = w->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static inline size_t below(world *w, size_t bound)
{
    return (size_t)(next(w) % bound);
}

static inline bool one_in(world *w, size_t n)
{
    return below(w, n) == 0;
}

/* The peer: see peer_store.c. */
void peer_open(world *w, uint64_t file_bytes);
/* It has what we adopted no longer than to here, or to before. */
void peer_close(world *w);
/* Have the peer spill a value, and put it in a place of peers, of which what was there
 * goes. Returns: what we are handed of it; NULL: its disk fails. */
spw_payload *peer_hand_over(world *w, size_t place, unsigned number, size_t size);
/* The peer lets go of what is in a place, and gives space back. */
void peer_act(world *w, size_t place);

/* Open a place for files: on disk for one seed of 16, for a disk takes most of the time
 * of a seed, and in memory for the others. */
void world_place_open(const world *w, private_place *place);
/* From now on nothing goes wrong with the disk. */
void calm_disk(void);
/* Something is about to, if this is a run in which it may; or nothing any more. */
void trouble_disk(world *w);

/* From now to unwatch, whatever ends the process says in which seed that was. Borrows:
 * w until then. Call it once. */
void failing_seed_watch(const world *w);
void failing_seed_unwatch(void);
/* Ends the process, and says what is wrong, unless the condition holds. */
void world_require(const world *w, bool condition, const char *what);
/* What must be true between any two steps. */
void world_check(const world *w);
/* What must be true where nothing leaves memory, though somebody asked for it. */
void world_check_nothing_can_go(const world *w);

#endif
