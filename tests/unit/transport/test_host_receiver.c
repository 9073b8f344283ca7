/* A receiver's hello, and the way that it decides for. */
#include "transport/host_receiver.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "platform/peer_process.h"
#include "platform/unix_socket.h"

static uint8_t secret[SPW__HOST_SECRET_BYTES] = "what only this process has";

typedef struct raw_sender {
    host_pair pair;
    int raw;
} raw_sender;

static void open_raw(torture *t, raw_sender *at)
{
    assert_ok(host_pair_open_raw_sender(t->context, &at->pair, &at->raw, NULL));
}

static void close_raw(raw_sender *at)
{
    spw__unix_socket_close(at->raw);
    host_pair_close(&at->pair);
}

static void greet(const raw_sender *at, uint64_t version, uint64_t address, size_t size)
{
    uint8_t proof[200] = {0};
    memcpy(proof, HOST_PAIR_NONCE, SPW__HOST_NONCE_BYTES);
    memcpy(proof + SPW__HOST_NONCE_BYTES, secret, sizeof secret);
    host_pair_raw_send(at->raw,
                       &(spw__host_packet){
                           .kind = SPW__HOST_HELLO, .epoch = version, .place = address},
                       proof, size, -1);
}

enum { PROOF = SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES };

static void greet_well(const raw_sender *at)
{
    greet(at, SPW__HOST_VERSION, (uintptr_t)secret, PROOF);
    assert_ok(spw__host_receiver_drive(at->pair.receiver, NULL));
}

static void a_hello_has_a_nonce(void **state)
{
    torture *t = *state;
    raw_sender at;
    open_raw(t, &at);
    assert_int_equal(spw__host_receiver_interest(at.pair.receiver), SPW__HOST_READ);
    assert_status(spw__host_receiver_drive(at.pair.receiver, NULL), AGAIN);
    assert_null(spw__host_receiver_nonce(at.pair.receiver));
    greet_well(&at);
    assert_memory_equal(spw__host_receiver_nonce(at.pair.receiver), HOST_PAIR_NONCE,
                        SPW__HOST_NONCE_BYTES);
    assert_int_equal(spw__host_receiver_interest(at.pair.receiver), 0);
    assert_int_equal(spw__host_receiver_way(at.pair.receiver), SPW__HOST_MEETING);
    close_raw(&at);
}

static void another_hello_is_refused(void **state)
{
    torture *t = *state;
    static const struct {
        uint64_t version;
        size_t size;
    } WRONG[] = {{SPW__HOST_VERSION + 1, PROOF},
                 {0, PROOF},
                 {SPW__HOST_VERSION, PROOF - 1},
                 {SPW__HOST_VERSION, PROOF + 1},
                 {SPW__HOST_VERSION, 0}};
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        raw_sender at;
        spw_error error;
        open_raw(t, &at);
        greet(&at, WRONG[i].version, (uintptr_t)secret, WRONG[i].size);
        assert_status(spw__host_receiver_drive(at.pair.receiver, &error), PROTOCOL);
        assert_null(spw__host_receiver_nonce(at.pair.receiver));
        assert_int_equal(spw__host_receiver_interest(at.pair.receiver), 0);
        assert_status(spw__host_receiver_drive(at.pair.receiver, &error), PROTOCOL);
        close_raw(&at);
    }
}

static void other_packets_are_no_hello(void **state)
{
    torture *t = *state;
    uint8_t proof[PROOF] = {0};
    for (uint64_t kind = 0; kind < 8; kind++) {
        if (kind == SPW__HOST_HELLO)
            continue;
        raw_sender at;
        open_raw(t, &at);
        host_pair_raw_send(
            at.raw, &(spw__host_packet){.kind = kind, .epoch = SPW__HOST_VERSION},
            proof, sizeof proof, kind == 2 ? at.raw : -1);
        assert_status(spw__host_receiver_drive(at.pair.receiver, NULL), PROTOCOL);
        close_raw(&at);
    }
}

static void who_leaves_before_a_hello_is_told(void **state)
{
    torture *t = *state;
    raw_sender at;
    open_raw(t, &at);
    spw__unix_socket_shutdown(at.raw, spw__unix_socket_owner());
    assert_status(spw__host_receiver_drive(at.pair.receiver, NULL), PEER_CLOSED);
    assert_status(
        spw__host_receiver_admit(at.pair.receiver, SPW__HOST_BY_ADDRESS, NULL),
        PEER_CLOSED);
    close_raw(&at);
}

static spw__host_packet admitted(const raw_sender *at, spw__host_way best)
{
    spw__host_packet packet;
    assert_ok(spw__host_receiver_admit(at->pair.receiver, best, NULL));
    assert_true(host_pair_raw_receive(at->raw, &packet));
    assert_int_equal(packet.kind, SPW__HOST_WAY);
    assert_int_equal(packet.epoch, 1);
    assert_int_equal(packet.number, 0);
    assert_int_equal(packet.place, 0);
    assert_int_equal(packet.way, spw__host_receiver_way(at->pair.receiver));
    return packet;
}

static void memory_that_can_be_read_is_the_best_way(void **state)
{
    torture *t = *state;
    raw_sender at;
    open_raw(t, &at);
    greet_well(&at);
    spw__host_packet packet = admitted(&at, SPW__HOST_BY_ADDRESS);
    assert_int_equal(packet.way, SPW__HOST_BY_ADDRESS);
    assert_int_equal(packet.os_errno, 0);
    assert_int_equal(spw__host_receiver_reason(at.pair.receiver)->status,
                     SPW_STATUS_OK);
    close_raw(&at);
}

static void what_is_not_allowed_is_not_tried(void **state)
{
    torture *t = *state;
    for (spw__host_way best = SPW__HOST_BY_DESCRIPTOR; best <= SPW__HOST_BY_STREAM;
         best++) {
        raw_sender at;
        open_raw(t, &at);
        greet_well(&at);
        uint64_t reads = io_fault_calls_of("peer_read");
        spw__host_packet packet = admitted(&at, best);
        assert_int_equal(packet.way, best);
        assert_int_equal(packet.os_errno, ECANCELED);
        assert_int_equal(io_fault_calls_of("peer_read"), reads);
        close_raw(&at);
    }
}

/* Whatever refuses to let us read: the next way, and why. */
static void each_refusal_is_told(void **state)
{
    torture *t = *state;
    static const struct {
        const char *call;
        int os_errno;
    } REFUSALS[] = {{"peer_identify", ENOPROTOOPT}, {"peer_hold", EMFILE},
                    {"peer_hold", ENOSYS},          {"peer_read", EPERM},
                    {"peer_read", ENOSYS},          {"peer_read", ESRCH}};
    for (size_t i = 0; i < COUNT_OF(REFUSALS); i++) {
        raw_sender at;
        open_raw(t, &at);
        greet_well(&at);
        io_fault_arm_call(REFUSALS[i].call, 1, REFUSALS[i].os_errno);
        spw__host_packet packet = admitted(&at, SPW__HOST_BY_ADDRESS);
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        assert_int_equal(packet.way, SPW__HOST_BY_DESCRIPTOR);
        assert_int_equal(packet.os_errno, REFUSALS[i].os_errno);
        assert_int_equal(spw__host_receiver_reason(at.pair.receiver)->os_errno,
                         REFUSALS[i].os_errno);
        close_raw(&at);
    }
}

static void another_user_is_not_read(void **state)
{
    torture *t = *state;
    raw_sender at;
    open_raw(t, &at);
    greet_well(&at);
    host_fault_set_user(12345);
    uint64_t reads = io_fault_calls_of("peer_read");
    spw__host_packet packet = admitted(&at, SPW__HOST_BY_ADDRESS);
    host_fault_set_user((uid_t)-1);
    assert_int_equal(packet.way, SPW__HOST_BY_DESCRIPTOR);
    assert_int_equal(packet.os_errno, EPERM);
    assert_int_equal(io_fault_calls_of("peer_read"), reads);
    close_raw(&at);
}

static void a_secret_that_is_not_there_is_no_proof(void **state)
{
    torture *t = *state;
    static uint8_t other[SPW__HOST_SECRET_BYTES];
    const struct {
        uint64_t address;
        int os_errno;
    } WHERE[] = {{(uintptr_t)other, ESTALE}, {0, EFAULT}, {UINT64_MAX, EFAULT}};
    for (size_t i = 0; i < COUNT_OF(WHERE); i++) {
        raw_sender at;
        open_raw(t, &at);
        greet(&at, SPW__HOST_VERSION, WHERE[i].address, PROOF);
        assert_ok(spw__host_receiver_drive(at.pair.receiver, NULL));
        spw__host_packet packet = admitted(&at, SPW__HOST_BY_ADDRESS);
        assert_int_equal(packet.way, SPW__HOST_BY_DESCRIPTOR);
        assert_int_equal(packet.os_errno, WHERE[i].os_errno);
        close_raw(&at);
    }
}

static void what_the_socket_does_not_take_is_said_later(void **state)
{
    torture *t = *state;
    raw_sender at;
    spw__host_packet packet;
    open_raw(t, &at);
    greet_well(&at);
    io_fault_arm_call("unix_send", 1, EAGAIN);
    assert_ok(spw__host_receiver_admit(at.pair.receiver, SPW__HOST_BY_ADDRESS, NULL));
    assert_int_equal(spw__host_receiver_interest(at.pair.receiver), SPW__HOST_WRITE);
    assert_false(host_pair_raw_receive(at.raw, &packet));
    assert_ok(spw__host_receiver_drive(at.pair.receiver, NULL));
    assert_true(host_pair_raw_receive(at.raw, &packet));
    assert_int_equal(spw__host_receiver_interest(at.pair.receiver), 0);
    io_fault_arm_call("unix_send", 1, EPIPE);
    close_raw(&at);
}

static void a_sender_that_is_gone_is_told_when_it_is_answered(void **state)
{
    torture *t = *state;
    raw_sender at;
    spw_error error;
    open_raw(t, &at);
    greet_well(&at);
    io_fault_arm_call("unix_send", 1, EPIPE);
    assert_status(
        spw__host_receiver_admit(at.pair.receiver, SPW__HOST_BY_ADDRESS, &error),
        PEER_CLOSED);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_status(spw__host_receiver_drive(at.pair.receiver, &error), PEER_CLOSED);
    close_raw(&at);
}

static void senders_are_admitted(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    for (spw__host_way best = SPW__HOST_BY_ADDRESS; best <= SPW__HOST_BY_STREAM;
         best++) {
        TRY(host_pair_open(t->context, true, &pair, &t->error));
        TRY(host_pair_meet(&pair, best, &t->error));
        host_pair_close(&pair);
    }
end:
    host_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_hello_has_a_nonce),
        SCENARIO(another_hello_is_refused),
        SCENARIO(other_packets_are_no_hello),
        SCENARIO(who_leaves_before_a_hello_is_told),
        SCENARIO(memory_that_can_be_read_is_the_best_way),
        SCENARIO(what_is_not_allowed_is_not_tried),
        SCENARIO(each_refusal_is_told),
        SCENARIO(another_user_is_not_read),
        SCENARIO(a_secret_that_is_not_there_is_no_proof),
        SCENARIO(what_the_socket_does_not_take_is_said_later),
        SCENARIO(a_sender_that_is_gone_is_told_when_it_is_answered),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(senders_are_admitted)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("host_receiver", scenarios);
}
