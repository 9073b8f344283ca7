#include "torture.h"

#include <stdbool.h>
#include <stdio.h>

#include "testing.h"

/* Fewer are no test: the work does not reach what it is meant to. */
enum { ALLOCATIONS_MIN = 5 };

/* One run with allocation n failing. Returns: true when there was none to fail. */
static bool passes_without(size_t n, torture_work work, void *user)
{
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    uint64_t blocks_before = counted.allocator.live_blocks;
    counted_context_fail_at(&counted, n);
    spw_error error = {0};
    spw_status status = work(counted.context, user, &error);
    bool is_reached = counted.allocator.calls >= n;
    if (is_reached) {
        assert_status(status, NO_MEMORY);
        assert_int_equal(error.status, SPW_STATUS_NO_MEMORY);
        assert_int_not_equal(error.message[0], '\0');
    } else {
        assert_ok(status);
    }
    if (counted.allocator.live_blocks != blocks_before)
        fail_msg("allocation %zu failed: something is left behind", n);
    counted_context_close(&counted);
    return !is_reached;
}

void torture_allocations(const char *name, torture_work work, void *user)
{
    size_t n = 1;
    while (!passes_without(n, work, user))
        n++;
    printf("%s: each of %zu allocations failed once\n", name, n - 1);
    if (n - 1 < ALLOCATIONS_MIN)
        fail_msg("%s allocates %zu times: too few to be a test", name, n - 1);
}
