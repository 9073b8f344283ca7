/* cmocka with the headers that it needs, and what our statuses need of it. */
#ifndef SPW_TESTS_TESTING_H
#define SPW_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spillway/status.h"

/* A test's name in the table is its function's, so that the table cannot lie. */
#define TEST(function) cmocka_unit_test(function)

#define assert_status(expression, expected)                                            \
    do {                                                                               \
        spw_status status_ = (expression);                                             \
        if (status_ != SPW_STATUS_##expected)                                          \
            fail_msg("%s: %s instead of " #expected, #expression,                      \
                     spw_status_name(status_));                                        \
    } while (0)

#define assert_ok(expression) assert_status(expression, OK)

#endif
