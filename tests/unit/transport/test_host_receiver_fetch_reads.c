/* Reading a sender's memory: it counts only while that is the sender's, and two threads
 * may share it. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host_fault.h"
#include "host_pair.h"
#include "io_fault.h"
#include "platform/unix_socket.h"

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
    assert_ok(host_pair_send_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 1, NULL));
    host_fault_after_read(shut_down, pair.sender);
    assert_status(host_pair_receive(&pair, &payload, &error), TRUNCATED);
    assert_non_null(strstr(error.message, "closed"));
    assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_ADDRESS), 0);
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
        assert_ok(
            host_pair_send_made(&pair, HOST_PAIR_SIZES, HOST_PAIR_COUNT, 1, NULL));
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
    assert_int_equal(host_pair_bytes_by(&other.pair, SPW__HOST_BY_ADDRESS), 0);
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
        assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_ADDRESS),
                         LARGE[1] + LARGE[2]);
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
        assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_ADDRESS), 0);
        assert_int_equal(host_pair_bytes_by(&pair, SPW__HOST_BY_DESCRIPTOR), LARGE[1]);
        host_pair_close(&pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(a_read_counts_only_if_the_sender_is_still_there),
        SCENARIO(nothing_is_read_after_a_shutdown),
        SCENARIO(another_process_is_read),
        SCENARIO(a_read_counts_only_if_the_process_still_runs),
        SCENARIO(a_process_that_has_ended_is_not_read),
        SCENARIO(a_second_reader_takes_half),
        SCENARIO(a_half_that_is_refused_is_no_body),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
