#include "torture.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk_fault.h"
#include "io_fault.h"

/* A suite whose scenarios reach fewer allocations than that tests nothing. */
enum { LEAST_ALLOCATIONS = 5 };

typedef enum sweep {
    SWEEP_ALLOCATIONS,
    SWEEP_IO_ERRORS,
    SWEEP_IO_AGAIN,
    SWEEP_IO_SHORT,
    SWEEP_COUNT
} sweep;

static const char *const SWEEP_NAMES[SWEEP_COUNT] = {
    "failing allocation", "failing I/O call", "EAGAIN from I/O call", "short I/O call"};

/* What the one cmocka test of a suite works on; a cmocka test takes no arguments, and
 * its teardown tells where it was when it failed. */
static struct {
    const char *suite;
    const struct CMUnitTest *scenarios;
    size_t count;
    uint64_t reached[SWEEP_COUNT];
    sweep sweep;
    size_t scenario;
    uint64_t n;
} run;

static void write_log(void *user, spw_log_level level, const char *message)
{
    torture *t = user;
    (void)level;
    t->log_lines++;
    snprintf(t->last_log_line, sizeof t->last_log_line, "%s", message);
}

uint64_t torture_charged(const torture *t, spw_charge charge)
{
    spw_budget_figures figures;
    spw_budget_read(t->budget, &figures);
    return figures.used_bytes[charge];
}

void torture_assert_nothing_charged(const torture *t)
{
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        assert_int_equal(torture_charged(t, (spw_charge)i), 0);
}

spw_figures torture_figures(const torture *t)
{
    spw_figures figures;
    spw_context_read_figures(t->context, &figures);
    return figures;
}

static void make_context(torture *t, uint64_t limit_bytes)
{
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    uint64_t fail_at = t->allocator.fail_at;
    t->allocator.fail_at = 0;
    assert_ok(spw_budget_create(limit_bytes, &t->budget, NULL));
    options.allocator = counting_allocator_hook(&t->allocator);
    options.log = (spw_log_hook){write_log, t, SPW_LOG_DEBUG};
    options.budget = t->budget;
    options.pool = t->pool;
    assert_ok(spw_context_create(&options, &t->context, NULL));
    /* The context is no part of the scenario. */
    atomic_store(&t->allocator.calls, 0);
    t->allocator.fail_at = fail_at;
}

void torture_limit(torture *t, uint64_t limit_bytes)
{
    spw_context_unref(t->context);
    spw_budget_free(t->budget);
    make_context(t, limit_bytes);
}

void torture_use_pool(torture *t)
{
    t->pool = SPW_POOL_ON;
    torture_limit(t, 0);
}

int torture_setup(void **state)
{
    torture *t = calloc(1, sizeof *t);
    assert_non_null(t);
    make_context(t, 0);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    disk_fault_reset();
    *state = t;
    return 0;
}

/* Everything is given back, whatever happened. */
static void assert_nothing_left(torture *t)
{
    spw_budget_figures figures;
    spw_context_unref(t->context);
    spw_budget_read(t->budget, &figures);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        if (figures.used_bytes[i] != 0)
            fail_msg("%lld bytes stay charged in account %d",
                     (long long)figures.used_bytes[i], i);
    if (figures.shuffled_bytes != 0)
        fail_msg("%llu bytes stay counted as of shuffles",
                 (unsigned long long)figures.shuffled_bytes);
    if (t->allocator.live_blocks != 0)
        fail_msg("%llu bytes in %llu blocks leaked",
                 (unsigned long long)t->allocator.live_bytes,
                 (unsigned long long)t->allocator.live_blocks);
    if (io_fault_mapped_bytes() != 0)
        fail_msg("%lld bytes stay mapped", (long long)io_fault_mapped_bytes());
    if (io_fault_open_descriptors() != 0)
        fail_msg("%d descriptors stay open", io_fault_open_descriptors());
    spw_budget_free(t->budget);
    free(t);
}

int torture_teardown(void **state)
{
    torture *t = *state;
    spw_status status = t->status;
    if (status != SPW_STATUS_OK)
        print_error("the scenario ended with %s: %s\n", spw_status_name(status),
                    t->error.message);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_nothing_left(t);
    return status == SPW_STATUS_OK ? 0 : -1;
}

static void arm(torture *t)
{
    static const io_fault_kind KINDS[SWEEP_COUNT] = {IO_FAULT_NONE, IO_FAULT_ERROR,
                                                     IO_FAULT_AGAIN, IO_FAULT_SHORT};
    if (run.sweep == SWEEP_ALLOCATIONS)
        t->allocator.fail_at = run.n;
    io_fault_arm(KINDS[run.sweep], run.n, 0);
}

/* Returns: whether the fault was reached. */
static bool run_once(const struct CMUnitTest *scenario)
{
    void *state;
    torture_setup(&state);
    torture *t = state;
    arm(t);
    scenario->test_func(&state);
    uint64_t calls =
        run.sweep == SWEEP_ALLOCATIONS ? t->allocator.calls : io_fault_calls();
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    bool is_harmless = run.sweep == SWEEP_IO_AGAIN || run.sweep == SWEEP_IO_SHORT;
    if (t->status == SPW_STATUS_AGAIN)
        fail_msg("it ended with AGAIN, which is no end");
    if (t->status != SPW_STATUS_OK && (is_harmless || calls < run.n))
        fail_msg("nothing failed, and yet it ended with %s: %s",
                 spw_status_name(t->status), t->error.message);
    if (t->status != SPW_STATUS_OK && t->error.message[0] == '\0')
        fail_msg("it ended with %s and no message", spw_status_name(t->status));
    bool is_silent = t->status == SPW_STATUS_OK && t->log_lines == 0;
    if (is_silent && run.sweep == SWEEP_ALLOCATIONS && calls >= run.n)
        fail_msg("an allocation failed and nobody said so");
    assert_nothing_left(t);
    return calls >= run.n;
}

static void survives_every_fault(void **state)
{
    (void)state;
    for (int s = 0; s < SWEEP_COUNT; s++) {
        run.sweep = (sweep)s;
        for (run.scenario = 0; run.scenario < run.count; run.scenario++) {
            run.n = 1;
            while (run_once(&run.scenarios[run.scenario]))
                run.n++;
            run.reached[s] += run.n - 1;
        }
    }
    run.n = 0;
    uint64_t allocations = run.reached[SWEEP_ALLOCATIONS];
    printf("torture: %s: %llu allocations, %llu I/O calls\n", run.suite,
           (unsigned long long)allocations,
           (unsigned long long)run.reached[SWEEP_IO_ERRORS]);
    if (allocations > 0 && allocations < LEAST_ALLOCATIONS)
        fail_msg("fewer than %d allocations: the scenarios are stale",
                 LEAST_ALLOCATIONS);
}

static int tell_where(void **state)
{
    (void)state;
    if (run.n > 0)
        print_error("in %s with %s %llu\n", run.scenarios[run.scenario].name,
                    SWEEP_NAMES[run.sweep], (unsigned long long)run.n);
    return 0;
}

int torture_suite(const char *suite, const struct CMUnitTest *scenarios, size_t count)
{
    memset(&run, 0, sizeof run);
    run.suite = suite;
    run.scenarios = scenarios;
    run.count = count;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(survives_every_fault, tell_where)};
    return cmocka_run_group_tests_name(suite, tests, NULL, NULL);
}
