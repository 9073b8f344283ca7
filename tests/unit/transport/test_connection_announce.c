/* Bodies that were announced: who announced them hears that they are taken, keeps them
 * until then and no longer, and has them charged meanwhile. */
#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_sizes.h"
#include "io_fault.h"
#include "loopback.h"
#include "payloads.h"

static void who_announced_hears_that_all_is_taken(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    for (unsigned i = 0; i < 20; i++) {
        SEND(pair.client, LARGE, i);
        assert_int_equal(spw_connection_queued_bytes(pair.client), LARGE[0]);
        RECEIVE(pair.server, NULL, LARGE, i);
        /* The thread has heard it, the owner has not; and asks what to wait for. */
        struct pollfd back = {spw_completions_descriptor(pair.completions), POLLIN, 0};
        assert_int_equal(poll(&back, 1, 20000), 1);
        assert_int_equal(spw_connection_queued_bytes(pair.client), 0);
        assert_true(loopback_is_away(pair.client));
        TRY(loopback_step(pair.client, NULL, &t->error));
        assert_false(loopback_is_away(pair.client));
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    }
end:
    loopback_close(&pair);
}

static void announced_bodies_count_in_the_budget(void **state)
{
    enum { FIRST = 3 << 20, SECOND = 5 << 20 };
    static char data[SECOND];
    torture *t = *state;
    unsigned released = 0;
    uint64_t bytes;
    spw_payload *payload;
    loopback pair;
    torture_limit(t, 7 << 20);
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    TRY(payload_wrap(t->context, data, FIRST, &released, &payload, &t->error));
    TRY(spw_connection_send(pair.client, payload, &bytes, &t->error));
    TRY(payload_wrap(t->context, data, SECOND, &released, &payload, &t->error));
    assert_status(spw_connection_send(pair.client, payload, &bytes, &t->error),
                  LIMIT_EXCEEDED);
    assert_true(spw_connection_is_open(pair.client));
    assert_int_equal(released, 0);
    spw_payload_free(payload);
    assert_int_equal(released, 1);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), FIRST);
    /* The first one is heard of all the same. */
    TRY(loopback_receive(pair.server, NULL, &payload, &t->error));
    spw_payload_free(payload);
    /* It is let go of at home, not by the thread that hears it. */
    while (released < 2)
        TRY(loopback_step(pair.client, pair.server, &t->error));
end:
    loopback_close(&pair);
}

static int use_in_child(torture *t, loopback *parents, bool is_announcing)
{
    uint64_t bytes, before = torture_figures(t).host_bytes_sent;
    spw_payload *payload;
    if (payload_make(t->context, LARGE, 1, 1, &payload, NULL) != SPW_STATUS_OK)
        return 1;
    /* What was away is the parent's. What was home may be used, badly, as any socket;
     * but nobody is to read the parent's memory in place of the child's. */
    spw_status status = spw_connection_send(parents->client, payload, &bytes, NULL);
    if (is_announcing ? status != SPW_STATUS_CLOSED : status != SPW_STATUS_OK)
        return 2;
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    if (torture_figures(t).host_bytes_sent != before)
        return 3;
    loopback_watch_meetings(NULL);
    spw_connection_free(parents->client);
    spw_connection_free(parents->server);
    spw_meetings_free(parents->meetings);
    return 0;
}

static void a_forked_child_announces_nothing(void **state)
{
    torture *t = *state;
    for (int is_announcing = 0; is_announcing < 2; is_announcing++) {
        loopback pair;
        int status;
        TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
        TRY(loopback_meet(t, pair.client, pair.server));
        if (is_announcing)
            SEND(pair.client, TWO_HALVES, 1);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(use_in_child(t, &pair, is_announcing != 0));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        /* The parent's goes on: the child has sent nothing when something was away. */
        if (is_announcing) {
            RECEIVE(pair.server, pair.client, TWO_HALVES, 1);
            SEND(pair.client, MIXED, 2);
            RECEIVE(pair.server, pair.client, MIXED, 2);
        }
        assert_int_equal(access(spw_meetings_path(pair.meetings), F_OK), 0);
        loopback_close(&pair);
    }
    return;
end:
    loopback_close(&(loopback){0});
}

static void who_cannot_hear_what_is_taken_ends(void **state)
{
    torture *t = *state;
    loopback pair;
    TRY(loopback_open_host(t->context, 2, NULL, &pair, &t->error));
    TRY(loopback_meet(t, pair.client, pair.server));
    io_fault_arm_call("poller_rearm", 1, ENOMEM);
    SEND(pair.client, LARGE, 1);
    assert_ended(pair.client, IO);
    spw_connection_reap(pair.client);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw_payload *none;
    TRY_STATUS(loopback_receive(pair.server, NULL, &none, &t->error), TRUNCATED);
end:
    loopback_close(&pair);
}

static void announced_bodies_are_released_once(void **state)
{
    enum { MESSAGES = 3, ENDS = 5 };
    torture *t = *state;
    static char data[300000];
    for (int end = 0; end < ENDS; end++) {
        unsigned released = 0;
        uint64_t bytes;
        loopback pair;
        assert_ok(loopback_open_host(t->context, 2, NULL, &pair, NULL));
        int before = private_place_descriptors();
        assert_ok(loopback_meet(t, pair.client, pair.server));
        for (int i = 0; i < MESSAGES; i++) {
            spw_payload *payload;
            assert_ok(
                payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
            assert_ok(spw_connection_send(pair.client, payload, &bytes, NULL));
            assert_true(bytes > sizeof data);
        }
        spw_connection_reap(pair.client);
        assert_int_equal(released, 0);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), MESSAGES * sizeof data);
        if (end == 0)
            spw_connection_close(pair.client);
        if (end == 1) {
            spw_connection_free(pair.client);
            pair.client = NULL;
        }
        if (end == 2 || end == 3) { /* the receiver goes, having read nothing */
            spw_connection_close(pair.server);
            while (spw_connection_is_open(pair.client))
                assert_ok(loopback_step(pair.client, NULL, NULL));
        }
        if (end == 3) {
            spw_connection_reap(pair.client);
            assert_int_equal(released, MESSAGES);
        }
        if (end == 4) { /* in the middle */
            spw_payload *message;
            assert_ok(loopback_receive(pair.server, NULL, &message, NULL));
            spw_payload_free(message);
            spw_connection_close(pair.server);
            spw_connection_close(pair.client);
        }
        if (end != 2) {
            assert_int_equal(released, MESSAGES);
            torture_assert_nothing_charged(t);
        }
        if (pair.client != NULL)
            spw_connection_close(pair.client);
        spw_connection_close(pair.server);
        assert_int_equal(released, MESSAGES);
        torture_assert_nothing_charged(t);
        /* Both streams and both ends of the side channel are gone. */
        assert_int_equal(private_place_descriptors(), before - 2);
        loopback_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(who_announced_hears_that_all_is_taken),
        SCENARIO(announced_bodies_count_in_the_budget),
        SCENARIO(a_forked_child_announces_nothing),
        SCENARIO(who_cannot_hear_what_is_taken_ends),
        SCENARIO(announced_bodies_are_released_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
