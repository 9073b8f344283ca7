/* A sender that gives what it should not is refused. */
#include <errno.h>
#include <string.h>

#include "host_pair.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"

/* A receiver that was greeted by a raw descriptor, and stands at a body of 5,000 bytes
 * by descriptor. */
typedef struct raw_sender {
    host_pair pair;
    int raw;
} raw_sender;

static uint8_t raw_secret[SPW__HOST_SECRET_BYTES] = "the secret of the raw sender";

static void open_raw(torture *t, spw__host_way best, uint64_t place, raw_sender *at)
{
    uint8_t proof[SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES];
    memcpy(proof, HOST_PAIR_NONCE, SPW__HOST_NONCE_BYTES);
    memcpy(proof + SPW__HOST_NONCE_BYTES, raw_secret, sizeof raw_secret);
    assert_ok(host_pair_open_raw_sender(t->context, &at->pair, &at->raw, NULL));
    host_pair_raw_send(at->raw,
                       &(spw__host_packet){.kind = SPW__HOST_HELLO,
                                           .epoch = SPW__HOST_VERSION,
                                           .place = (uintptr_t)raw_secret},
                       proof, sizeof proof, -1);
    assert_ok(spw__host_receiver_drive(at->pair.receiver, NULL));
    assert_ok(spw__host_receiver_admit(at->pair.receiver, best, NULL));
    wire_bytes frames[2] = {{0}};
    wire_put_noise(&frames[0], 20, 1);
    wire_put_noise(&frames[1], 5000, 2);
    wire_put_referenced(&at->pair.stream, frames, 2, (uint64_t[]){0, place});
    size_t consumed;
    assert_ok(spw__message_reader_feed(at->pair.reader, at->pair.stream.bytes,
                                       at->pair.stream.size, &consumed, NULL));
    for (int i = 0; i < 2; i++)
        wire_clear(&frames[i]);
}

static void close_raw(raw_sender *at)
{
    spw__unix_socket_close(at->raw);
    host_pair_close(&at->pair);
}

static spw_status fetch(raw_sender *at, spw_error *error)
{
    return spw__host_receiver_fetch(at->pair.receiver, at->pair.reader, SIZE_MAX, NULL,
                                    error);
}

static void packets_that_are_not_next_are_refused(void **state)
{
    torture *t = *state;
    static char body[5001];
    static const struct {
        spw__host_packet packet;
        size_t size;
    } WRONG[] = {
        {{.kind = SPW__HOST_BYTES, .epoch = 1, .number = 1}, 100},
        {{.kind = SPW__HOST_BYTES, .epoch = 1, .place = 1}, 100},
        {{.kind = SPW__HOST_BYTES, .epoch = 1}, 0},
        {{.kind = SPW__HOST_BYTES, .epoch = 1}, 5001}, /* more than there is room for */
        {{.kind = SPW__HOST_BYTES, .epoch = 2}, 100},
        {{.kind = SPW__HOST_WAY, .epoch = 1}, 0},
        {{.kind = SPW__HOST_HELLO, .epoch = 1}, 0},
        {{.kind = SPW__HOST_TAKEN, .epoch = 1}, 0},
        {{.kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .place = 5000},
         0}, /* without one */
        {{.kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .place = 4999}, 0},
        {{.kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .place = 5000}, 1},
        {{.kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .number = 1, .place = 5000}, 0},
        {{.kind = 77, .epoch = 1}, 0},
    };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        raw_sender at;
        spw_error error;
        open_raw(t, SPW__HOST_BY_DESCRIPTOR, 1, &at);
        host_pair_raw_send(at.raw, &WRONG[i].packet, body, WRONG[i].size, -1);
        assert_status(fetch(&at, &error), PROTOCOL);
        assert_int_equal(host_pair_bytes_by(&at.pair, SPW__HOST_BY_STREAM), 0);
        close_raw(&at);
    }
}

static int make_memfd(size_t size, bool is_sealed)
{
    char zeros[6000] = "";
    int memory = spw__shared_memory_create();
    assert_true(memory >= 0);
    assert_int_equal(spw__shared_memory_fill(memory, 0, zeros, size), 0);
    if (is_sealed)
        assert_int_equal(spw__shared_memory_seal(memory), 0);
    return memory;
}

static void what_is_passed_must_be_sealed_and_of_its_size(void **state)
{
    torture *t = *state;
    static const struct {
        size_t size;
        bool is_sealed;
        spw_status expected;
    } PASSED[] = {{5000, true, SPW_STATUS_OK},
                  {5000, false, SPW_STATUS_PROTOCOL},
                  {4999, true, SPW_STATUS_PROTOCOL},
                  {5001, true, SPW_STATUS_PROTOCOL}};
    for (size_t i = 0; i < COUNT_OF(PASSED); i++) {
        raw_sender at;
        spw_error error;
        open_raw(t, SPW__HOST_BY_DESCRIPTOR, 1, &at);
        int memory = make_memfd(PASSED[i].size, PASSED[i].is_sealed);
        host_pair_raw_send(at.raw,
                           &(spw__host_packet){
                               .kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .place = 5000},
                           NULL, 0, memory);
        spw__shared_memory_close(memory);
        assert_int_equal(fetch(&at, &error), PASSED[i].expected);
        close_raw(&at);
    }
}

/* With bytes that do not belong to a packet of that kind a descriptor is let go of. */
static void a_descriptor_that_is_not_next_is_closed(void **state)
{
    torture *t = *state;
    static const spw__host_packet PACKETS[] = {
        {.kind = SPW__HOST_DESCRIPTOR, .epoch = 1, .number = 5, .place = 5000},
        {.kind = SPW__HOST_DESCRIPTOR, .epoch = 0, .place = 5000},
        {.kind = SPW__HOST_BYTES, .epoch = 1}};
    for (size_t i = 0; i < COUNT_OF(PACKETS); i++) {
        raw_sender at;
        spw_error error;
        open_raw(t, SPW__HOST_BY_DESCRIPTOR, 1, &at);
        int memory = make_memfd(5000, true);
        host_pair_raw_send(at.raw, &PACKETS[i], "x", PACKETS[i].kind == SPW__HOST_BYTES,
                           memory);
        spw__shared_memory_close(memory);
        /* What is of an older epoch is no fault: it comes again. */
        if (PACKETS[i].epoch == 0) {
            assert_ok(fetch(&at, &error));
            assert_status(fetch(&at, &error), AGAIN);
        } else {
            assert_status(fetch(&at, &error), PROTOCOL);
        }
        close_raw(&at); /* the torture counts what is open */
    }
}

static void an_end_in_the_middle_is_told(void **state)
{
    torture *t = *state;
    raw_sender at;
    spw_error error;
    open_raw(t, SPW__HOST_BY_DESCRIPTOR, 1, &at);
    assert_status(fetch(&at, &error), AGAIN);
    assert_int_equal(spw__host_receiver_interest(at.pair.receiver), SPW__HOST_READ);
    host_pair_raw_send(at.raw, &(spw__host_packet){.kind = SPW__HOST_BYTES, .epoch = 1},
                       raw_secret, 10, -1);
    assert_ok(fetch(&at, &error));
    spw__unix_socket_shutdown(at.raw, spw__unix_socket_owner());
    assert_status(fetch(&at, &error), TRUNCATED);
    close_raw(&at);
}

/* Bytes there, but the secret is not: whoever that is, it is not asked again. */
static void memory_without_the_secret_does_not_count(void **state)
{
    torture *t = *state;
    static char body[5000];
    raw_sender at;
    spw_error error;
    open_raw(t, SPW__HOST_BY_ADDRESS, (uintptr_t)body, &at);
    assert_int_equal(spw__host_receiver_way(at.pair.receiver), SPW__HOST_BY_ADDRESS);
    raw_secret[SPW__HOST_SECRET_BYTES - 1] ^= 1;
    assert_ok(fetch(&at, &error));
    raw_secret[SPW__HOST_SECRET_BYTES - 1] ^= 1;
    assert_int_equal(host_pair_bytes_by(&at.pair, SPW__HOST_BY_ADDRESS), 0);
    assert_int_equal(spw__host_receiver_way(at.pair.receiver), SPW__HOST_BY_DESCRIPTOR);
    assert_int_equal(spw__host_receiver_reason(at.pair.receiver)->os_errno, ESTALE);
    spw__host_packet way;
    assert_true(host_pair_raw_receive(at.raw, &way)); /* the first */
    assert_true(host_pair_raw_receive(at.raw, &way));
    assert_int_equal(way.kind, SPW__HOST_WAY);
    assert_int_equal(way.way, SPW__HOST_BY_DESCRIPTOR);
    assert_int_equal(way.epoch, 2);
    assert_int_equal(way.number, 0);
    close_raw(&at);
}

static void a_body_without_an_address_is_refused(void **state)
{
    torture *t = *state;
    raw_sender at;
    spw_error error;
    open_raw(t, SPW__HOST_BY_ADDRESS, 1, &at);
    assert_status(fetch(&at, &error), PROTOCOL);
    close_raw(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(packets_that_are_not_next_are_refused),
        SCENARIO(what_is_passed_must_be_sealed_and_of_its_size),
        SCENARIO(a_descriptor_that_is_not_next_is_closed),
        SCENARIO(an_end_in_the_middle_is_told),
        SCENARIO(memory_without_the_secret_does_not_count),
        SCENARIO(a_body_without_an_address_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
