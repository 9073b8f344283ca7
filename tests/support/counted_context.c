#include "counted_context.h"

#include "io_fault.h"
#include "testing.h"

static void open_with(counted_context *counted, uint64_t bytes_per_message,
                      uint64_t budget_bytes, spw_pool_use pool)
{
    *counted = (counted_context){0};
    assert_ok(spw_budget_create(budget_bytes, &counted->budget, NULL));
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.allocator = counting_allocator_hook(&counted->allocator);
    options.limits.bytes_per_message = bytes_per_message;
    options.budget = counted->budget;
    options.pool = pool;
    assert_ok(spw_context_create(&options, &counted->context, NULL));
}

void counted_context_open(counted_context *counted, uint64_t bytes_per_message,
                          uint64_t budget_bytes)
{
    open_with(counted, bytes_per_message, budget_bytes, SPW_POOL_OFF);
}

void counted_context_open_pool(counted_context *counted, uint64_t budget_bytes)
{
    open_with(counted, 0, budget_bytes, SPW_POOL_ON);
}

void counted_context_close(counted_context *counted)
{
    /* What a pool has cached stays charged until the context is gone. */
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        if (i != SPW_CHARGE_POOLED)
            assert_int_equal(counted_context_charged(counted, (spw_charge)i), 0);
    spw_context_unref(counted->context);
    counted_context_check_uncharged(counted);
    assert_int_equal(counted->allocator.live_blocks, 0);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    spw_budget_free(counted->budget);
}

void counted_context_fail_at(counted_context *counted, size_t n)
{
    counted->allocator.calls = 0;
    counted->allocator.fail_at = n;
}

uint64_t counted_context_charged(const counted_context *counted, spw_charge charge)
{
    spw_budget_figures figures;
    spw_budget_read(counted->budget, &figures);
    return figures.used_bytes[charge];
}

void counted_context_check_uncharged(const counted_context *counted)
{
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        assert_int_equal(counted_context_charged(counted, (spw_charge)i), 0);
}
