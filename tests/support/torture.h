/* Runs a piece of work again and again, with its first allocation failing, then its
 * second, and so on, until it passes with none failing. */
#ifndef TEST_TORTURE_H
#define TEST_TORTURE_H

#include "counted_context.h"

/* The work: answers the first status that is not OK, having given back everything that
 * it made. user is what torture_allocations was given. */
typedef spw_status (*torture_work)(spw_context *context, void *user, spw_error *error);

/* Fails the test when a failed allocation is not answered by NO_MEMORY with a message,
 * when anything is left behind, or when there were less than 5 allocations to fail. */
void torture_allocations(const char *name, torture_work work, void *user);

#endif
