/* Addresses: text in, text out. */
#include "transport/address.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

static void assert_text_becomes(const char *host, const char *expected,
                                const char *expected_text)
{
    spw__socket_address address;
    char text[SPW__ADDRESS_TEXT_BYTES], again[SPW__ADDRESS_HOST_BYTES];
    uint16_t port;
    spw_error error;
    if (spw__address_parse(host, 8786, &address, &error) != SPW_STATUS_OK)
        fail_msg("%s: %s", host, error.message);
    spw__address_host(&address, again, &port);
    assert_string_equal(again, expected);
    assert_int_equal(port, 8786);
    spw__address_text(&address, text);
    assert_string_equal(text, expected_text);
}

static void numeric_hosts_come_back(void **state)
{
    (void)state;
    assert_text_becomes("127.0.0.1", "127.0.0.1", "127.0.0.1:8786");
    assert_text_becomes("0.0.0.0", "0.0.0.0", "0.0.0.0:8786");
    assert_text_becomes("255.255.255.255", "255.255.255.255", "255.255.255.255:8786");
    assert_text_becomes("::", "::", "[::]:8786");
    assert_text_becomes("::1", "::1", "[::1]:8786");
    assert_text_becomes("2001:DB8:0:0:0:0:0:1", "2001:db8::1", "[2001:db8::1]:8786");
    assert_text_becomes("::ffff:1.2.3.4", "::ffff:1.2.3.4", "[::ffff:1.2.3.4]:8786");
}

static void scopes_come_back_by_name(void **state)
{
    (void)state;
    char numbered[32];
    assert_text_becomes("fe80::1%lo", "fe80::1%lo", "[fe80::1%lo]:8786");
    snprintf(numbered, sizeof numbered, "fe80::1%%%u", if_nametoindex("lo"));
    assert_text_becomes(numbered, "fe80::1%lo", "[fe80::1%lo]:8786");
    /* An interface that is gone keeps its number. */
    assert_text_becomes("fe80::1%4000000000", "fe80::1%4000000000",
                        "[fe80::1%4000000000]:8786");
}

static void the_longest_text_fits(void **state)
{
    (void)state;
    spw__socket_address address;
    char text[SPW__ADDRESS_TEXT_BYTES];
    assert_ok(spw__address_parse("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295",
                                 65535, &address, NULL));
    spw__address_text(&address, text);
    assert_string_equal(text,
                        "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535");
}

static void other_hosts_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const HOSTS[] = {
        "",
        "localhost",
        "127.0.0",
        "127.0.0.256",
        "1.2.3.4 ",
        ":::",
        "1:2",
        "fe80::1%",
        "fe80::1%0",
        "%lo",
        "fe80::1%no-such-if",
        "fe80::1%4294967296",
        "fe80::1%1x",
        "127.0.0.1%lo",
        "::1%%lo",
        "[::1]",
        "tcp://127.0.0.1",
        "127.0.0.1:80",
    };
    for (size_t i = 0; i < COUNT_OF(HOSTS); i++) {
        spw__socket_address address = {.size = 77};
        spw_error error;
        if (spw__address_parse(HOSTS[i], 1, &address, &error) != SPW_STATUS_ADDRESS)
            fail_msg("%s was taken", HOSTS[i]);
        assert_int_equal(address.size, 77);
        assert_non_null(strstr(error.message, HOSTS[i]));
    }
}

static void a_host_of_any_length_is_refused(void **state)
{
    (void)state;
    spw__socket_address address;
    spw_error error;
    char host[5000];
    memset(host, '1', sizeof host - 1);
    host[sizeof host - 1] = '\0';
    assert_status(spw__address_parse(host, 1, &address, &error), ADDRESS);
    host[10] = '%';
    assert_status(spw__address_parse(host, 1, &address, &error), ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numeric_hosts_come_back),
        cmocka_unit_test(scopes_come_back_by_name),
        cmocka_unit_test(the_longest_text_fits),
        cmocka_unit_test(other_hosts_are_refused_by_name),
        cmocka_unit_test(a_host_of_any_length_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
