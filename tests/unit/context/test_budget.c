#include "spillway/budget.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "context/admission.h"
#include "context/reclaim.h"
#include "testing.h"

static spw_budget *make(uint64_t limit)
{
    spw_budget *budget;
    assert_ok(spw_budget_create(limit, &budget, NULL));
    return budget;
}

static spw_budget_figures read_figures(const spw_budget *budget)
{
    spw_budget_figures figures;
    spw_budget_read(budget, &figures);
    return figures;
}

static void a_charge_stands_in_its_account(void **state)
{
    (void)state;
    spw_budget *budget = make(0);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 10, NULL));
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_QUEUED, 200, NULL));
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_IN_FLIGHT, 3000, NULL));
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_POOLED, 40000, NULL));
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_SPILLING, 500000, NULL));
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.limit_bytes, 0);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_HELD], 10);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_QUEUED], 200);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_IN_FLIGHT], 3000);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_POOLED], 40000);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_SPILLING], 500000);
    assert_int_equal(figures.peak_bytes, 543210);
    spw_budget_free(budget);
}

static void a_release_gives_back_and_the_peak_stays(void **state)
{
    (void)state;
    spw_budget *budget = make(100);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 100, NULL));
    spw_budget_release(budget, SPW_CHARGE_HELD, 60);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_QUEUED, 20, NULL));
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_HELD], 40);
    assert_int_equal(figures.peak_bytes, 100);
    spw_budget_free(budget);
}

static void a_move_changes_accounts_but_not_the_sum(void **state)
{
    (void)state;
    spw_budget *budget = make(100);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_IN_FLIGHT, 100, NULL));
    spw_budget_move(budget, SPW_CHARGE_IN_FLIGHT, SPW_CHARGE_HELD, 70);
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_IN_FLIGHT], 30);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_HELD], 70);
    assert_int_equal(figures.peak_bytes, 100);
    assert_status(spw_budget_charge(budget, SPW_CHARGE_HELD, 1, NULL), LIMIT_EXCEEDED);
    spw_budget_free(budget);
}

static void a_charge_over_the_limit_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    spw_budget *budget = make(100);
    spw_error error;
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 60, NULL));
    assert_status(spw_budget_charge(budget, SPW_CHARGE_QUEUED, 41, &error),
                  LIMIT_EXCEEDED);
    assert_non_null(strstr(error.message, "41 bytes refused"));
    assert_non_null(strstr(error.message, "60 of the budget's 100"));
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_QUEUED], 0);
    assert_int_equal(figures.refusals, 1);
    assert_int_equal(figures.peak_bytes, 60);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_QUEUED, 40, NULL));
    spw_budget_free(budget);
}

static void what_gives_memory_back_is_never_refused(void **state)
{
    (void)state;
    spw_budget *budget = make(100);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 100, NULL));
    spw__budget_add(budget, SPW_CHARGE_SPILLING, 30);
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_SPILLING], 30);
    assert_int_equal(figures.peak_bytes, 130);
    assert_int_equal(figures.refusals, 0);
    /* Others have to wait until the sum is under the limit again. */
    spw_budget_release(budget, SPW_CHARGE_HELD, 20);
    assert_status(spw_budget_charge(budget, SPW_CHARGE_HELD, 1, NULL), LIMIT_EXCEEDED);
    spw_budget_release(budget, SPW_CHARGE_SPILLING, 30);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 20, NULL));
    spw_budget_free(budget);
}

static void sums_do_not_wrap(void **state)
{
    (void)state;
    static const uint64_t LIMITS[] = {0, 1000, UINT64_MAX};
    for (size_t i = 0; i < sizeof LIMITS / sizeof LIMITS[0]; i++) {
        spw_budget *budget = make(LIMITS[i]);
        assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 2, NULL));
        assert_status(spw_budget_charge(budget, SPW_CHARGE_HELD, UINT64_MAX - 1, NULL),
                      LIMIT_EXCEEDED);
        assert_int_equal(read_figures(budget).used_bytes[SPW_CHARGE_HELD], 2);
        spw_budget_free(budget);
    }
}

typedef struct cached_bytes {
    spw_budget *budget;
    uint64_t bytes;
    unsigned asked;
} cached_bytes;

static void give_back(void *user)
{
    cached_bytes *cached = user;
    spw_budget_release(cached->budget, SPW_CHARGE_POOLED, cached->bytes);
    cached->bytes = 0;
    cached->asked++;
}

static void who_can_gives_back_before_a_charge_is_refused(void **state)
{
    (void)state;
    spw_budget *budget = make(100);
    cached_bytes cached[2] = {{budget, 30, 0}, {budget, 20, 0}};
    spw__reclaimer reclaimers[2] = {{give_back, &cached[0], NULL},
                                    {give_back, &cached[1], NULL}};
    for (int i = 0; i < 2; i++) {
        spw__budget_add_reclaimer(budget, &reclaimers[i]);
        assert_ok(spw_budget_charge(budget, SPW_CHARGE_POOLED, cached[i].bytes, NULL));
    }
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_HELD, 50, NULL));
    assert_int_equal(cached[0].asked + cached[1].asked, 0);
    assert_ok(spw_budget_charge(budget, SPW_CHARGE_QUEUED, 50, NULL));
    assert_int_equal(cached[0].asked, 1);
    assert_int_equal(cached[1].asked, 1);
    assert_int_equal(read_figures(budget).used_bytes[SPW_CHARGE_POOLED], 0);
    assert_int_equal(read_figures(budget).refusals, 0);
    assert_int_equal(read_figures(budget).peak_bytes, 100);
    /* They have nothing left, and one after the other goes. */
    for (unsigned i = 0; i < 2; i++) {
        assert_status(spw_budget_charge(budget, SPW_CHARGE_HELD, 1, NULL),
                      LIMIT_EXCEEDED);
        assert_int_equal(cached[0].asked, 2);
        assert_int_equal(cached[1].asked, 2 + i);
        spw__budget_remove_reclaimer(budget, &reclaimers[i]);
    }
    assert_status(spw_budget_charge(budget, SPW_CHARGE_HELD, 1, NULL), LIMIT_EXCEEDED);
    assert_int_equal(cached[1].asked, 3);
    assert_int_equal(read_figures(budget).refusals, 3);
    spw_budget_free(budget);
}

static void nothing_is_freed_as_nothing(void **state)
{
    (void)state;
    spw_budget_free(NULL);
}

enum { THREADS = 4, ROUNDS = 20000, LIMIT = 10 };

static void *charge_and_release(void *user)
{
    spw_budget *budget = user;
    size_t *refused = calloc(1, sizeof *refused);
    for (int i = 0; refused != NULL && i < ROUNDS; i++) {
        uint64_t bytes = (uint64_t)(i % 5 + 1);
        if (spw_budget_charge(budget, SPW_CHARGE_IN_FLIGHT, bytes, NULL) !=
            SPW_STATUS_OK) {
            ++*refused;
            continue;
        }
        spw_budget_move(budget, SPW_CHARGE_IN_FLIGHT, SPW_CHARGE_HELD, bytes);
        spw_budget_release(budget, SPW_CHARGE_HELD, bytes);
    }
    return refused;
}

static void threads_together_stay_within_the_limit(void **state)
{
    (void)state;
    spw_budget *budget = make(LIMIT);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, charge_and_release, budget),
                         0);
    uint64_t refused = 0;
    for (int i = 0; i < THREADS; i++) {
        void *mine;
        assert_int_equal(pthread_join(threads[i], &mine), 0);
        assert_non_null(mine);
        refused += *(size_t *)mine;
        free(mine);
    }
    spw_budget_figures figures = read_figures(budget);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        assert_int_equal(figures.used_bytes[i], 0);
    assert_in_range(figures.peak_bytes, 5, LIMIT);
    assert_int_equal(figures.refusals, refused);
    spw_budget_free(budget);
}

/* ---- what may be arriving at once ---- */

static void large_messages_are_let_in_up_to_a_limit(void **state)
{
    (void)state;
    spw_budget *budget = make(0);
    spw__admission admission;
    assert_true(spw__budget_admit(budget, UINT64_MAX / 2, 1000, 0,
                                  &admission)); /* no limit yet */
    spw__budget_leave(budget, &admission);
    spw_budget_limit_in_flight(budget, 100);
    assert_true(spw__budget_admit(budget, 1000, 1000, 0, &admission)); /* it is alone */
    assert_false(spw__budget_admit(budget, 1, 1000, 0, &admission));
    spw__budget_leave(budget, &admission);
    assert_true(spw__budget_admit(budget, 60, 1000, 0, &admission));
    assert_true(spw__budget_admit(budget, 40, 1000, 0, &admission));
    assert_false(spw__budget_admit(budget, 1, 1000, 0, &admission));
    assert_false(spw__budget_admit(budget, 1, 1000, 5,
                                   &admission)); /* who asks again is counted once */
    assert_false(spw__budget_admit(budget, UINT64_MAX, 1000, 0, &admission));
    spw__budget_leave(budget, &admission);
    assert_true(spw__budget_admit(budget, 40, 1000, 7, &admission));
    spw_budget_figures figures = read_figures(budget);
    assert_int_equal(figures.in_flight_limit_bytes, 100);
    assert_int_equal(figures.held_back, 3);
    assert_int_equal(figures.peak_bytes, 0); /* it charges nothing */
    spw_budget_free(budget);
}

static void nobody_waits_for_ever_to_be_let_in(void **state)
{
    (void)state;
    spw_budget *budget = make(0);
    spw__admission admission;
    spw_budget_limit_in_flight(budget, 100);
    assert_true(spw__budget_admit(budget, 90, 5000, 0, &admission));
    assert_false(spw__budget_admit(budget, 50, 5000, 0, &admission));
    assert_false(
        spw__budget_admit(budget, 50, 6999, 1999, &admission)); /* it may still move */
    assert_false(spw__budget_admit(budget, 50, 7000, 1999, &admission));
    spw__budget_moved(budget, 7000);
    assert_false(spw__budget_admit(budget, 50, 7000, 2000, &admission)); /* it does */
    spw__admission stalled = admission;
    assert_true(spw__budget_admit(budget, 50, 9000, 4000, &admission));
    /* What is stuck counts no longer, so the next one need not wait for that again. */
    assert_true(spw__budget_admit(budget, 50, 9000, 0, &admission));
    assert_false(spw__budget_admit(budget, 1, 9000, 0, &admission));
    spw__budget_leave(budget, &stalled);
    assert_false(spw__budget_admit(budget, 1, 9000, 0, &admission));
    spw__budget_moved(budget, 14999);
    assert_false(spw__budget_admit(budget, 50, 14999, 9999, &admission));
    assert_true(spw__budget_admit(budget, 50, 14999, 10000, &admission));
    spw_budget_free(budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_charge_stands_in_its_account),
        cmocka_unit_test(a_release_gives_back_and_the_peak_stays),
        cmocka_unit_test(a_move_changes_accounts_but_not_the_sum),
        cmocka_unit_test(a_charge_over_the_limit_is_refused_and_changes_nothing),
        cmocka_unit_test(what_gives_memory_back_is_never_refused),
        cmocka_unit_test(sums_do_not_wrap),
        cmocka_unit_test(who_can_gives_back_before_a_charge_is_refused),
        cmocka_unit_test(nothing_is_freed_as_nothing),
        cmocka_unit_test(threads_together_stay_within_the_limit),
        cmocka_unit_test(large_messages_are_let_in_up_to_a_limit),
        cmocka_unit_test(nobody_waits_for_ever_to_be_let_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
