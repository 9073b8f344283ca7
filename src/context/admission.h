/* Large messages are let in before anything is taken for them, so that those which
 * arrive at once stay under the budget's limit for that, all peers together. A message
 * is let in as a whole: who is in needs nothing more to come to its end. */
#ifndef SPW_CONTEXT_ADMISSION_H
#define SPW_CONTEXT_ADMISSION_H

#include <stdbool.h>

#include "spillway/budget.h"

/* All times are of one clock that only goes forward. */

/* May a message of bytes come in, which has waited for waited_ms (0: it asks for the
 * first time)? Returns: true, and then spw__budget_leave is due once. Thread: any. */
bool spw__budget_admit(spw_budget *budget, uint64_t bytes, uint64_t now_ms,
                       uint64_t waited_ms);
/* The message is whole, or has failed. Thread: any. */
void spw__budget_leave(spw_budget *budget, uint64_t bytes);
/* Something of a message that was let in has arrived. Thread: any. */
void spw__budget_moved(spw_budget *budget, uint64_t now_ms);

#endif
