/* The budget counts; it never allocates for others, and waits for nobody but those who
 * give memory back when it is short.
 * Invariant: total is the sum of the accounts, and with a limit no successful charge
 * leaves total above it; spw__budget_add may. */
#include "spillway/budget.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "context/admission.h"
#include "context/error.h"
#include "context/reclaim.h"
#include "context/shuffled.h"

struct spw_budget {
    uint64_t limit_bytes;       /* fixed at creation */
    pthread_mutex_t reclaiming; /* guards the list, and is held while it is called */
    spw__reclaimer *reclaimers;
    /* All below: atomic, any thread. */
    _Atomic uint64_t total_bytes;
    _Atomic uint64_t peak_bytes;
    _Atomic uint64_t refusals;
    _Atomic uint64_t used_bytes[SPW_CHARGE_COUNT];
    _Atomic uint64_t in_flight_limit_bytes; /* 0: none */
    _Atomic uint64_t admitted; /* their round, and their bytes: see spw__budget_admit */
    _Atomic uint64_t held_back;
    _Atomic uint64_t shuffled_bytes;
    _Atomic uint64_t moved_ms; /* when something admitted last moved, by the clock */
};

/* What is arriving and does not move for so long holds nobody back. */
static const uint64_t STUCK_MS = 2000;
/* Nobody waits longer to be let in. */
static const uint64_t ADMIT_ANYWAY_MS = 10000;

spw_status spw_budget_create(uint64_t limit_bytes, spw_budget **ret_budget,
                             spw_error *error)
{
    /* Made before any context, whose allocator it therefore cannot use. */
    spw_budget *budget = calloc(1, sizeof *budget);
    if (budget == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0, "no memory for a budget");
    budget->limit_bytes = limit_bytes;
    (void)pthread_mutex_init(&budget->reclaiming, NULL); /* plain ones cannot fail */
    *ret_budget = budget;
    return SPW_STATUS_OK;
}

void spw_budget_free(spw_budget *budget)
{
    if (budget == NULL)
        return;
    (void)pthread_mutex_destroy(&budget->reclaiming);
    free(budget);
}

void spw__budget_add_reclaimer(spw_budget *budget, spw__reclaimer *reclaimer)
{
    (void)pthread_mutex_lock(&budget->reclaiming);
    reclaimer->next = budget->reclaimers;
    budget->reclaimers = reclaimer;
    (void)pthread_mutex_unlock(&budget->reclaiming);
}

void spw__budget_remove_reclaimer(spw_budget *budget, spw__reclaimer *reclaimer)
{
    (void)pthread_mutex_lock(&budget->reclaiming);
    spw__reclaimer **link = &budget->reclaimers;
    while (*link != reclaimer)
        link = &(*link)->next;
    *link = reclaimer->next;
    (void)pthread_mutex_unlock(&budget->reclaiming);
}

static void reclaim(spw_budget *budget)
{
    (void)pthread_mutex_lock(&budget->reclaiming);
    for (spw__reclaimer *one = budget->reclaimers; one != NULL; one = one->next)
        one->give_back(one->user);
    (void)pthread_mutex_unlock(&budget->reclaiming);
}

static void raise_peak(spw_budget *budget, uint64_t total)
{
    uint64_t peak = atomic_load_explicit(&budget->peak_bytes, memory_order_relaxed);
    while (total > peak && !atomic_compare_exchange_weak_explicit(
                               &budget->peak_bytes, &peak, total, memory_order_relaxed,
                               memory_order_relaxed))
        ;
}

static uint64_t limit_of(const spw_budget *budget)
{
    return budget->limit_bytes == 0 ? UINT64_MAX : budget->limit_bytes;
}

/* Returns: whether the limit allows it; if not, in ret_total what is in use. */
static bool try_charge(spw_budget *budget, spw_charge charge, uint64_t bytes,
                       uint64_t *ret_total)
{
    uint64_t limit = limit_of(budget);
    uint64_t total = atomic_load_explicit(&budget->total_bytes, memory_order_relaxed);
    do {
        if (total > limit || bytes > limit - total) {
            *ret_total = total;
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->total_bytes, &total,
                                                    total + bytes, memory_order_relaxed,
                                                    memory_order_relaxed));
    atomic_fetch_add_explicit(&budget->used_bytes[charge], bytes, memory_order_relaxed);
    raise_peak(budget, total + bytes);
    return true;
}

spw_status spw_budget_charge(spw_budget *budget, spw_charge charge, uint64_t bytes,
                             spw_error *error)
{
    uint64_t total;
    if (try_charge(budget, charge, bytes, &total))
        return SPW_STATUS_OK;
    reclaim(budget);
    if (try_charge(budget, charge, bytes, &total))
        return SPW_STATUS_OK;
    atomic_fetch_add_explicit(&budget->refusals, 1, memory_order_relaxed);
    return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                          "%" PRIu64 " bytes refused: %" PRIu64
                          " of the budget's %" PRIu64
                          " bytes are in use; release data, or raise the budget",
                          bytes, total, limit_of(budget));
}

void spw__budget_add(spw_budget *budget, spw_charge charge, uint64_t bytes)
{
    uint64_t before =
        atomic_fetch_add_explicit(&budget->total_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&budget->used_bytes[charge], bytes, memory_order_relaxed);
    raise_peak(budget, before + bytes);
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

void spw_budget_limit_in_flight(spw_budget *budget, uint64_t bytes)
{
    atomic_store(&budget->in_flight_limit_bytes, bytes);
}

/* A number of rounds, and of bytes, which change together. */
enum { ROUND_SHIFT = 48 };
static const uint64_t BYTES_MASK = (UINT64_C(1) << ROUND_SHIFT) - 1;
/* What counts of one message: so much that no other fits beside it. */
static const uint64_t COUNTED_MAX = UINT64_C(1) << 40;

static bool is_stuck(const spw_budget *budget, uint64_t now_ms, uint64_t waited_ms)
{
    uint64_t moved_ms = atomic_load(&budget->moved_ms);
    return waited_ms >= STUCK_MS && now_ms >= moved_ms && now_ms - moved_ms >= STUCK_MS;
}

bool spw__budget_admit(spw_budget *budget, uint64_t bytes, uint64_t now_ms,
                       uint64_t waited_ms, spw__admission *ret_admission)
{
    uint64_t limit = atomic_load(&budget->in_flight_limit_bytes);
    uint64_t counted = bytes < COUNTED_MAX ? bytes : COUNTED_MAX;
    bool begins_round = is_stuck(budget, now_ms, waited_ms);
    bool is_free = limit == 0 || begins_round || waited_ms >= ADMIT_ANYWAY_MS;
    uint64_t admitted = atomic_load(&budget->admitted), after;
    do {
        uint64_t used = admitted & BYTES_MASK;
        bool fits = used == 0 || (bytes <= limit && used <= limit - bytes);
        if (!is_free && !fits) {
            if (waited_ms == 0)
                atomic_fetch_add(&budget->held_back, 1);
            return false;
        }
        after = begins_round ? ((admitted >> ROUND_SHIFT) + 1) << ROUND_SHIFT | counted
                             : admitted + counted;
    } while (!atomic_compare_exchange_weak(&budget->admitted, &admitted, after));
    *ret_admission = (spw__admission){.bytes = counted, .round = after >> ROUND_SHIFT};
    spw__budget_moved(budget, now_ms);
    return true;
}

void spw__budget_leave(spw_budget *budget, const spw__admission *admission)
{
    uint64_t admitted = atomic_load(&budget->admitted);
    while (admitted >> ROUND_SHIFT == admission->round &&
           !atomic_compare_exchange_weak(&budget->admitted, &admitted,
                                         admitted - admission->bytes))
        ;
}

void spw__budget_moved(spw_budget *budget, uint64_t now_ms)
{
    atomic_store_explicit(&budget->moved_ms, now_ms, memory_order_relaxed);
}

void spw__budget_shuffled_came(spw_budget *budget, uint64_t bytes)
{
    atomic_fetch_add_explicit(&budget->shuffled_bytes, bytes, memory_order_relaxed);
}

void spw__budget_shuffled_went(spw_budget *budget, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&budget->shuffled_bytes, bytes, memory_order_relaxed);
}

uint64_t spw__budget_shuffled(const spw_budget *budget)
{
    return atomic_load_explicit(&budget->shuffled_bytes, memory_order_relaxed);
}

void spw_budget_read(const spw_budget *budget, spw_budget_figures *ret_figures)
{
    *ret_figures = (spw_budget_figures){
        .limit_bytes = budget->limit_bytes,
        .peak_bytes = atomic_load(&budget->peak_bytes),
        .refusals = atomic_load(&budget->refusals),
        .in_flight_limit_bytes = atomic_load(&budget->in_flight_limit_bytes),
        .held_back = atomic_load(&budget->held_back),
        .shuffled_bytes = spw__budget_shuffled(budget),
    };
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        ret_figures->used_bytes[i] = atomic_load(&budget->used_bytes[i]);
}
