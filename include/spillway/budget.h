/* The budget: one object per process in which every byte that the library holds,
 * queues or has in flight is charged. Contexts borrow it; no layer has a limit of
 * its own beside it. */
#ifndef SPILLWAY_BUDGET_H
#define SPILLWAY_BUDGET_H

#include <stdint.h>

#include "spillway/status.h"

typedef struct spw_budget spw_budget;

typedef enum spw_charge {
    SPW_CHARGE_HELD = 0,      /* buffers that a committed message handed out */
    SPW_CHARGE_QUEUED = 1,    /* bytes in send queues: the caller's memory, pinned */
    SPW_CHARGE_IN_FLIGHT = 2, /* reserved for bodies that are still arriving */
    SPW_CHARGE_POOLED = 3, /* cached for the next body, and what buffers round up to */
    SPW_CHARGE_SPILLING = 4, /* being packed and written to disk */
    SPW_CHARGE_COUNT = 5
} spw_charge;

typedef struct spw_budget_figures {
    uint64_t limit_bytes; /* 0: no limit */
    uint64_t used_bytes[SPW_CHARGE_COUNT];
    uint64_t peak_bytes;            /* highest sum of the accounts */
    uint64_t refusals;              /* charges refused because of the limit */
    uint64_t in_flight_limit_bytes; /* 0: no limit */
    uint64_t held_back;             /* messages that waited because of that limit */
    uint64_t shuffled_bytes;        /* what all spw_partitions hold, which is charged as
                                     * held where it is memory of ours */
} spw_budget_figures;

/* Make a budget of limit_bytes (0: unlimited, only counted).
 * Returns: a budget to be freed by spw_budget_free after every context that borrows
 * it. Thread: any. Errors: NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status spw_budget_create(uint64_t limit_bytes,
                                                      spw_budget **ret_budget,
                                                      spw_error *error);
/* End a budget.
 * Takes: budget (NULL allowed), in which nothing may be charged any more. Thread: any.
 */
SPW_EXPORT void spw_budget_free(spw_budget *budget);

/* Charge bytes, or refuse and change nothing. Before it refuses, whatever the pools of
 * the contexts that borrow the budget have cached is given back.
 * Thread: any. Errors: LIMIT_EXCEEDED, with the figures in the message. */
SPW_EXPORT SPW_NODISCARD spw_status spw_budget_charge(spw_budget *budget,
                                                      spw_charge charge, uint64_t bytes,
                                                      spw_error *error);
/* Let large messages of so many bytes together arrive at once (0: unlimited, as at
 * first), whatever the number of peers. One that would be more waits, unread, so that
 * its sender does; not if it is alone, not for ever (10 s), and not while nothing of
 * what is arriving moves (2 s), which from then on no longer counts: a peer that has
 * stopped does not stop the others. It holds for connections that have a reactor.
 * Thread: any. */
SPW_EXPORT void spw_budget_limit_in_flight(spw_budget *budget, uint64_t bytes);
/* Move an earlier charge to another account; never refused. Thread: any. */
SPW_EXPORT void spw_budget_move(spw_budget *budget, spw_charge from, spw_charge to,
                                uint64_t bytes);
/* Give back an earlier charge. Thread: any. */
SPW_EXPORT void spw_budget_release(spw_budget *budget, spw_charge charge,
                                   uint64_t bytes);
/* Read all figures, one after another, not as one snapshot.
 * Returns: in ret_figures, of the caller's. Thread: any. */
SPW_EXPORT void spw_budget_read(const spw_budget *budget,
                                spw_budget_figures *ret_figures);

#endif
