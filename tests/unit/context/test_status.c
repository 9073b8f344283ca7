#include "context/error.h"

#include <errno.h>
#include <string.h>

#include "spillway/spillway.h"
#include "testing.h"

static void every_status_has_a_text_and_a_name(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                       \
    assert_int_equal(SPW_STATUS_##name, value);                                        \
    assert_string_equal(spw_status_text(SPW_STATUS_##name), text);                     \
    assert_string_equal(spw_status_name(SPW_STATUS_##name), #name);
    SPW_STATUS_MAP(CHECK)
#undef CHECK
}

static void a_number_that_is_no_status_is_unknown(void **state)
{
    (void)state;
    assert_string_equal(spw_status_text((spw_status)1000), "unknown status");
    assert_string_equal(spw_status_name((spw_status)-1), "UNKNOWN");
}

static void the_version_is_the_headers(void **state)
{
    (void)state;
    assert_string_equal(spw_version(), SPW_VERSION);
}

static void an_error_is_filled_and_its_status_answered(void **state)
{
    (void)state;
    spw_error error;
    assert_status(spw__error_set(&error, SPW_STATUS_PROTOCOL, 0, "frame %d", 7),
                  PROTOCOL);
    assert_int_equal(error.status, SPW_STATUS_PROTOCOL);
    assert_int_equal(error.os_errno, 0);
    assert_string_equal(error.message, "frame 7");
}

static void nobody_needs_to_want_the_error(void **state)
{
    (void)state;
    assert_status(spw__error_set(NULL, SPW_STATUS_IO, EIO, "not kept"), IO);
}

static void the_text_of_an_errno_is_appended(void **state)
{
    (void)state;
    spw_error error;
    assert_status(spw__error_set(&error, SPW_STATUS_IO, ENOSPC, "cannot write"), IO);
    assert_int_equal(error.os_errno, ENOSPC);
    assert_string_equal(error.message, "cannot write: No space left on device");
}

static void a_long_message_is_cut(void **state)
{
    (void)state;
    char text[1000];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    spw_error error;
    assert_status(spw__error_set(&error, SPW_STATUS_IO, ENOSPC, "%s", text), IO);
    assert_int_equal(strlen(error.message), sizeof error.message - 1);
}

/* Each length around the end: with the errno's text the message must fit or be cut. */
static void an_errno_text_at_the_end_is_cut(void **state)
{
    (void)state;
    for (int length = 200; length < 240; length++) {
        spw_error error;
        assert_status(spw__error_set(&error, SPW_STATUS_IO, ENOSPC, "%0*d", length, 0),
                      IO);
        size_t expected = (size_t)length + strlen(": No space left on device");
        if (expected > sizeof error.message - 1)
            expected = sizeof error.message - 1;
        assert_int_equal(strlen(error.message), expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_status_has_a_text_and_a_name),
        TEST(a_number_that_is_no_status_is_unknown),
        TEST(the_version_is_the_headers),
        TEST(an_error_is_filled_and_its_status_answered),
        TEST(nobody_needs_to_want_the_error),
        TEST(the_text_of_an_errno_is_appended),
        TEST(a_long_message_is_cut),
        TEST(an_errno_text_at_the_end_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
