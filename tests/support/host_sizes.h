/* Sizes of the bodies that tests send from memory to memory, at either side of what a
 * connection does another way. */
#ifndef SPW_TESTS_HOST_SIZES_H
#define SPW_TESTS_HOST_SIZES_H

#include <stddef.h>

/* Just enough to go by reference, for suites that run a thousand times. */
static const size_t LARGE[] = {262144};
static const size_t FEW[] = {100, 262145, 0, 5000, 262144};
static const size_t MIXED[] = {100, 262144, 0, 5000, 262145, 262147, 70000};
static const size_t SMALL[] = {120, 0, 100};
/* More than one thread reads by itself, and no multiple of a page. */
static const size_t TWO_HALVES[] = {10, (9 << 20) + 12345, 20};
/* More than one turn, and than the owner's thread would bring. */
enum { MANY_BYTES = 70 << 20 };

#endif
