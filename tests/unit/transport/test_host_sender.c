/* What a sender says and hears, and how it ends. */
#include "transport/host_sender.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "payloads.h"
#include "platform/peer_process.h"
#include "platform/unix_socket.h"

static const size_t SIZES[] = {20, 2000, 30, 3000};
enum { COUNT = COUNT_OF(SIZES), BY_REFERENCE = 5000 };

typedef struct raw_receiver {
    host_pair pair;
    int raw;
} raw_receiver;

static void open_raw(torture *t, raw_receiver *at)
{
    assert_ok(host_pair_open_raw_receiver(t->context, &at->pair, &at->raw, NULL));
    assert_ok(spw__host_sender_drive(at->pair.sender, NULL));
}

static void close_raw(raw_receiver *at)
{
    spw__unix_socket_close(at->raw);
    host_pair_close(&at->pair);
}

static void say(const raw_receiver *at, spw__host_packet packet)
{
    host_pair_raw_send(at->raw, &packet, NULL, 0, -1);
}

static void say_way(const raw_receiver *at, uint64_t epoch, uint32_t way,
                    uint64_t number, uint64_t place)
{
    say(at, (spw__host_packet){.kind = SPW__HOST_WAY,
                               .epoch = epoch,
                               .number = number,
                               .place = place,
                               .way = way,
                               .os_errno = EPERM});
}

static void say_taken(const raw_receiver *at, uint64_t epoch, uint64_t number)
{
    say(at,
        (spw__host_packet){.kind = SPW__HOST_TAKEN, .epoch = epoch, .number = number});
}

/* A sender that reads by address is agreed with, and has announced two messages. */
static void open_announced(torture *t, raw_receiver *at)
{
    open_raw(t, at);
    say_way(at, 1, SPW__HOST_BY_ADDRESS, 0, 0);
    assert_ok(spw__host_sender_drive(at->pair.sender, NULL));
    assert_int_equal(spw__host_sender_way(at->pair.sender), SPW__HOST_BY_ADDRESS);
    assert_ok(host_pair_send_made(&at->pair, SIZES, COUNT, 1, NULL));
    assert_ok(host_pair_send_made(&at->pair, SIZES, COUNT, 2, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(at->pair.sender),
                     2 * BY_REFERENCE);
}

static void a_sender_says_hello(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_raw(t, &at);
    uint8_t hello[200];
    struct iovec piece = {hello, sizeof hello};
    spw__host_packet packet;
    int passed;
    bool is_lost;
    ssize_t size = spw__unix_socket_receive(at.raw, &piece, 1, &passed, &is_lost);
    assert_int_equal(size, SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES +
                               SPW__HOST_SECRET_BYTES);
    assert_true(spw__host_packet_get(hello, (size_t)size, &packet));
    assert_int_equal(packet.kind, SPW__HOST_HELLO);
    assert_int_equal(packet.epoch, SPW__HOST_VERSION);
    assert_memory_equal(hello + SPW__HOST_HEAD_BYTES, HOST_PAIR_NONCE,
                        SPW__HOST_NONCE_BYTES);
    /* The secret stands where it says. */
    const uint8_t *secret = hello + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES;
    assert_memory_equal((void *)(uintptr_t)packet.place, secret,
                        SPW__HOST_SECRET_BYTES);
    uint8_t nothing[SPW__HOST_SECRET_BYTES] = {0};
    assert_memory_not_equal(secret, nothing, sizeof nothing);
    assert_int_equal(spw__host_sender_way(at.pair.sender), SPW__HOST_MEETING);
    assert_int_equal(spw__host_sender_interest(at.pair.sender), SPW__HOST_READ);
    /* It is gone as soon as the link is. */
    spw__host_sender_shutdown(at.pair.sender);
    assert_memory_equal((void *)(uintptr_t)packet.place, nothing, sizeof nothing);
    close_raw(&at);
}

static void a_hello_that_finds_no_room_is_said_later(void **state)
{
    torture *t = *state;
    raw_receiver at;
    spw__host_packet packet;
    assert_ok(host_pair_open_raw_receiver(t->context, &at.pair, &at.raw, NULL));
    assert_int_equal(spw__host_sender_interest(at.pair.sender),
                     SPW__HOST_READ | SPW__HOST_WRITE);
    io_fault_arm_call("unix_send", 1, EAGAIN);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_int_equal(spw__host_sender_interest(at.pair.sender),
                     SPW__HOST_READ | SPW__HOST_WRITE);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_true(host_pair_raw_receive(at.raw, &packet));
    close_raw(&at);
}

static void nobody_to_meet_is_told(void **state)
{
    torture *t = *state;
    static const struct {
        int os_errno;
        spw_status expected;
    } FAULTS[] = {{ENOENT, SPW_STATUS_REFUSED},     {ECONNREFUSED, SPW_STATUS_REFUSED},
                  {EPROTOTYPE, SPW_STATUS_REFUSED}, {EACCES, SPW_STATUS_REFUSED},
                  {EAGAIN, SPW_STATUS_AGAIN},       {EMFILE, SPW_STATUS_IO}};
    spw__host_sender_options options = {.path = "/nowhere/at/all"};
    spw__host_sender *sender = NULL;
    spw_error error;
    assert_status(spw__host_sender_create(t->context, &options, &sender, &error),
                  REFUSED);
    assert_non_null(strstr(error.message, "/nowhere/at/all"));
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        io_fault_arm_call("unix_connect", 1, FAULTS[i].os_errno);
        assert_int_equal(spw__host_sender_create(t->context, &options, &sender, &error),
                         FAULTS[i].expected);
        assert_int_equal(error.os_errno, FAULTS[i].os_errno);
    }
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_null(sender);
    spw__host_sender_free(NULL);
}

static spw_payload *make(torture *t, const size_t *sizes, size_t count)
{
    spw_payload *payload;
    assert_ok(payload_make(t->context, sizes, count, 1, &payload, NULL));
    return payload;
}

static void only_what_is_large_is_wanted(void **state)
{
    torture *t = *state;
    raw_receiver at;
    static const size_t SMALL[] = {20, HOST_PAIR_FROM_BYTES - 1, 0};
    spw_payload *large = make(t, SIZES, COUNT), *small = make(t, SMALL, 3);
    open_raw(t, &at);
    assert_false(spw__host_sender_wants(at.pair.sender, large)); /* not met yet */
    say_way(&at, 1, SPW__HOST_BY_ADDRESS, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_true(spw__host_sender_wants(at.pair.sender, large));
    assert_false(spw__host_sender_wants(at.pair.sender, small));
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_true(spw__host_sender_wants(at.pair.sender, large));
    assert_int_equal(spw__host_sender_reason(at.pair.sender)->os_errno, EPERM);
    say_way(&at, 3, SPW__HOST_BY_STREAM, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_false(spw__host_sender_wants(at.pair.sender, large));
    spw_payload_free(large);
    spw_payload_free(small);
    close_raw(&at);
}

static void what_is_taken_is_let_go_of(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    spw__host_sender *sender = at.pair.sender;
    assert_null(spw__host_sender_take_done(sender));
    say_taken(&at, 1, 1); /* the first body of the first message */
    assert_ok(spw__host_sender_drive(sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(sender), 2 * BY_REFERENCE);
    say_taken(&at, 1, 2);
    assert_ok(spw__host_sender_drive(sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(sender), BY_REFERENCE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), BY_REFERENCE);
    uint64_t held = torture_charged(t, SPW_CHARGE_HELD);
    spw__host_announcement_free(spw__host_sender_take_done(sender));
    assert_int_equal(torture_charged(t, SPW_CHARGE_HELD), held - BY_REFERENCE);
    say_taken(&at, 1, 4);
    assert_ok(spw__host_sender_drive(sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(sender), 0);
    close_raw(&at);
}

static void what_makes_no_sense_ends_it(void **state)
{
    torture *t = *state;
    static const spw__host_packet WRONG[] = {
        {.kind = SPW__HOST_TAKEN, .epoch = 1, .number = 5},
        {.kind = SPW__HOST_TAKEN, .epoch = 2, .number = 1},
        {.kind = SPW__HOST_TAKEN, .epoch = 1, .number = UINT64_MAX},
        {.kind = SPW__HOST_WAY, .epoch = 1, .way = 2},
        {.kind = SPW__HOST_WAY, .epoch = 3, .way = 2},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 0},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 1},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 4},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 2, .number = 5},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 2, .number = 4, .place = 1},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 2, .number = 0, .place = 2000},
        {.kind = SPW__HOST_WAY, .epoch = 2, .way = 2, .number = 1, .place = 3000},
        {.kind = SPW__HOST_HELLO, .epoch = 1},
        {.kind = SPW__HOST_BYTES, .epoch = 1},
        {.kind = SPW__HOST_DESCRIPTOR, .epoch = 1},
        {.kind = 9},
    };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        raw_receiver at;
        spw_error error;
        open_announced(t, &at);
        host_pair_raw_send(at.raw, &WRONG[i], NULL, 0, i % 2 == 0 ? at.raw : -1);
        assert_status(spw__host_sender_drive(at.pair.sender, &error), PROTOCOL);
        assert_int_equal(spw__unix_socket_is_hung_up(at.raw), 1);
        assert_int_equal(spw__host_sender_interest(at.pair.sender), 0);
        assert_int_equal(spw__host_sender_way(at.pair.sender), SPW__HOST_BY_STREAM);
        /* It stays so, and what was announced stays as it is until the end. */
        assert_status(spw__host_sender_drive(at.pair.sender, &error), PROTOCOL);
        assert_int_equal(spw__host_sender_announced_bytes(at.pair.sender),
                         2 * BY_REFERENCE);
        close_raw(&at);
    }
}

static void what_was_taken_is_not_taken_back(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    say_taken(&at, 1, 3);
    say_taken(&at, 1, 2);
    assert_status(spw__host_sender_drive(at.pair.sender, NULL), PROTOCOL);
    close_raw(&at);
    open_announced(t, &at);
    say_taken(&at, 1, 3);
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 2, 0);
    assert_status(spw__host_sender_drive(at.pair.sender, NULL), PROTOCOL);
    close_raw(&at);
}

/* Nothing is taken before it is given. */
static void what_was_not_given_is_not_taken(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    say_way(&at, 2, SPW__HOST_BY_DESCRIPTOR, 1, 0);
    say_taken(&at, 2, 2);
    assert_status(spw__host_sender_drive(at.pair.sender, NULL), PROTOCOL);
    close_raw(&at);
}

static void an_end_is_an_error_only_with_something_announced(void **state)
{
    torture *t = *state;
    raw_receiver at;
    spw_error error;
    open_announced(t, &at);
    spw__unix_socket_shutdown(at.raw, spw__unix_socket_owner());
    assert_status(spw__host_sender_drive(at.pair.sender, &error), PEER_CLOSED);
    close_raw(&at);
    open_announced(t, &at);
    say_taken(&at, 1, 4);
    spw__unix_socket_shutdown(at.raw, spw__unix_socket_owner());
    assert_ok(spw__host_sender_drive(at.pair.sender, &error));
    assert_int_equal(spw__host_sender_way(at.pair.sender), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_sender_reason(at.pair.sender)->status,
                     SPW_STATUS_PEER_CLOSED);
    assert_ok(spw__host_sender_drive(at.pair.sender, &error));
    close_raw(&at);
}

static void a_shutdown_is_seen_before_anything_is_let_go_of(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    uint64_t held = torture_charged(t, SPW_CHARGE_HELD);
    spw__host_sender_shutdown(at.pair.sender);
    assert_int_equal(spw__unix_socket_is_hung_up(at.raw), 1);
    assert_int_equal(torture_charged(t, SPW_CHARGE_HELD), held);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    assert_int_equal(spw__host_sender_announced_bytes(at.pair.sender), 0);
    spw__host_sender_shutdown(at.pair.sender);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    spw__host_announcement *done = spw__host_sender_take_done(at.pair.sender);
    assert_non_null(done);
    assert_non_null(done->next);
    spw__host_announcement_free(done);
    assert_int_equal(torture_charged(t, SPW_CHARGE_HELD), held - 2 * BY_REFERENCE);
    close_raw(&at);
}

static void who_is_let_go_keeps_what_is_done_and_no_descriptor(void **state)
{
    torture *t = *state;
    raw_receiver at;
    int open = io_fault_open_descriptors();
    open_announced(t, &at);
    int more = io_fault_open_descriptors() - open;
    spw__host_sender_let_go(at.pair.sender);
    spw__host_sender_let_go(at.pair.sender);
    assert_int_equal(io_fault_open_descriptors() - open, more - 1);
    assert_int_equal(spw__host_sender_descriptor(at.pair.sender), -1);
    assert_int_equal(spw__unix_socket_is_hung_up(at.raw), 1);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    spw__host_announcement *done = spw__host_sender_take_done(at.pair.sender);
    assert_non_null(done);
    spw__host_announcement_free(done);
    close_raw(&at);
}

static void a_forked_child_does_not_end_its_parents_link(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        spw__host_sender_shutdown(at.pair.sender);
        _exit(EXIT_SUCCESS);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(spw__unix_socket_is_hung_up(at.raw), 0);
    say_taken(&at, 1, 4);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(at.pair.sender), 0);
    close_raw(&at);
}

static void a_forked_child_wants_no_body_of_its_own_read(void **state)
{
    torture *t = *state;
    raw_receiver at;
    int status;
    spw_payload *large = make(t, SIZES, COUNT);
    open_raw(t, &at);
    say_way(&at, 1, SPW__HOST_BY_ADDRESS, 0, 0);
    assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
    assert_true(spw__host_sender_wants(at.pair.sender, large));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(spw__host_sender_wants(at.pair.sender, large));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    spw_payload_free(large);
    close_raw(&at);
}

static void who_talks_to_itself_keeps_its_permission_for_others(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_raw(t, &at); /* whose receiver is this process too */
    assert_int_equal(spw__peer_process_allow(getppid()), 0);
    spw__peer_process_disallow(getppid());
    close_raw(&at);
}

static void what_it_gave_up_by_itself(void **state)
{
    static const struct {
        uint32_t way; /* as the receiver says; 0: nonsense */
        bool has_given_up;
    } CASES[] = {{SPW__HOST_BY_ADDRESS, false},
                 {SPW__HOST_BY_DESCRIPTOR, false},
                 {SPW__HOST_BY_STREAM, false},
                 {0, true}};
    torture *t = *state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        raw_receiver at;
        open_raw(t, &at);
        assert_false(spw__host_sender_has_given_up(at.pair.sender));
        say_way(&at, 1, CASES[i].way, 0, 0);
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        assert_int_equal(spw__host_sender_has_given_up(at.pair.sender),
                         CASES[i].has_given_up);
        /* That the peer goes is nothing that was given up. */
        spw__unix_socket_shutdown(at.raw, spw__unix_socket_owner());
        assert_ok(spw__host_sender_drive(at.pair.sender, NULL));
        assert_int_equal(spw__host_sender_has_given_up(at.pair.sender),
                         CASES[i].has_given_up);
        close_raw(&at);
    }
}

static void a_message_that_is_not_announced_leaves_nothing(void **state)
{
    torture *t = *state;
    raw_receiver at;
    open_announced(t, &at);
    spw__message_writer *writer;
    spw__host_announcement *announcement;
    spw_payload *payload = make(t, SIZES, COUNT);
    assert_ok(
        spw__host_sender_write(at.pair.sender, payload, &writer, &announcement, NULL));
    /* As when the send queue refuses it: the payload goes back to its owner. */
    assert_ptr_equal(spw__message_writer_give_back(writer), payload);
    spw__message_writer_free(writer);
    spw__host_announcement_free(announcement);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 2 * BY_REFERENCE);
    spw_payload_free(payload);
    close_raw(&at);
}

/* Packets by chance, out of those that nearly make sense: whatever they do to the link,
 * it is memory-safe, and nothing is let go of that was not taken. */
static void packets_by_chance(void **state)
{
    torture *t = *state;
    uint32_t random = 1;
    for (int round = 0; round < 300; round++) {
        raw_receiver at;
        open_announced(t, &at);
        for (int i = 0; i < 20; i++) {
            uint32_t choice[6];
            for (size_t k = 0; k < COUNT_OF(choice); k++) {
                random = random * 1664525u + 1013904223u;
                choice[k] = random >> 16;
            }
            say(&at, (spw__host_packet){.kind = 2 + choice[0] % 2,
                                        .epoch = 1 + choice[1] % 3,
                                        .number = choice[2] % 6,
                                        .place = choice[3] % 3 * 1500,
                                        .way = 1 + choice[4] % 3,
                                        .os_errno = choice[5]});
            spw__host_packet given;
            while (host_pair_raw_receive(at.raw, &given))
                ;
            if (spw__host_sender_drive(at.pair.sender, NULL) != SPW_STATUS_OK ||
                spw__host_sender_interest(at.pair.sender) == 0)
                break;
        }
        uint64_t announced = spw__host_sender_announced_bytes(at.pair.sender);
        assert_int_equal(announced % BY_REFERENCE, 0);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), announced);
        close_raw(&at);
    }
}

static void a_link_with_an_announcement(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, &t->error));
    TRY(host_pair_send_made(&pair, SIZES, COUNT, 1, &t->error));
    TRY(host_pair_send_made(&pair, SIZES, COUNT, 2, &t->error));
    TRY(host_pair_receive_made(&pair, SIZES, COUNT, 1, &t->error));
    TRY(spw__host_sender_drive(pair.sender, &t->error));
end:
    host_pair_close(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_sender_says_hello),
        SCENARIO(a_hello_that_finds_no_room_is_said_later),
        SCENARIO(nobody_to_meet_is_told),
        SCENARIO(only_what_is_large_is_wanted),
        SCENARIO(what_is_taken_is_let_go_of),
        SCENARIO(what_makes_no_sense_ends_it),
        SCENARIO(what_was_taken_is_not_taken_back),
        SCENARIO(what_was_not_given_is_not_taken),
        SCENARIO(an_end_is_an_error_only_with_something_announced),
        SCENARIO(a_shutdown_is_seen_before_anything_is_let_go_of),
        SCENARIO(who_is_let_go_keeps_what_is_done_and_no_descriptor),
        SCENARIO(a_forked_child_does_not_end_its_parents_link),
        SCENARIO(a_forked_child_wants_no_body_of_its_own_read),
        SCENARIO(who_talks_to_itself_keeps_its_permission_for_others),
        SCENARIO(what_it_gave_up_by_itself),
        SCENARIO(a_message_that_is_not_announced_leaves_nothing),
        SCENARIO(packets_by_chance),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(a_link_with_an_announcement)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("host_sender", scenarios);
}
