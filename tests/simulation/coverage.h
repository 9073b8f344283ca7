/* What a simulation came by, over all of its seeds: so that two versions of it, or two
 * sets of seeds, can be compared. */
#ifndef SPW_TESTS_COVERAGE_H
#define SPW_TESTS_COVERAGE_H

#include <stdint.h>

#include "store/store_state.h"

typedef enum act_kind {
    ACT_PUT,
    ACT_REMOVE,
    ACT_ACQUIRE,
    ACT_TRY_ACQUIRE,
    ACT_HOLD,
    ACT_LET_GO,
    ACT_SPILL,
    ACT_EVICT,
    ACT_RUN_JOB,
    ACT_WORK,
    ACT_READ_AHEAD,
    ACT_ADOPT,
    ACT_PEER,
    ACT_RECEIVE,
    ACT_TROUBLE,
    ACT_COUNT
} act_kind;

/* Somebody does something in the middle of so many others, to an entry or to none
 * (NULL) as it is now. */
void coverage_note_act(act_kind kind, unsigned depth, const spw_entry *entry);
/* A run ends. */
void coverage_note_end(const spw_store *store);
/* To standard output. */
void coverage_print(void);

#endif
