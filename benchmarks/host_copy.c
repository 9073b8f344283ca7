/* What it costs to get a body from another process of the host into pool memory, by
 * size and by way: read from its memory by one thread and by two, a memfd that the
 * sender fills and passes and the receiver maps and touches, the Unix socket, and TCP
 * over loopback with the default congestion control and with reno. Each transfer is
 * asked for by a few bytes and takes one answer, as a message does, so that small ones
 * pay for waking up. GB/s, the median of rounds taken in turn. Which threshold pays,
 * whether a second reader does, and whether a memfd ever does, is in
 * docs/decisions/0008-same-host.md. What is sent lies on huge pages, as large NumPy
 * arrays do, or on small ones. build/release/tests/host_copy [ROUNDS [small]] */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "platform/memory_map.h"
#include "platform/peer_process.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"
#include "spillway/buffer.h"

enum { ROUNDS_MAX = 101, PACKET_BYTES = 65536 };
static const size_t SIZES[] = {16384,   65536,   262144,   524288,
                               1048576, 4194304, 16777216, 268435456};
enum { SIZE_COUNT = sizeof SIZES / sizeof SIZES[0] };
/* The sender's memory, of which each transfer takes the next part: what is sent lies in
 * no cache. */
static const size_t MEMORY_BYTES = (size_t)1 << 29;

typedef enum way { READ_ONE, READ_TWO, MEMFD, UNIX, TCP, TCP_RENO, WAY_COUNT } way;
static const char *const WAY_NAMES[WAY_COUNT] = {"read by 1", "read by 2", "memfd",
                                                 "unix",      "tcp",       "tcp reno"};

typedef struct request {
    int way, size;
} request;

static void stop_if(int is_wrong, const char *what)
{
    if (!is_wrong)
        return;
    perror(what);
    exit(EXIT_FAILURE);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Processor time of both processes, so far. */
static double used_s(clockid_t child)
{
    struct timespec ours, theirs;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ours);
    clock_gettime(child, &theirs);
    return (double)(ours.tv_sec + theirs.tv_sec) +
           (double)(ours.tv_nsec + theirs.tv_nsec) * 1e-9;
}

static void send_all(int descriptor, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t sent = send(descriptor, data, size, MSG_NOSIGNAL);
        stop_if(sent <= 0, "send");
        data += sent;
        size -= (size_t)sent;
    }
}

static void receive_all(int descriptor, char *to, size_t size)
{
    while (size > 0) {
        ssize_t got = recv(descriptor, to, size, 0);
        stop_if(got <= 0, "recv");
        to += got;
        size -= (size_t)got;
    }
}

/* The other process: waits for requests until their end. */
static void serve(int control, const int *tcp, int unix_socket, const char *memory)
{
    request asked;
    size_t next = 0;
    while (recv(control, &asked, sizeof asked, MSG_WAITALL) == sizeof asked) {
        size_t size = SIZES[asked.size];
        next = next + size <= MEMORY_BYTES ? next : 0;
        const char *data = memory + next;
        next += size;
        uint64_t address = (uint64_t)(uintptr_t)data;
        if (asked.way == READ_ONE || asked.way == READ_TWO)
            send_all(control, (char *)&address, sizeof address);
        if (asked.way == TCP || asked.way == TCP_RENO)
            send_all(tcp[asked.way - TCP], data, size);
        if (asked.way == UNIX)
            for (size_t at = 0; at < size; at += PACKET_BYTES) {
                size_t step = size - at < PACKET_BYTES ? size - at : PACKET_BYTES;
                stop_if(send(unix_socket, data + at, step, 0) < 0, "send a packet");
            }
        if (asked.way == MEMFD) {
            int memfd = spw__shared_memory_create();
            stop_if(memfd < 0 || spw__shared_memory_fill(memfd, 0, data, size) < 0 ||
                        spw__shared_memory_seal(memfd) < 0,
                    "fill a memfd");
            struct iovec piece = {&asked, sizeof asked};
            stop_if(spw__unix_socket_send(unix_socket, &piece, 1, memfd) < 0, "pass");
            spw__shared_memory_close(memfd);
        }
    }
    _exit(EXIT_SUCCESS);
}

/* The second reader: a thread that waits for a range. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const spw__peer_process *peer;
    spw__peer_piece piece;
    int is_busy, is_over;
} second = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, {0}, 0, 0};

static void *read_second(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&second.lock);
    for (;;) {
        while (!second.is_busy && !second.is_over)
            pthread_cond_wait(&second.changed, &second.lock);
        if (second.is_over)
            break;
        pthread_mutex_unlock(&second.lock);
        stop_if(spw__peer_process_read(second.peer, &second.piece, 1) < 0, "read");
        pthread_mutex_lock(&second.lock);
        second.is_busy = 0;
        pthread_cond_broadcast(&second.changed);
    }
    pthread_mutex_unlock(&second.lock);
    return NULL;
}

static void read_by_two(const spw__peer_process *peer, char *to, uint64_t address,
                        size_t size)
{
    size_t half = size / 2;
    pthread_mutex_lock(&second.lock);
    second.peer = peer;
    second.piece = (spw__peer_piece){to + half, address + half, size - half};
    second.is_busy = 1;
    pthread_cond_broadcast(&second.changed);
    pthread_mutex_unlock(&second.lock);
    spw__peer_piece first = {to, address, half};
    stop_if(spw__peer_process_read(peer, &first, 1) < 0, "read");
    pthread_mutex_lock(&second.lock);
    while (second.is_busy)
        pthread_cond_wait(&second.changed, &second.lock);
    pthread_mutex_unlock(&second.lock);
}

/* One transfer. The memory is the pool's, warm as soon as the first round is over. */
static double transfer(spw_context *context, const spw__peer_process *peer, int control,
                       const int *tcp, int unix_socket, request asked)
{
    size_t size = SIZES[asked.size];
    double start = now_s();
    send_all(control, (char *)&asked, sizeof asked);
    if (asked.way == MEMFD) {
        int memfd;
        bool is_lost;
        request told;
        struct iovec piece = {&told, sizeof told};
        stop_if(spw__unix_socket_receive(unix_socket, &piece, 1, &memfd, &is_lost) < 0,
                "receive");
        void *data;
        stop_if(spw__shared_memory_verify(memfd, size) < 0 ||
                    spw__shared_memory_map(memfd, size, &data) < 0,
                "map");
        spw__shared_memory_close(memfd);
        for (size_t at = 0; at < size; at += 4096)
            (void)((volatile char *)data)[at];
        double taken = now_s() - start;
        spw__shared_memory_unmap(data, size);
        return taken;
    }
    spw_buffer *buffer;
    stop_if(spw_buffer_create(context, size, SPW_CHARGE_HELD, &buffer, NULL) !=
                SPW_STATUS_OK,
            "a buffer");
    char *to = spw_buffer_data(buffer);
    if (asked.way == READ_ONE || asked.way == READ_TWO) {
        uint64_t address;
        receive_all(control, (char *)&address, sizeof address);
        spw__peer_piece whole = {to, address, size};
        if (asked.way == READ_TWO)
            read_by_two(peer, to, address, size);
        else
            stop_if(spw__peer_process_read(peer, &whole, 1) < 0, "read");
    } else if (asked.way == UNIX) {
        for (size_t at = 0; at < size;) {
            ssize_t got = recv(unix_socket, to + at, size - at, 0);
            stop_if(got <= 0, "receive a packet");
            at += (size_t)got;
        }
    } else {
        receive_all(tcp[asked.way - TCP], to, size);
    }
    double taken = now_s() - start;
    spw_buffer_unref(buffer);
    return taken;
}

static void connect_tcp(int *ret_here, int *ret_there, const char *congestion)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (congestion != NULL)
        stop_if(setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, congestion,
                           (socklen_t)strlen(congestion)) != 0,
                congestion);
    stop_if(bind(listener, (struct sockaddr *)&address, size) != 0 ||
                listen(listener, 1) != 0 ||
                getsockname(listener, (struct sockaddr *)&address, &size) != 0,
            "listen");
    *ret_here = socket(AF_INET, SOCK_STREAM, 0);
    stop_if(connect(*ret_here, (struct sockaddr *)&address, size) != 0, "connect");
    *ret_there = accept(listener, NULL, NULL);
    setsockopt(*ret_there, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    close(listener);
}

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void print_head(void)
{
    printf("%10s", "bytes");
    for (int w = 0; w < WAY_COUNT; w++)
        printf(" %10s", WAY_NAMES[w]);
    printf("\n");
}

int main(int argc, char **argv)
{
    static double taken[WAY_COUNT][ROUNDS_MAX];
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 21;
    spw__page_kind pages = argc > 2 ? SPW__PAGES_SMALL : SPW__PAGES_HUGE;
    if (rounds < 1 || rounds > ROUNDS_MAX)
        rounds = ROUNDS_MAX;
    int control[2], packets[2], here[2], there[2];
    stop_if(socketpair(AF_UNIX, SOCK_STREAM, 0, control) != 0 ||
                socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) != 0,
            "socketpair");
    connect_tcp(&here[0], &there[0], NULL);
    connect_tcp(&here[1], &there[1], "reno");
    pid_t child = fork();
    stop_if(child < 0, "fork");
    if (child == 0) {
        close(control[0]);
        void *data;
        stop_if(spw__memory_map(MEMORY_BYTES, pages, &data) < 0, "memory");
        for (size_t at = 0; at < MEMORY_BYTES; at += sizeof at)
            memcpy((char *)data + at, &at, sizeof at);
        serve(control[1], there, packets[1], data);
    }
    close(control[1]);
    spw_budget *budget;
    spw_context *context;
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    stop_if(spw_budget_create(0, &budget, NULL) != SPW_STATUS_OK, "a budget");
    options.budget = budget;
    stop_if(spw_context_create(&options, &context, NULL) != SPW_STATUS_OK, "a context");
    spw__peer_process peer = {.pid = child, .descriptor = -1};
    pthread_t reader;
    stop_if(pthread_create(&reader, NULL, read_second, NULL) != 0, "a thread");

    clockid_t child_clock;
    stop_if(clock_getcpuclockid(child, &child_clock) != 0, "the child's clock");
    print_head();
    for (int s = 0; s < SIZE_COUNT; s++) {
        double used[WAY_COUNT] = {0};
        int times = SIZES[s] > 16777216 ? (rounds + 2) / 3 : rounds;
        for (int round = -1; round < times; round++)
            for (int w = 0; w < WAY_COUNT; w++) {
                double before = used_s(child_clock);
                double t = transfer(context, &peer, control[0], here, packets[0],
                                    (request){w, s});
                if (round < 0)
                    continue;
                taken[w][round] = t;
                used[w] += used_s(child_clock) - before;
            }
        printf("%10zu", SIZES[s]);
        for (int w = 0; w < WAY_COUNT; w++) {
            qsort(taken[w], (size_t)times, sizeof taken[w][0], compare);
            printf(" %10.2f", (double)SIZES[s] / taken[w][times / 2] / 1e9);
        }
        printf("  GB/s\n%10s", "");
        for (int w = 0; w < WAY_COUNT; w++)
            printf(" %10.2f", used[w] / times / (double)SIZES[s] * 1e9);
        printf("  CPU s/GB\n");
    }
    pthread_mutex_lock(&second.lock);
    second.is_over = 1;
    pthread_cond_broadcast(&second.changed);
    pthread_mutex_unlock(&second.lock);
    pthread_join(reader, NULL);
    close(control[0]);
    waitpid(child, NULL, 0);
    spw_context_unref(context);
    spw_budget_free(budget);
    return EXIT_SUCCESS;
}
