/* A store that is simulated, with those who use it, and what must be true of them. */
#ifndef SPW_TESTS_WORLD_H
#define SPW_TESTS_WORLD_H

#include "counted_context.h"
#include "private_place.h"
#include "store/store_state.h"
#include "stored_objects.h"

enum { SLOTS = 24, HELD = 6, DEPTH_MAX = 3, SIZE_MAX_BYTES = 3 << 19 };

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
    slot slots[SLOTS];
    hold holds[HELD];
    unsigned numbers, depth;
    uint64_t now_ms;
    uint64_t refused_packs;
    bool disk_fails; /* for this run */
    uint64_t losses, acquired, left, failed, ahead, received;
} world;

/* Ends the process, and says by which seed, unless the condition holds. */
void world_require(const world *w, bool condition, const char *what);
/* What must be true between any two steps. */
void world_check(const world *w);

#endif
