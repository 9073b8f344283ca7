/* What the store has of a value that was received for it and has not been put: room in
 * memory, or bytes on disk. It is held, as a place, by what the value's frames are in;
 * so it ends in one of three ways: put, given up by the last who had a frame, or
 * cleared with the store. */
#ifndef SPW_STORE_ARRIVAL_H
#define SPW_STORE_ARRIVAL_H

#include "memory/place.h"
#include "store/store_state.h"

struct spw__arrival {
    spw__place place;
    spw_store *store; /* one of its references */
    /* Guarded by the store's lock. Among its arrivals as long as it has something. */
    spw__arrival *next, *previous;
    uint64_t reserved; /* weight in memory */
    spw__range range;  /* on disk */
    bool is_whole;     /* all of it is there */
    /* The value as it is stored, the header first; NULL: it goes to memory. Of whoever
     * receives it until it is whole, then guarded as the others. Until there is a
     * range, its slices have no file and count from 0. */
    spw_payload *on_disk;
};

/* Make one that has nothing. Returns: with one reference. Thread: any. Errors:
 * NO_MEMORY. */
spw_status spw__arrival_create(spw_store *store, spw__arrival **ret_arrival,
                               spw_error *error);
/* The slices of header and count frames of these sizes, of no file. Thread: whoever
 * made the arrival. Errors: NO_MEMORY. */
spw_status spw__arrival_plan(spw__arrival *arrival, const spw_slice *header,
                             const uint64_t *sizes, uint64_t count, spw_error *error);
/* What the plan takes on disk. */
uint64_t spw__arrival_range_bytes(const spw__arrival *arrival);

/* With the lock: reserve room in memory for what has nothing yet, or give it a range.
 */
void spw__arrival_reserve(spw__arrival *arrival, uint64_t weight);
void spw__arrival_give_range(spw__arrival *arrival, const spw__range *range);
/* With the lock: take its range from it, to be given up. */
void spw__arrival_take_range(spw__arrival *arrival, spw__range *ret_range);

/* Whether a payload may be put: whatever is in it of files is of one arrival, whole and
 * in order. Thread: any, without the lock. Errors: INVALID_ARGUMENT. */
spw_status spw__arrival_check(spw_store *store, const spw_payload *payload,
                              spw_error *error);
/* Of a payload that was checked: let what it has here be an entry's. With the lock.
 * Returns: in ret_forms, either payload or what is on disk in its place. Errors:
 * CLOSED.
 */
spw_status spw__arrival_take(spw_store *store, spw_payload *payload,
                             spw__forms *ret_forms, spw_error *error);
/* Take from all arrivals what they have: the store ends. Thread: any, without the lock,
 * while no job of an arrival's runs. */
void spw__arrivals_clear(spw_store *store);

#endif
