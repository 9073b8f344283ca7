/* What a sender gives, packet by packet. That it arrives is in
 * test_host_receiver_fetch.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "payloads.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"

static const size_t SIZES[] = {20, 2000, 30, 150000};
enum { COUNT = COUNT_OF(SIZES) };

typedef struct raw_receiver {
    host_pair pair;
    int raw;
} raw_receiver;

static void say_way(const raw_receiver *at, uint64_t epoch, uint32_t way,
                    uint64_t number, uint64_t place)
{
    host_pair_raw_send(at->raw,
                       &(spw__host_packet){.kind = SPW__HOST_WAY,
                                           .epoch = epoch,
                                           .number = number,
                                           .place = place,
                                           .way = way,
                                           .os_errno = EPERM},
                       NULL, 0, -1);
}

/* A message has been announced by address. */
static void open_announced(torture *t, raw_receiver *at)
{
    spw__host_packet hello;
    assert_ok(host_pair_open_raw_receiver(t->context, &at->pair, &at->raw, NULL));
    assert_ok(spw__host_sender_drive(at->pair.sender, NULL));
    assert_true(host_pair_raw_receive(at->raw, &hello));
    say_way(at, 1, SPW__HOST_BY_ADDRESS, 0, 0);
    assert_ok(spw__host_sender_drive(at->pair.sender, NULL));
    assert_ok(host_pair_send_made(&at->pair, SIZES, COUNT, 1, NULL));
    /* As long as it is read, nothing is given. */
    assert_ok(spw__host_sender_drive(at->pair.sender, NULL));
    assert_false(host_pair_raw_receive(at->raw, &hello));
    assert_int_equal(spw__host_sender_interest(at->pair.sender), SPW__HOST_READ);
}

static void close_raw(raw_receiver *at)
{
    spw__unix_socket_close(at->raw);
    host_pair_close(&at->pair);
}

static void assert_bytes(const uint8_t *got, size_t size, size_t frame, size_t offset)
{
    for (size_t i = 0; i < size; i++)
        assert_int_equal(got[i], payload_byte(1, frame, offset + i));
}

/* One packet. Returns: the bytes behind its head. */
static size_t receive(const raw_receiver *at, spw__host_packet *ret_packet,
                      uint8_t *body, int *ret_passed)
{
    uint8_t head[SPW__HOST_HEAD_BYTES];
    struct iovec pieces[2] = {{head, sizeof head}, {body, SPW__HOST_BODY_MAX_BYTES}};
    bool is_lost;
    ssize_t size = spw__unix_socket_receive(at->raw, pieces, 2, ret_passed, &is_lost);
    assert_true(size >= (ssize_t)sizeof head);
    assert_true(spw__host_packet_get(head, sizeof head, ret_packet));
    return (size_t)size - sizeof head;
}

static void a_body_is_passed_sealed(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static uint8_t body[SPW__HOST_BODY_MAX_BYTES];
    uint8_t *content = malloc(SIZES[3]);
    open_announced(t, &at);
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    for (uint64_t number = 0; number < 2; number++) {
        size_t frame = number == 0 ? 1 : 3;
        spw__host_packet packet;
        int passed;
        assert_int_equal(receive(&at, &packet, body, &passed), 0);
        assert_int_equal(packet.kind, SPW__HOST_DESCRIPTOR);
        assert_int_equal(packet.epoch, 2);
        assert_int_equal(packet.number, number);
        assert_int_equal(packet.place, SIZES[frame]);
        assert_true(passed >= 0);
        assert_int_equal(spw__shared_memory_verify(passed, SIZES[frame]), 0);
        assert_int_equal(spw__shared_memory_read(passed, 0, content, SIZES[frame]), 0);
        assert_bytes(content, SIZES[frame], frame, 0);
        spw__shared_memory_close(passed);
    }
    assert_int_equal(spw__host_sender_interest(at.pair.sender), SPW__HOST_READ);
    free(content);
    close_raw(&at);
}

/* From the byte on that the receiver has got to. */
static void bytes_go_on_where_the_receiver_is(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static uint8_t body[SPW__HOST_BODY_MAX_BYTES];
    open_announced(t, &at);
    say_way(&at, 2, SPW__HOST_BY_STREAM, 1, 1234);
    uint64_t offset = 1234;
    while (offset < SIZES[3]) {
        spw__host_packet packet;
        int passed = -1;
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        size_t size = receive(&at, &packet, body, &passed);
        assert_int_equal(packet.kind, SPW__HOST_BYTES);
        assert_int_equal(packet.epoch, 2);
        assert_int_equal(packet.number, 1);
        assert_int_equal(packet.place, offset);
        assert_int_equal(passed, -1);
        assert_bytes(body, size, 3, offset);
        offset += size;
    }
    assert_int_equal(offset, SIZES[3]);
    close_raw(&at);
}

/* What was passed and then asked for again, as bytes, is begun anew. */
static void a_later_way_begins_again(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static uint8_t body[SPW__HOST_BODY_MAX_BYTES];
    spw__host_packet packet;
    int passed;
    open_announced(t, &at);
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    for (int i = 0; i < 2; i++) {
        (void)receive(&at, &packet, body, &passed);
        spw__shared_memory_close(passed);
    }
    say_way(&at, 3, SPW__HOST_BY_STREAM, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_int_equal(receive(&at, &packet, body, &passed), SIZES[1]);
    assert_int_equal(packet.kind, SPW__HOST_BYTES);
    assert_int_equal(packet.epoch, 3);
    assert_int_equal(packet.number, 0);
    assert_bytes(body, SIZES[1], 1, 0);
    close_raw(&at);
}

static void a_full_socket_is_waited_for(void **state)
{
    torture *t = *state;
    static const uint32_t WAYS[] = {SPW__HOST_BY_DESCRIPTOR, SPW__HOST_BY_STREAM};
    static uint8_t body[SPW__HOST_BODY_MAX_BYTES];
    for (size_t i = 0; i < COUNT_OF(WAYS); i++) {
        raw_receiver at;
        spw__host_packet packet;
        int passed = -1;
        open_announced(t, &at);
        say_way(&at, 2, WAYS[i], 0, 0);
        io_fault_arm_call("unix_send", 1, EAGAIN);
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        assert_int_equal(spw__host_sender_interest(at.pair.sender),
                         SPW__HOST_READ | SPW__HOST_WRITE);
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        (void)receive(&at, &packet, body, &passed);
        assert_int_equal(packet.number, 0);
        if (passed >= 0)
            spw__shared_memory_close(passed);
        /* It was filled once. */
        if (WAYS[i] == SPW__HOST_BY_DESCRIPTOR)
            assert_int_equal(io_fault_calls_of("shared_create"), 1);
        close_raw(&at);
    }
}

static void what_cannot_be_passed_goes_as_bytes(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static uint8_t body[SPW__HOST_BODY_MAX_BYTES];
    spw__host_packet packet;
    int passed = -1;
    open_announced(t, &at);
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 0, 100);
    io_fault_arm_call("unix_send", 1, ETOOMANYREFS);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_int_equal(spw__host_sender_way(at.pair.sender), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_sender_reason(at.pair.sender)->os_errno, ETOOMANYREFS);
    assert_int_equal(receive(&at, &packet, body, &passed), SIZES[1] - 100);
    assert_int_equal(packet.kind, SPW__HOST_BYTES);
    assert_int_equal(packet.place, 100);
    assert_bytes(body, SIZES[1] - 100, 1, 100);
    close_raw(&at);
}

static void a_receiver_that_is_gone_ends_it(void **state)
{
    torture *t = *state;
    static const uint32_t WAYS[] = {SPW__HOST_BY_DESCRIPTOR, SPW__HOST_BY_STREAM};
    for (size_t i = 0; i < COUNT_OF(WAYS); i++) {
        raw_receiver at;
        open_announced(t, &at);
        say_way(&at, 2, WAYS[i], 0, 0);
        io_fault_arm_call("unix_send", 1, EPIPE);
        assert_status(spw__host_sender_drive(at.pair.sender, NULL), PEER_CLOSED);
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        close_raw(&at);
    }
}

static void a_large_body_is_filled_in_turns(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static const size_t LARGE[] = {20, (40 << 20) + 1};
    open_announced(t, &at);
    assert_ok(host_pair_send_made(&at.pair, LARGE, 2, 1, NULL));
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 2, 0);
    for (uint64_t turn = 1; turn <= 3; turn++) {
        assert_int_equal(io_fault_calls_of("shared_seal"), 0);
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        assert_int_equal(io_fault_calls_of("shared_fill"), turn);
        assert_int_equal(spw__host_sender_interest(at.pair.sender),
                         turn < 3 ? SPW__HOST_READ | SPW__HOST_WRITE : SPW__HOST_READ);
    }
    assert_int_equal(io_fault_calls_of("shared_seal"), 1);
    /* A later way gives up one that is half filled, too. */
    close_raw(&at);
    open_announced(t, &at);
    assert_ok(host_pair_send_made(&at.pair, LARGE, 2, 1, NULL));
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 2, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    say_way(&at, 3, SPW__HOST_BY_STREAM, 2, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    spw__host_packet packet;
    assert_true(host_pair_raw_receive(at.raw, &packet));
    assert_int_equal(packet.kind, SPW__HOST_BYTES);
    close_raw(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_body_is_passed_sealed),
        SCENARIO(bytes_go_on_where_the_receiver_is),
        SCENARIO(a_later_way_begins_again),
        SCENARIO(a_full_socket_is_waited_for),
        SCENARIO(what_cannot_be_passed_goes_as_bytes),
        SCENARIO(a_receiver_that_is_gone_ends_it),
        SCENARIO(a_large_body_is_filled_in_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
