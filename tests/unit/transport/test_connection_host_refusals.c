/* Bodies that were to go from memory to memory, and what is refused, missing or lost:
 * they arrive by whatever way is left, and that is told and counted once. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "host_fault.h"
#include "host_sizes.h"
#include "io_fault.h"
#include "loopback.h"

static const struct {
    int os_errno;
} READ_REFUSALS[] = {{EPERM}, {ENOSYS}, {EACCES}, {ENOMEM}};

static void refused_when_they_meet(torture *t, bool uses_descriptors, int os_errno)
{
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = uses_descriptors;
    loopback pair;
    uint64_t refusals = torture_figures(t).host_refusals;
    uint64_t by_descriptor = torture_figures(t).host_bytes_by_descriptor;
    host_fault_refuse_reads(os_errno);
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    const char *news;
    assert_int_equal(torture_figures(t).host_refusals, refusals + 1);
    assert_int_equal(loopback_news(&news), 1);
    assert_non_null(strstr(news, strerror(os_errno)));
    assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
    assert_int_equal(torture_figures(t).host_bytes_by_descriptor - by_descriptor,
                     uses_descriptors ? 3 * (MIXED[1] + MIXED[4] + MIXED[5]) : 0);
end:
    host_fault_refuse_reads(0);
    loopback_close(&pair);
}

static void reading_is_refused_when_they_meet(void **state)
{
    for (size_t i = 0; i < COUNT_OF(READ_REFUSALS); i++) {
        refused_when_they_meet(*state, false, READ_REFUSALS[i].os_errno);
        refused_when_they_meet(*state, true, READ_REFUSALS[i].os_errno);
    }
}

static void reading_is_refused_later_on(void **state)
{
    for (int uses_descriptors = 0; uses_descriptors < 2; uses_descriptors++) {
        void *inner;
        (void)state;
        torture_setup(&inner);
        torture *t = inner;
        spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
        options.uses_descriptors = uses_descriptors != 0;
        loopback pair;
        TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        SEND(pair.client, MIXED, 1);
        RECEIVE(pair.server, pair.client, MIXED, 1);
        SEND(pair.client, MIXED, 2); /* announced, and then not to be had that way */
        SEND(pair.client, MIXED, 3);
        host_fault_refuse_reads(EPERM);
        RECEIVE(pair.server, pair.client, MIXED, 2);
        RECEIVE(pair.server, pair.client, MIXED, 3);
        SEND(pair.client, MIXED, 4);
        RECEIVE(pair.server, pair.client, MIXED, 4);
        TRY(loopback_settle(pair.client, pair.server, &t->error));
        spw_figures figures = torture_figures(t);
        assert_int_equal(figures.host_refusals, 1);
        assert_int_equal(loopback_news(NULL), 1);
        uint64_t one = MIXED[1] + MIXED[4] + MIXED[5];
        assert_int_equal(figures.host_bytes_by_address, one);
        assert_int_equal(uses_descriptors ? figures.host_bytes_by_descriptor
                                          : figures.host_bytes_by_stream,
                         (uses_descriptors ? 3 : 2) * one);
    end:
        host_fault_refuse_reads(0);
        loopback_close(&pair);
        assert_int_equal(torture_teardown(&inner), 0);
    }
}

static void memfds_are_refused_as_well(void **state)
{
    torture *t = *state;
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.uses_descriptors = true;
    loopback pair;
    host_fault_refuse_reads(EPERM);
    host_fault_refuse_memfds(EMFILE);
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
        TRY(loopback_settle(pair.client, pair.server, &t->error));
    }
    assert_int_equal(torture_figures(t).host_refusals, 2);
    assert_int_equal(loopback_news(NULL), 2);
    assert_int_equal(torture_figures(t).host_bytes_by_descriptor, 0);
    assert_int_equal(torture_figures(t).host_bytes_by_stream,
                     MIXED[1] + MIXED[4] + MIXED[5]);
end:
    host_fault_refuse_reads(0);
    host_fault_refuse_memfds(0);
    loopback_close(&pair);
}

static void a_descriptor_gets_lost(void **state)
{
    torture *t = *state;
    spw_meetings_options options = SPW_MEETINGS_OPTIONS_INIT;
    options.best = SPW_HOST_BY_DESCRIPTOR;
    options.uses_descriptors = true;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, &options, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, MIXED, 1);
    RECEIVE(pair.server, pair.client, MIXED, 1);
    assert_int_equal(torture_figures(t).host_refusals, 0); /* as it was wanted */
    host_fault_lose_descriptor();
    for (unsigned i = 2; i < 5; i++) {
        SEND(pair.client, MIXED, i);
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    assert_int_equal(torture_figures(t).host_refusals, 1);
end:
    loopback_close(&pair);
}

static void somebody_else_is_there(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    host_fault_set_user(12345);
    TRY(loopback_meet(t, pair.client, pair.server));
    SEND(pair.client, MIXED, 1);
    RECEIVE(pair.server, pair.client, MIXED, 1);
    assert_int_equal(torture_figures(t).host_refusals, 1);
    assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
end:
    host_fault_set_user((uid_t)-1);
    loopback_close(&pair);
}

static void whatever_is_missing_it_goes_by_the_stream(void **state)
{
    static const struct {
        const char *call;
        unsigned news;
    } MISSING[] = {
        {"unix_connect", 1},  {"random", 1}, /* of the secret */
        {"peer_identify", 1}, {"peer_hold", 1},
        {"unix_accept", 1}, /* nobody is let in, and nobody spins */
    };
    for (size_t i = 0; i < COUNT_OF(MISSING); i++) {
        void *inner;
        (void)state;
        torture_setup(&inner);
        torture *t = inner;
        loopback pair;
        TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
        io_fault_arm_call(MISSING[i].call, 1, EMFILE);
        SEND(pair.client, LARGE, 1);
        RECEIVE(pair.server, pair.client, LARGE, 1);
        while (loopback_news(NULL) < MISSING[i].news)
            TRY(loopback_step(pair.client, pair.server, &t->error));
        for (unsigned seed = 2; seed < 5; seed++) {
            SEND(pair.client, MIXED, seed);
            RECEIVE(pair.server, pair.client, MIXED, seed);
        }
        const char *news;
        assert_int_equal(loopback_news(&news), MISSING[i].news);
        assert_non_null(strstr(news, strerror(EMFILE)));
        assert_int_equal(torture_figures(t).host_refusals, 1);
        assert_int_equal(torture_figures(t).host_bytes_by_address, 0);
        struct pollfd watched = {spw_meetings_descriptor(pair.meetings), POLLIN, 0};
        assert_int_equal(poll(&watched, 1, 0), 0);
    end:
        loopback_close(&pair);
        assert_int_equal(torture_teardown(&inner), 0);
    }
}

static void without_threads_nothing_is_announced(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    io_fault_arm_call("start_thread", 1, 0);
    for (unsigned i = 0; i < 3; i++) {
        SEND(pair.client, MIXED, i);
        assert_false(loopback_is_away(pair.client));
        RECEIVE(pair.server, pair.client, MIXED, i);
    }
    assert_int_equal(torture_figures(t).host_bytes_sent, 0);
    assert_int_equal(torture_figures(t).host_refusals, 1);
end:
    loopback_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(reading_is_refused_when_they_meet),
        SCENARIO(reading_is_refused_later_on),
        SCENARIO(memfds_are_refused_as_well),
        SCENARIO(a_descriptor_gets_lost),
        SCENARIO(somebody_else_is_there),
        SCENARIO(whatever_is_missing_it_goes_by_the_stream),
        SCENARIO(without_threads_nothing_is_announced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
