/* The budget counts; it never allocates for others and never waits.
 * Invariant: total is the sum of the accounts, and with a limit no successful charge
 * leaves total above it. */
#include "spillway/budget.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "context/error.h"

struct spw_budget {
    uint64_t limit_bytes; /* fixed at creation */
    /* All below: atomic, any thread. */
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t refusals;
    _Atomic uint64_t used_bytes[SPW_CHARGE_COUNT];
};

spw_status spw_budget_create(uint64_t limit_bytes, spw_budget **ret_budget,
                             spw_error *error)
{
    /* Made before any context, whose allocator it therefore cannot use. */
    spw_budget *budget = calloc(1, sizeof *budget);
    if (budget == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a budget");
    budget->limit_bytes = limit_bytes;
    *ret_budget = budget;
    return SPW_STATUS_OK;
}

void spw_budget_free(spw_budget *budget)
{
    free(budget);
}

static void raise_peak(spw_budget *budget, uint64_t total)
{
    uint64_t peak = atomic_load_explicit(&budget->peak_bytes, memory_order_relaxed);
    while (total > peak && !atomic_compare_exchange_weak_explicit(
                               &budget->peak_bytes, &peak, total, memory_order_relaxed,
                               memory_order_relaxed))
        ;
}

spw_status spw_budget_charge(spw_budget *budget, spw_charge charge, uint64_t bytes,
                             spw_error *error)
{
    uint64_t limit = budget->limit_bytes == 0 ? UINT64_MAX : budget->limit_bytes;
    uint64_t total = atomic_load_explicit(&budget->total_bytes, memory_order_relaxed);
    do {
        if (total > limit || bytes > limit - total) {
            atomic_fetch_add_explicit(&budget->refusals, 1, memory_order_relaxed);
            return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                                  "%" PRIu64 " bytes refused: %" PRIu64
                                  " of the budget's %" PRIu64
                                  " bytes are in use; release data, or raise "
                                  "the budget",
                                  bytes, total, limit);
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->total_bytes, &total,
                                                    total + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&budget->used_bytes[charge], bytes, memory_order_relaxed);
    raise_peak(budget, total + bytes);
    return SPW_STATUS_OK;
}

void spw_budget_move(spw_budget *budget, spw_charge from, spw_charge to, uint64_t bytes)
{
    atomic_fetch_add_explicit(&budget->used_bytes[to], bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&budget->used_bytes[from], bytes, memory_order_relaxed);
}

void spw_budget_release(spw_budget *budget, spw_charge charge, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->used_bytes[charge], bytes, memory_order_relaxed);
    atomic_fetch_sub_explicit(&budget->total_bytes, bytes, memory_order_relaxed);
}

void spw_budget_read(const spw_budget *budget, spw_budget_figures *ret_figures)
{
    *ret_figures = (spw_budget_figures){
        .limit_bytes = budget->limit_bytes,
        .peak_bytes = atomic_load(&budget->peak_bytes),
        .refusals = atomic_load(&budget->refusals),
    };
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        ret_figures->used_bytes[i] = atomic_load(&budget->used_bytes[i]);
}
