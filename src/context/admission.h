/* Large messages are let in before anything is taken for them, so that those which
 * arrive at once stay under the budget's limit for that, all peers together. A message
 * is let in as a whole: who is in needs nothing more to come to its end. */
#ifndef SPW_CONTEXT_ADMISSION_H
#define SPW_CONTEXT_ADMISSION_H

#include <stdbool.h>

#include "spillway/budget.h"

/* All times are of one clock that only goes forward. */

/* What a message that was let in takes of the limit, until it leaves. */
typedef struct spw__admission {
    uint64_t bytes;
    uint64_t round; /* of those that were let in since something last was stuck */
} spw__admission;

/* May a message of bytes come in, which has waited for waited_ms (0: it asks for the
 * first time)? It may where it fits, and where it has waited for too long. What is in
 * and has not moved meanwhile no longer counts. Returns: true, and then
 * spw__budget_leave is due once for what it gave. Thread: any. */
bool spw__budget_admit(spw_budget *budget, uint64_t bytes, uint64_t now_ms,
                       uint64_t waited_ms, spw__admission *ret_admission);
/* The message is whole, or has failed. Thread: any. */
void spw__budget_leave(spw_budget *budget, const spw__admission *admission);
/* Something of a message that was let in has arrived. Thread: any. */
void spw__budget_moved(spw_budget *budget, uint64_t now_ms);

#endif
