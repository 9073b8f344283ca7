/* Values that lie in a file of a peer's, and stay there: a payload with its header in
 * memory, and all else that has bytes in ranges of one file which has no place. */
#ifndef SPW_STORE_ADOPT_H
#define SPW_STORE_ADOPT_H

#include "store/store_state.h"

/* Whether a payload is to be adopted, and not an arrival's: it has ranges of a file
 * that nobody here has a place in. Thread: whoever has it. */
bool spw__payload_is_foreign(const spw_payload *payload);
/* Have such a payload on disk as it is: its slices are of our own file from then on.
 * Takes: payload, on success only, in ret_forms. Thread: any, without the lock; asks
 * the file system. Errors: those of spw__segments_adopt; INVALID_ARGUMENT (it is not as
 * above, or the store has no directory), CLOSED, LIMIT_EXCEEDED. */
spw_status spw__payload_adopt(spw_store *store, spw_payload *payload,
                              spw__forms *ret_forms, spw_error *error);

#endif
