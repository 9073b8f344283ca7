/* Scenarios: tests that end cleanly whatever fails on the way. As ordinary tests they
 * must succeed; torture_suite runs them again with allocation 1, 2, 3... failing and
 * with socket call 1, 2, 3... failing, until none is left to fail.
 *
 *     static void sends_one_message(void **state)
 *     {
 *         torture *t = *state;
 *         loopback pair = {0};
 *         TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
 *         ...
 *     end:
 *         loopback_close(&pair);
 *     }
 *
 *     int main(void)
 *     {
 *         const struct CMUnitTest scenarios[] = {SCENARIO(sends_one_message)};
 *         int failures = cmocka_run_group_tests(scenarios, NULL, NULL);
 *         return failures + TORTURE_SUITE("connection", scenarios);
 *     }
 */
#ifndef SPW_TESTS_TORTURE_H
#define SPW_TESTS_TORTURE_H

#include "counting_allocator.h"
#include "testing.h"

typedef struct torture {
    counting_allocator allocator;
    spw_budget *budget; /* without a limit until torture_limit */
    spw_pool_use pool;  /* the default, which is off, until torture_use_pool */
    spw_context *context;
    spw_status status; /* what TRY met last */
    spw_error error;
    unsigned log_lines;
    char last_log_line[256];
} torture;

/* Begin again with a budget of limit_bytes, before anything is made from the context.
 */
void torture_limit(torture *t, uint64_t limit_bytes);
/* Begin again with a pool of regions. */
void torture_use_pool(torture *t);
/* What is charged to its budget, and what its context has counted. */
uint64_t torture_charged(const torture *t, spw_charge charge);
void torture_assert_nothing_charged(const torture *t);
spw_figures torture_figures(const torture *t);

/* In a scenario with a torture *t: leave through its label end unless expression is OK.
 * Give &t->error to what is tried, or another spw_error to what may fail. */
#define TRY(expression)                                                                \
    do {                                                                               \
        t->status = (expression);                                                      \
        if (t->status != SPW_STATUS_OK)                                                \
            goto end;                                                                  \
    } while (0)
/* The same for a call that is to answer something other than OK; with that, the
 * scenario goes on. */
#define TRY_STATUS(expression, expected)                                               \
    do {                                                                               \
        t->status = (expression);                                                      \
        if (t->status == SPW_STATUS_OK)                                                \
            fail_msg("%s: OK instead of " #expected, #expression);                     \
        if (t->status != SPW_STATUS_##expected)                                        \
            goto end;                                                                  \
        t->status = SPW_STATUS_OK;                                                     \
    } while (0)

/* A scenario as an ordinary test: it must end with status OK, and its context must have
 * given back all memory, charges and descriptors. */
#define SCENARIO(function)                                                             \
    cmocka_unit_test_setup_teardown(function, torture_setup, torture_teardown)
int torture_setup(void **state);
int torture_teardown(void **state);

/* Run all scenarios with every allocation and every socket call failing in turn, then
 * with every send, receive and accept interrupted or cut short in turn, which must make
 * no difference. Prints how far each went.
 * Returns: 0, or how many of these runs failed. A suite that allocates and reaches
 * fewer than 5 allocations fails: its scenarios are stale. */
int torture_suite(const char *suite, const struct CMUnitTest *scenarios, size_t count);
#define TORTURE_SUITE(suite, scenarios)                                                \
    torture_suite(suite, scenarios, sizeof(scenarios) / sizeof((scenarios)[0]))

#endif
