/* Who gives memory back: before a budget refuses a charge, and at the cost of more for
 * a while. */
#ifndef SPW_CONTEXT_RECLAIM_H
#define SPW_CONTEXT_RECLAIM_H

#include "spillway/budget.h"

typedef struct spw__reclaimer {
    /* Release what is charged for nobody's sake. Must not charge the budget. Thread:
     * any; one call at a time. */
    void (*give_back)(void *user);
    void *user;
    struct spw__reclaimer *next; /* the budget's */
} spw__reclaimer;

/* Borrows: reclaimer, until it is removed. Thread: any. */
void spw__budget_add_reclaimer(spw_budget *budget, spw__reclaimer *reclaimer);
/* Afterwards no call of it is under way. Not from within one. Thread: any. */
void spw__budget_remove_reclaimer(spw_budget *budget, spw__reclaimer *reclaimer);

/* Charge bytes to be given back by spw_budget_release. Never refused, for it is by what
 * it takes for a moment that memory is given back; others are refused sooner. Thread:
 * any. */
void spw__budget_add(spw_budget *budget, spw_charge charge, uint64_t bytes);

#endif
