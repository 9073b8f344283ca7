/* What pieces of shuffles have in memory, all runs of a process together. Most of it is
 * charged where its buffers are; this says how much there is, so that what else has a
 * limit of memory can leave room for it. */
#ifndef SPW_CONTEXT_SHUFFLED_H
#define SPW_CONTEXT_SHUFFLED_H

#include "spillway/budget.h"

/* So much more is there. Thread: any. */
void spw__budget_shuffled_came(spw_budget *budget, uint64_t bytes);
/* So much of what came has gone. Thread: any. */
void spw__budget_shuffled_went(spw_budget *budget, uint64_t bytes);
/* Returns: what is there. Thread: any. */
uint64_t spw__budget_shuffled(const spw_budget *budget);

#endif
