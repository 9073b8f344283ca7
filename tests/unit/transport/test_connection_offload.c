/* What a connection is told about offloading is what it says. */
#include "loopback.h"

static void says_what_it_was_told(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open(t->context, "127.0.0.1", &pair, &t->error));
    assert_int_equal(spw_connection_offload_bytes(pair.client), 0);
    assert_int_equal(spw_connection_offload_bytes(pair.server), 0);
    spw_connection_set_offload_bytes(pair.client, UINT64_MAX);
    spw_connection_set_offload_bytes(pair.server, 1);
    assert_true(spw_connection_offload_bytes(pair.client) == UINT64_MAX);
    assert_int_equal(spw_connection_offload_bytes(pair.server), 1);
    spw_connection_close(pair.client);
    assert_true(spw_connection_offload_bytes(pair.client) == UINT64_MAX);
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(says_what_it_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
