/* A context for tests: a budget of its own and the counting allocator. */
#ifndef TEST_COUNTED_CONTEXT_H
#define TEST_COUNTED_CONTEXT_H

#include "counting_allocator.h"
#include "spillway/context.h"

typedef struct counted_context {
    spw_context *context;
    spw_budget *budget;
    counting_allocator allocator;
} counted_context;

/* Zero means no limit. */
void counted_context_open(counted_context *counted, uint64_t bytes_per_message,
                          uint64_t budget_bytes);
/* The same with a pool of regions. */
void counted_context_open_pool(counted_context *counted, uint64_t budget_bytes);
/* Fails the test unless everything made from the context is gone and uncharged. */
void counted_context_close(counted_context *counted);

/* Refuse the n-th allocation from now on (0: none). */
void counted_context_fail_at(counted_context *counted, size_t n);
/* What is charged now. */
uint64_t counted_context_charged(const counted_context *counted, spw_charge charge);
/* Fails the test unless nothing is charged. */
void counted_context_check_uncharged(const counted_context *counted);

#endif
