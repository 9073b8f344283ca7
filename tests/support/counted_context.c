#include "counted_context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static void *allocate(void *user, size_t size, size_t alignment)
{
    counted_context *counted = user;
    counted->calls++;
    if (counted->calls == counted->fail_at)
        return NULL;
    void *pointer = NULL;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&pointer, alignment, size) != 0)
        return NULL;
    counted->live_allocations++;
    return pointer;
}

static void release(void *user, void *pointer, size_t size, size_t alignment)
{
    (void)size;
    (void)alignment;
    counted_context *counted = user;
    counted->live_allocations--;
    free(pointer);
}

void counted_context_open(counted_context *counted, uint64_t bytes_per_message,
                          uint64_t budget_bytes)
{
    *counted = (counted_context){0};
    assert_int_equal(spw_budget_create(budget_bytes, &counted->budget, NULL),
                     SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.allocator = (spw_allocator){allocate, release, counted};
    options.limits.bytes_per_message = bytes_per_message;
    options.budget = counted->budget;
    assert_int_equal(spw_context_create(&options, &counted->context, NULL),
                     SPW_STATUS_OK);
}

void counted_context_close(counted_context *counted)
{
    counted_context_check_uncharged(counted);
    spw_context_unref(counted->context);
    assert_int_equal(counted->live_allocations, 0);
    spw_budget_free(counted->budget);
}

void counted_context_fail_at(counted_context *counted, size_t n)
{
    counted->calls = 0;
    counted->fail_at = n;
}

void counted_context_check_uncharged(const counted_context *counted)
{
    spw_budget_figures figures;
    spw_budget_read(counted->budget, &figures);
    for (int i = 0; i < SPW_CHARGE_COUNT; i++)
        assert_int_equal(figures.used_bytes[i], 0);
}
