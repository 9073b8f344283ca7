/* cmocka with the headers that it needs, and what our statuses need of it. */
#ifndef SPW_TESTS_TESTING_H
#define SPW_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spillway/status.h"

#define assert_status(expression, expected)                                            \
    do {                                                                               \
        spw_status status_ = (expression);                                             \
        if (status_ != SPW_STATUS_##expected)                                          \
            fail_msg("%s: %s instead of " #expected, #expression,                      \
                     spw_status_name(status_));                                        \
    } while (0)

/* A process forked from one that had several threads: under ThreadSanitizer it cannot
 * start any, and AddressSanitizer's allocator may be locked there for ever by one of
 * the parent's. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { CHILD_MAY_START_THREADS = 0 };
#else
enum { CHILD_MAY_START_THREADS = 1 };
#endif

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define assert_ok(expression) assert_status(expression, OK)

#endif
