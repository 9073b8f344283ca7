/* How bodies come, by each way and from one way to the next. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context/figures.h"
#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "payloads.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"

static const size_t SIZES[] = {20, 90, 5000, 0, 999, 200000, 1000, 7};
enum {
    COUNT = COUNT_OF(SIZES),
    BY_REFERENCE = 5000 + 200000 + 1000,
    ALONE = 5000 + 200000 /* the last one shares its region with smaller frames */
};

static void fault_nothing(void)
{
    host_fault_set_user((uid_t)-1);
    host_fault_refuse_reads(0);
    host_fault_refuse_memfds(0);
    host_fault_refuse_maps(0);
    host_fault_after_read(NULL, NULL);
}

/* Three messages that are all announced before the first is read. */
static spw_status exchange(host_pair *pair, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    for (unsigned i = 0; i < 3 && status == SPW_STATUS_OK; i++)
        status = host_pair_send_made(pair, SIZES, COUNT, i, error);
    for (unsigned i = 0; i < 3 && status == SPW_STATUS_OK; i++)
        status = host_pair_receive_made(pair, SIZES, COUNT, i, error);
    if (status == SPW_STATUS_OK)
        status = host_pair_settle(pair, error);
    return status;
}

static uint64_t bytes_by(const host_pair *pair, spw__host_way way)
{
    return spw__host_receiver_bytes(pair->receiver, way);
}

static void bodies_are_read_from_the_senders_memory(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, &t->error));
    TRY(exchange(&pair, &t->error));
end:
    host_pair_close(&pair);
}

static void each_way_brings_the_same(void **state)
{
    torture *t = *state;
    static const size_t LIMITS[] = {0, 1, 999, 4096, 70000};
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_STREAM; way++)
        for (size_t i = 0; i < COUNT_OF(LIMITS); i++) {
            if (LIMITS[i] == 1 && way == SPW__HOST_BY_ADDRESS)
                continue; /* 200,000 system calls */
            host_pair pair = {0};
            assert_ok(host_pair_open(t->context, true, &pair, NULL));
            assert_ok(host_pair_meet(&pair, way, NULL));
            pair.limit = LIMITS[i];
            assert_ok(exchange(&pair, NULL));
            assert_int_equal(spw__host_receiver_way(pair.receiver), way);
            assert_int_equal(spw__host_sender_way(pair.sender), way);
            /* Without references nothing comes by the side channel. */
            assert_int_equal(bytes_by(&pair, way),
                             way == SPW__HOST_BY_STREAM ? 0 : 3 * BY_REFERENCE);
            host_pair_close(&pair);
        }
}

static void what_is_passed_is_not_copied(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    spw_payload *payload;
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    assert_ok(host_pair_send_made(&pair, SIZES, COUNT, 5, NULL));
    assert_ok(host_pair_receive(&pair, &payload, NULL));
    payload_assert(payload, SIZES, COUNT, 5);
    assert_int_equal(io_fault_mapped_bytes(), ALONE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_IN_FLIGHT), 0);
    assert_true(torture_charged(t, SPW_CHARGE_HELD) >= 2 * ALONE); /* both ends */
    const spw_slice *slice = &spw_payload_slices(payload)[5];
    assert_true(spw_buffer_is_writeable(slice->buffer));
    memset(spw_slice_data(slice), 0, slice->size); /* ours alone */
    host_pair_close(&pair);
    spw_payload_free(payload);
    assert_int_equal(io_fault_mapped_bytes(), 0);
}

/* Shards have to lie side by side, which what is passed does not. */
static void shards_that_are_passed_lie_side_by_side(void **state)
{
    torture *t = *state;
    static char memory[3][7000];
    wire_bytes header = {0};
    unsigned released = 0;
    wire_put_sub_header(&header, &(wire_value){(size_t[]){2, 1}, 2, NULL, 3});
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_DESCRIPTOR;
         way++) {
        host_pair pair = {0};
        spw_payload *payload, *one;
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, way, NULL));
        pair.limit = 3000;
        assert_ok(spw_payload_create(t->context, 5, &payload, NULL));
        void *const parts[] = {header.bytes, header.bytes, memory[0], memory[1],
                               memory[2]};
        const size_t sizes[] = {header.size, header.size, 7000, 7000, 7000};
        for (int i = 0; i < 5; i++) {
            if (i >= 2)
                memset(memory[i - 2], 'a' + i, 7000);
            assert_ok(
                payload_wrap(t->context, parts[i], sizes[i], &released, &one, NULL));
            spw_slice slice = spw_payload_slices(one)[0];
            spw_buffer_ref(slice.buffer);
            assert_ok(spw_payload_append(payload, &slice, NULL));
            spw_payload_free(one);
        }
        assert_ok(host_pair_send(&pair, payload, NULL));
        assert_ok(host_pair_receive(&pair, &payload, NULL));
        const spw_slice *slices = spw_payload_slices(payload);
        assert_ptr_equal(slices[2].buffer, slices[3].buffer);
        assert_int_equal(spw_buffer_size(slices[2].buffer), 14000);
        for (int i = 2; i < 5; i++)
            assert_memory_equal(spw_slice_data(&slices[i]), memory[i - 2], 7000);
        /* The third is no shard. */
        assert_int_equal(io_fault_mapped_bytes(),
                         way == SPW__HOST_BY_DESCRIPTOR ? 7000 : 0);
        spw_payload_free(payload);
        host_pair_close(&pair);
    }
    wire_clear(&header);
}

/* Reading is refused after some of a body: the rest, and all that was announced, comes
 * by the next way. */
static void a_way_that_is_refused_is_left_in_the_middle(void **state)
{
    torture *t = *state;
    static const int ERRORS[] = {EPERM, ENOSYS, ESRCH, EFAULT, ENOMEM, EINVAL};
    for (size_t i = 0; i < COUNT_OF(ERRORS); i++)
        for (int uses_descriptors = 0; uses_descriptors < 2; uses_descriptors++)
            for (uint64_t reads = 1; reads < 8; reads++) {
                host_pair pair = {0};
                assert_ok(host_pair_open(t->context, uses_descriptors, &pair, NULL));
                assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
                pair.limit = 4000;
                io_fault_arm_call("peer_read", reads, ERRORS[i]);
                assert_ok(exchange(&pair, NULL));
                io_fault_arm(IO_FAULT_NONE, 0, 0);
                assert_int_equal(spw__host_receiver_way(pair.receiver),
                                 SPW__HOST_BY_DESCRIPTOR);
                assert_int_equal(spw__host_receiver_reason(pair.receiver)->os_errno,
                                 ERRORS[i]);
                assert_int_equal(spw__host_sender_way(pair.sender),
                                 uses_descriptors ? SPW__HOST_BY_DESCRIPTOR
                                                  : SPW__HOST_BY_STREAM);
                assert_int_equal(spw__host_sender_reason(pair.sender)->os_errno,
                                 ERRORS[i]);
                spw__host_way rest =
                    uses_descriptors ? SPW__HOST_BY_DESCRIPTOR : SPW__HOST_BY_STREAM;
                assert_true(bytes_by(&pair, SPW__HOST_BY_ADDRESS) < 8 * 4000);
                assert_int_equal(bytes_by(&pair, SPW__HOST_BY_ADDRESS) +
                                     bytes_by(&pair, rest),
                                 3 * BY_REFERENCE);
                /* And what comes after that. */
                assert_ok(exchange(&pair, NULL));
                host_pair_close(&pair);
            }
}

static void a_sender_without_memfds_gives_bytes(void **state)
{
    torture *t = *state;
    static const char *const CALLS[] = {"shared_create", "shared_fill", "shared_seal"};
    for (size_t i = 0; i < COUNT_OF(CALLS); i++)
        for (uint64_t n = 1; n < 5; n++) {
            host_pair pair = {0};
            assert_ok(host_pair_open(t->context, true, &pair, NULL));
            assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
            io_fault_arm_call(CALLS[i], n, ENOSPC);
            assert_ok(exchange(&pair, NULL));
            io_fault_arm(IO_FAULT_NONE, 0, 0);
            assert_int_equal(spw__host_sender_way(pair.sender), SPW__HOST_BY_STREAM);
            assert_int_equal(spw__host_sender_reason(pair.sender)->os_errno, ENOSPC);
            assert_int_equal(bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR) +
                                 bytes_by(&pair, SPW__HOST_BY_STREAM),
                             3 * BY_REFERENCE);
            assert_true(bytes_by(&pair, SPW__HOST_BY_STREAM) > 0);
            assert_ok(exchange(&pair, NULL));
            host_pair_close(&pair);
        }
}

/* What is already on the way by descriptor comes again as bytes. */
static void a_lost_descriptor_comes_as_bytes(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    host_fault_lose_descriptor();
    assert_ok(exchange(&pair, NULL));
    assert_int_equal(spw__host_receiver_way(pair.receiver), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_sender_way(pair.sender), SPW__HOST_BY_STREAM);
    assert_int_equal(spw__host_receiver_reason(pair.receiver)->os_errno, EMFILE);
    assert_int_equal(bytes_by(&pair, SPW__HOST_BY_STREAM), 3 * BY_REFERENCE);
    host_pair_close(&pair);
}

/* A sender that gave up on descriptors by itself hears the same afterwards. */
static void both_may_give_up_on_descriptors(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
    io_fault_arm_call("shared_create", 2, EMFILE);
    host_fault_lose_descriptor();
    assert_ok(exchange(&pair, NULL));
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_int_equal(spw__host_receiver_way(pair.receiver), SPW__HOST_BY_STREAM);
    assert_int_equal(bytes_by(&pair, SPW__HOST_BY_STREAM), 3 * BY_REFERENCE);
    host_pair_close(&pair);
}

static void what_cannot_be_mapped_is_read(void **state)
{
    torture *t = *state;
    for (int is_read_refused = 0; is_read_refused < 2; is_read_refused++) {
        host_pair pair = {0};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, NULL));
        host_fault_refuse_maps(ENOMEM);
        pair.limit = 3000;
        if (is_read_refused)
            io_fault_arm_call("shared_read", 2, EIO);
        assert_ok(exchange(&pair, NULL));
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        fault_nothing();
        assert_int_equal(spw__host_receiver_way(pair.receiver),
                         is_read_refused ? SPW__HOST_BY_STREAM
                                         : SPW__HOST_BY_DESCRIPTOR);
        assert_int_equal(bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR),
                         is_read_refused ? 3000 : 3 * BY_REFERENCE);
        host_pair_close(&pair);
    }
}

/* The region that was reserved is charged already; there is no room for the mapping
 * beside it. */
static void what_the_budget_does_not_allow_to_map_is_read(void **state)
{
    torture *t = *state;
    static const size_t LARGE[] = {20, 100000};
    torture_limit(t, 350000);
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, &t->error));
    /* 100,020 held by the sender's buffers and 100,000 queued. */
    TRY(host_pair_send_made(&pair, LARGE, 2, 1, &t->error));
    spw_payload *payload;
    TRY(host_pair_receive(&pair, &payload, &t->error));
    payload_assert(payload, LARGE, 2, 1);
    assert_int_equal(io_fault_mapped_bytes(), 0);
    spw_payload_free(payload);
end:
    host_pair_close(&pair);
}

static void shut_down(void *argument)
{
    spw__host_sender_shutdown(argument);
}

/* The sender lets go of everything after the bytes were read: they do not count. */
static void a_read_counts_only_if_the_sender_is_still_there(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    spw_error error;
    spw_payload *payload = NULL;
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
    assert_ok(host_pair_send_made(&pair, SIZES, COUNT, 1, NULL));
    host_fault_after_read(shut_down, pair.sender);
    assert_status(host_pair_receive(&pair, &payload, &error), TRUNCATED);
    assert_non_null(strstr(error.message, "closed"));
    assert_int_equal(bytes_by(&pair, SPW__HOST_BY_ADDRESS), 0);
    assert_int_equal(spw__host_receiver_interest(pair.receiver), 0);
    /* From then on it is always the same. */
    assert_status(spw__host_receiver_fetch(pair.receiver, pair.reader, 1, NULL, &error),
                  TRUNCATED);
    assert_status(spw__host_receiver_drive(pair.receiver, &error), TRUNCATED);
    host_pair_close(&pair);
}

static void nothing_is_read_after_a_shutdown(void **state)
{
    torture *t = *state;
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_DESCRIPTOR;
         way++) {
        host_pair pair = {0};
        spw_payload *payload;
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, way, NULL));
        assert_ok(host_pair_send_made(&pair, SIZES, COUNT, 1, NULL));
        spw__host_sender_shutdown(pair.sender);
        assert_status(host_pair_receive(&pair, &payload, NULL), TRUNCATED);
        host_pair_close(&pair);
    }
}

/* A sender in another process: it says hello, and waits to be killed. */
typedef struct other_process {
    host_pair pair;
    pid_t pid;
    int copy_holder; /* a child of its own, which holds a copy of the socket */
} other_process;

static char bodies[300000];

static void kill_other(void *argument)
{
    other_process *other = argument;
    assert_int_equal(kill(other->pid, SIGKILL), 0);
    assert_int_equal(waitpid(other->pid, NULL, 0), other->pid);
}

static void be_sender(const host_pair *pair, int told)
{
    uint8_t
        hello[SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES + SPW__HOST_SECRET_BYTES];
    static uint8_t secret[SPW__HOST_SECRET_BYTES] = "only the sender has this in it";
    memset(bodies, 'b', sizeof bodies);
    int raw = spw__unix_socket_connect(pair->place.path);
    spw__host_packet packet = {.kind = SPW__HOST_HELLO,
                               .epoch = SPW__HOST_VERSION,
                               .place = (uintptr_t)secret};
    spw__host_packet_put(&packet, hello);
    memcpy(hello + SPW__HOST_HEAD_BYTES, HOST_PAIR_NONCE, SPW__HOST_NONCE_BYTES);
    memcpy(hello + SPW__HOST_HEAD_BYTES + SPW__HOST_NONCE_BYTES, secret, sizeof secret);
    struct iovec piece = {hello, sizeof hello};
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    (void)spw__unix_socket_send(raw, &piece, 1, -1);
    (void)!write(told, &child, sizeof child);
    for (;;)
        pause();
}

static void open_other(spw_context *context, other_process *other)
{
    host_pair *pair = &other->pair;
    *pair = (host_pair){.context = context, .listening = -1, .accepted = -1};
    int told[2];
    assert_int_equal(pipe(told), 0);
    private_place_open(&pair->place);
    pair->listening = spw__unix_socket_listen(pair->place.path, 4);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0)
        be_sender(pair, told[1]);
    assert_int_equal(read(told[0], &other->copy_holder, sizeof(pid_t)), sizeof(pid_t));
    close(told[0]);
    close(told[1]);
    int accepted = spw__unix_socket_accept(pair->listening);
    assert_true(accepted >= 0);
    assert_ok(spw__host_receiver_create(context, accepted, &pair->receiver, NULL));
    assert_ok(spw__host_receiver_drive(pair->receiver, NULL));
    assert_ok(spw__message_reader_create(context, spw_sink_heap(context), &pair->reader,
                                         NULL));
    spw__message_reader_allow_references(pair->reader);
    wire_bytes frames[2] = {{0}};
    wire_put_noise(&frames[0], 20, 1);
    wire_put(&frames[1], bodies, sizeof bodies);
    wire_put_referenced(&pair->stream, frames, 2, (uint64_t[]){0, (uintptr_t)bodies});
    wire_clear(&frames[0]);
    wire_clear(&frames[1]);
}

static void close_other(other_process *other)
{
    assert_int_equal(kill(other->copy_holder, SIGKILL), 0);
    host_pair_close(&other->pair);
}

static void another_process_is_read(void **state)
{
    torture *t = *state;
    other_process other = {.pid = 0};
    spw_payload *payload;
    open_other(t->context, &other);
    assert_ok(
        spw__host_receiver_admit(other.pair.receiver, SPW__HOST_BY_ADDRESS, NULL));
    assert_int_equal(spw__host_receiver_way(other.pair.receiver), SPW__HOST_BY_ADDRESS);
    assert_ok(host_pair_receive(&other.pair, &payload, NULL));
    memset(bodies, 'b', sizeof bodies); /* as there */
    assert_memory_equal(spw_slice_data(&spw_payload_slices(payload)[1]), bodies,
                        sizeof bodies);
    memset(bodies, 0, sizeof bodies);
    spw_payload_free(payload);
    kill_other(&other);
    close_other(&other);
}

/* Its child still holds the socket open, but not its memory. */
static void a_read_counts_only_if_the_process_still_runs(void **state)
{
    torture *t = *state;
    other_process other = {.pid = 0};
    spw_payload *payload;
    open_other(t->context, &other);
    assert_ok(
        spw__host_receiver_admit(other.pair.receiver, SPW__HOST_BY_ADDRESS, NULL));
    host_fault_after_read(kill_other, &other);
    assert_status(host_pair_receive(&other.pair, &payload, NULL), TRUNCATED);
    assert_int_equal(bytes_by(&other.pair, SPW__HOST_BY_ADDRESS), 0);
    close_other(&other);
}

static void a_process_that_has_ended_is_not_read(void **state)
{
    torture *t = *state;
    other_process other = {.pid = 0};
    spw_payload *payload;
    open_other(t->context, &other);
    assert_ok(
        spw__host_receiver_admit(other.pair.receiver, SPW__HOST_BY_ADDRESS, NULL));
    kill_other(&other);
    assert_status(host_pair_receive(&other.pair, &payload, NULL), TRUNCATED);
    close_other(&other);
}

/* Somebody to read a half. */
typedef struct second_reader {
    pthread_t thread;
    void (*work)(void *argument);
    void *argument;
    unsigned started, joined, asked;
    bool is_busy;
} second_reader;

static void *run_second(void *self)
{
    second_reader *second = self;
    second->work(second->argument);
    return NULL;
}

static bool start_second(void *self, void (*work)(void *argument), void *argument)
{
    second_reader *second = self;
    second->asked++;
    if (second->is_busy)
        return false;
    second->work = work;
    second->argument = argument;
    second->started++;
    return pthread_create(&second->thread, NULL, run_second, second) == 0;
}

static void join_second(void *self)
{
    second_reader *second = self;
    second->joined++;
    pthread_join(second->thread, NULL);
}

static void a_second_reader_takes_half(void **state)
{
    torture *t = *state;
    static const size_t LARGE[] = {20, (9 << 20) + 5, 7 << 20};
    for (int is_busy = 0; is_busy < 2; is_busy++) {
        host_pair pair = {0};
        second_reader second = {.is_busy = is_busy};
        spw__host_helper helper = {start_second, join_second, &second};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
        pair.helper = &helper;
        assert_ok(host_pair_send_made(&pair, LARGE, 3, 3, NULL));
        assert_ok(host_pair_receive_made(&pair, LARGE, 3, 3, NULL));
        assert_int_equal(second.asked, 1); /* not for the small one */
        assert_int_equal(second.started, !is_busy);
        assert_int_equal(second.joined, !is_busy);
        assert_int_equal(bytes_by(&pair, SPW__HOST_BY_ADDRESS), LARGE[1] + LARGE[2]);
        host_pair_close(&pair);
    }
}

static void a_half_that_is_refused_is_no_body(void **state)
{
    torture *t = *state;
    static const size_t LARGE[] = {20, 9 << 20};
    for (uint64_t n = 1; n <= 2; n++) {
        host_pair pair = {0};
        second_reader second = {.is_busy = false};
        spw__host_helper helper = {start_second, join_second, &second};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
        pair.helper = &helper;
        assert_ok(host_pair_send_made(&pair, LARGE, 2, 3, NULL));
        io_fault_arm_call("peer_read", n, EPERM);
        assert_ok(host_pair_receive_made(&pair, LARGE, 2, 3, NULL));
        io_fault_arm(IO_FAULT_NONE, 0, 0);
        assert_int_equal(bytes_by(&pair, SPW__HOST_BY_ADDRESS), 0);
        assert_int_equal(bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR), LARGE[1]);
        host_pair_close(&pair);
    }
}

static void the_sender_hears_once_a_message(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
    assert_ok(host_pair_send_made(&pair, SIZES, COUNT, 1, NULL));
    assert_ok(host_pair_send_made(&pair, SIZES, COUNT, 2, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(pair.sender), 2 * BY_REFERENCE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 2 * BY_REFERENCE);
    io_fault_arm(IO_FAULT_NONE, 0, 0);
    assert_ok(host_pair_receive_made(&pair, SIZES, COUNT, 1, NULL));
    assert_int_equal(io_fault_calls_of("unix_send"), 1);
    assert_ok(spw__host_sender_drive(pair.sender, NULL));
    assert_int_equal(spw__host_sender_announced_bytes(pair.sender), BY_REFERENCE);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), BY_REFERENCE);
    host_pair_close(&pair);
}

/* Within a message too, where a sender waits for it whose window is full. */
static void a_long_message_is_heard_of_on_the_way(void **state)
{
    torture *t = *state;
    enum { BODIES = 6, SIZE = 20 << 20 };
    size_t sizes[1 + BODIES] = {20};
    for (int i = 1; i <= BODIES; i++)
        sizes[i] = SIZE;
    for (spw__host_way way = SPW__HOST_BY_ADDRESS; way <= SPW__HOST_BY_DESCRIPTOR;
         way++) {
        host_pair pair = {0};
        assert_ok(host_pair_open(t->context, true, &pair, NULL));
        assert_ok(host_pair_meet(&pair, way, NULL));
        assert_ok(host_pair_send_made(&pair, sizes, 1 + BODIES, 1, NULL));
        if (way == SPW__HOST_BY_DESCRIPTOR) {
            /* As much as the window takes, and nobody waits in vain. */
            while (spw__host_sender_interest(pair.sender) & SPW__HOST_WRITE)
                assert_ok(spw__host_sender_drive(pair.sender, NULL));
            assert_int_equal(io_fault_calls_of("shared_seal"), 4);
        }
        uint64_t before = io_fault_calls_of("unix_send");
        assert_ok(host_pair_receive_made(&pair, sizes, 1 + BODIES, 1, NULL));
        if (way == SPW__HOST_BY_ADDRESS)
            assert_int_equal(io_fault_calls_of("unix_send") - before, 1);
        assert_ok(host_pair_settle(&pair, NULL));
        host_pair_close(&pair);
    }
}

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
        assert_int_equal(bytes_by(&at.pair, SPW__HOST_BY_STREAM), 0);
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
    assert_int_equal(bytes_by(&at.pair, SPW__HOST_BY_ADDRESS), 0);
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

static void without_a_body_there_is_nothing_to_fetch(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    assert_ok(host_pair_open(t->context, true, &pair, NULL));
    assert_ok(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, NULL));
    assert_ok(spw__host_receiver_fetch(pair.receiver, pair.reader, 1, NULL, NULL));
    host_pair_close(&pair);
}

static void bodies_are_passed(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, true, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_DESCRIPTOR, &t->error));
    TRY(exchange(&pair, &t->error));
end:
    host_pair_close(&pair);
}

static void bodies_come_as_bytes(void **state)
{
    torture *t = *state;
    host_pair pair = {0};
    TRY(host_pair_open(t->context, false, &pair, &t->error));
    TRY(host_pair_meet(&pair, SPW__HOST_BY_ADDRESS, &t->error));
    host_fault_refuse_reads(EPERM);
    TRY(exchange(&pair, &t->error));
end:
    fault_nothing();
    host_pair_close(&pair);
}

#define TEST_AT(function)                                                              \
    cmocka_unit_test_setup_teardown(function, torture_setup, torture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(each_way_brings_the_same),
        TEST_AT(what_is_passed_is_not_copied),
        TEST_AT(shards_that_are_passed_lie_side_by_side),
        TEST_AT(a_way_that_is_refused_is_left_in_the_middle),
        TEST_AT(a_sender_without_memfds_gives_bytes),
        TEST_AT(a_lost_descriptor_comes_as_bytes),
        TEST_AT(both_may_give_up_on_descriptors),
        TEST_AT(what_cannot_be_mapped_is_read),
        TEST_AT(what_the_budget_does_not_allow_to_map_is_read),
        TEST_AT(a_read_counts_only_if_the_sender_is_still_there),
        TEST_AT(nothing_is_read_after_a_shutdown),
        TEST_AT(another_process_is_read),
        TEST_AT(a_read_counts_only_if_the_process_still_runs),
        TEST_AT(a_process_that_has_ended_is_not_read),
        TEST_AT(a_second_reader_takes_half),
        TEST_AT(a_half_that_is_refused_is_no_body),
        TEST_AT(the_sender_hears_once_a_message),
        TEST_AT(a_long_message_is_heard_of_on_the_way),
        TEST_AT(packets_that_are_not_next_are_refused),
        TEST_AT(what_is_passed_must_be_sealed_and_of_its_size),
        TEST_AT(a_descriptor_that_is_not_next_is_closed),
        TEST_AT(an_end_in_the_middle_is_told),
        TEST_AT(memory_without_the_secret_does_not_count),
        TEST_AT(a_body_without_an_address_is_refused),
        TEST_AT(without_a_body_there_is_nothing_to_fetch),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(bodies_are_read_from_the_senders_memory),
        SCENARIO(bodies_are_passed),
        SCENARIO(bodies_come_as_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("host_receiver_fetch", scenarios);
}
