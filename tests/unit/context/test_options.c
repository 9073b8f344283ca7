/* Option structs of callers that are older or newer than the library, and what never
 * changes about those that have been published. */
#include "context/options.h"

#include <stdint.h>
#include <string.h>

#include "spillway/spillway.h"
#include "testing.h"

typedef struct options {
    size_t struct_size;
    uint64_t first, second;
} options;

/* As a later version may have it, in the memory of its caller. */
typedef struct newer_options {
    options known;
    uint64_t third;
    uint32_t fourth, fifth;
} newer_options;

static void equal_sizes_are_copied(void **state)
{
    (void)state;
    const options given = {sizeof given, 7, 8};
    options own = {0};
    assert_ok(spw__options_read(&given, "X", &own, sizeof own, NULL));
    assert_memory_equal(&own, &given, sizeof own);
}

static void what_an_older_caller_lacks_is_zero(void **state)
{
    (void)state;
    static const size_t SIZES[] = {offsetof(options, first), offsetof(options, second)};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        const options given = {SIZES[i], 7, 8};
        options own = {1, 2, 3};
        assert_ok(spw__options_read(&given, "X", &own, sizeof own, NULL));
        assert_int_equal(own.struct_size, sizeof own);
        assert_int_equal(own.first, i == 0 ? 0 : 7);
        assert_int_equal(own.second, 0);
    }
}

static void what_a_newer_caller_sets_is_refused(void **state)
{
    (void)state;
    newer_options given = {{sizeof given, 7, 8}, 0, 0, 0};
    options own = {0};
    spw_error error;
    assert_ok(spw__options_read(&given, "X", &own, sizeof own, NULL));
    assert_int_equal(own.struct_size, sizeof own);
    assert_int_equal(own.second, 8);
    const options untouched = own;
    given.fifth = 1u << 31; /* the last byte of all */
    assert_status(spw__options_read(&given, "X", &own, sizeof own, &error),
                  INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "only a newer libspillway knows"));
    given.fifth = 0;
    given.third = 1; /* the first that is not known */
    assert_status(spw__options_read(&given, "X", &own, sizeof own, NULL),
                  INVALID_ARGUMENT);
    assert_memory_equal(&own, &untouched, sizeof own);
}

static void sizes_that_no_version_has_are_refused(void **state)
{
    (void)state;
    static const size_t SIZES[] = {
        0,        1, sizeof(size_t) - 1,        sizeof(size_t) + 1, sizeof(options) - 1,
        SIZE_MAX, 3, SPW__OPTIONS_BYTES_MAX + 8};
    options own = {1, 2, 3};
    spw_error error;
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        const options given = {SIZES[i], 0, 0};
        assert_status(spw__options_read(&given, "SOME", &own, sizeof own, &error),
                      INVALID_ARGUMENT);
        assert_non_null(strstr(error.message, "SPW_SOME_OPTIONS_INIT"));
    }
    assert_status(spw__options_read(NULL, "SOME", &own, sizeof own, NULL),
                  INVALID_ARGUMENT);
    assert_int_equal(own.struct_size, 1);
}

/* A program that was built with the headers of 0.1 finds every member where it was,
 * and what stands inside an option struct is as large as it was: new members go behind
 * the end. Lines are added here and never changed. */
static void published_members_stay_where_they_are(void **state)
{
    (void)state;
#define AT(type, member, offset)                                                       \
    _Static_assert(offsetof(type, member) == (offset), "moved: " #type "." #member)
    AT(spw_context_options, struct_size, 0);
    AT(spw_context_options, allocator, 8);
    AT(spw_context_options, log, 32);
    AT(spw_context_options, limits, 56);
    AT(spw_context_options, budget, 80);
    AT(spw_context_options, pool, 88);
    AT(spw_connection_options, struct_size, 0);
    AT(spw_connection_options, user_timeout_ms, 8);
    AT(spw_connection_options, sink, 16);
    AT(spw_connection_options, completions, 32);
    AT(spw_connection_options, inline_bytes, 40);
    AT(spw_connection_options, user, 48);
    AT(spw_connection_options, loopback_congestion, 56);
    AT(spw_listener_options, struct_size, 0);
    AT(spw_listener_options, connection, 8);
    AT(spw_listener_options, greeting, 16);
    AT(spw_listener_options, greeting_bytes, 24);
    AT(spw_listener_options, greeting_same_host, 32);
    AT(spw_listener_options, greeting_same_host_bytes, 40);
    AT(spw_meetings_options, struct_size, 0);
    AT(spw_meetings_options, parent, 8);
    AT(spw_meetings_options, best, 16);
    AT(spw_meetings_options, uses_descriptors, 20);
#define ENDS(type, size) _Static_assert(sizeof(type) == (size), "another size: " #type)
    ENDS(spw_allocator, 24);
    ENDS(spw_log_hook, 24);
    ENDS(spw_limits, 24);
    ENDS(spw_sink, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_sizes_are_copied),
        cmocka_unit_test(what_an_older_caller_lacks_is_zero),
        cmocka_unit_test(what_a_newer_caller_sets_is_refused),
        cmocka_unit_test(sizes_that_no_version_has_are_refused),
        cmocka_unit_test(published_members_stay_where_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
