/* Regions of the pool of a counted context. */
#ifndef SPW_TESTS_REGIONS_H
#define SPW_TESTS_REGIONS_H

#include "counted_context.h"
#include "memory/region_pool.h"
#include "testing.h"

static inline spw__region acquire(counted_context *counted, size_t size)
{
    spw__region region;
    assert_ok(
        spw__region_acquire(counted->context, size, SPW_CHARGE_HELD, &region, NULL));
    assert_int_equal(region.size, size);
    return region;
}

static inline void release(counted_context *counted, const spw__region *region)
{
    spw__region_release(counted->context, region, SPW_CHARGE_HELD);
}

static inline spw_figures figures_of(const counted_context *counted)
{
    spw_figures figures;
    spw_context_read_figures(counted->context, &figures);
    return figures;
}

#endif
