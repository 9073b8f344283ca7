#include "io_fault.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io_fault_calls.h"
#include "platform/memory_map.h"
#include "platform/peer_process.h"
#include "platform/poller.h"
#include "platform/regular_file.h"
#include "platform/socket.h"

static const struct {
    const char *name;
    int usual_errno;
    bool may_wait, may_be_short;
} CALLS[CALL_COUNT] = {
    [CALL_OPEN] = {"open", EMFILE},
    [CALL_CONNECT] = {"connect", ECONNREFUSED},
    [CALL_BIND] = {"bind", EADDRINUSE},
    [CALL_LISTEN] = {"listen", EADDRINUSE},
    [CALL_ACCEPT] = {"accept", EMFILE, .may_wait = true},
    [CALL_LOCAL] = {"local", ENOBUFS},
    [CALL_SEND] = {"send", EPIPE, true, true},
    [CALL_SEND_FILE] = {"send_file", EIO, true, true},
    [CALL_FILE_VERIFY] = {"file_verify", EIO},
    [CALL_FILE_DESCRIBE] = {"file_describe", EIO},
    [CALL_RECEIVE] = {"receive", ECONNRESET, true, true},
    [CALL_SET_REUSE_ADDRESS] = {"set_reuse_address", ENOMEM},
    [CALL_SET_V6_ONLY] = {"set_v6_only", ENOMEM},
    [CALL_SET_NO_DELAY] = {"set_no_delay", ENOMEM},
    [CALL_SET_KEEP_ALIVE] = {"set_keep_alive", ENOMEM},
    [CALL_SET_USER_TIMEOUT] = {"set_user_timeout", ENOMEM},
    [CALL_SET_CONGESTION] = {"set_congestion", EPERM},
    [CALL_MAP] = {"map", ENOMEM},
    [CALL_MOVE] = {"move", ENOMEM},
    [CALL_UNIX_LISTEN] = {"unix_listen", EADDRINUSE},
    [CALL_UNIX_CONNECT] = {"unix_connect", ECONNREFUSED},
    [CALL_UNIX_ACCEPT] = {"unix_accept", EMFILE, .may_wait = true},
    [CALL_UNIX_SEND] = {"unix_send", EPIPE, .may_wait = true},
    [CALL_UNIX_RECEIVE] = {"unix_receive", ECONNRESET, .may_wait = true},
    [CALL_UNIX_HUNG_UP] = {"unix_hung_up", ENOMEM},
    [CALL_PEER_IDENTIFY] = {"peer_identify", ENOPROTOOPT},
    [CALL_PEER_HOLD] = {"peer_hold", EMFILE},
    [CALL_PEER_ALIVE] = {"peer_alive", ENOMEM},
    [CALL_PEER_READ] = {"peer_read", EPERM},
    [CALL_PEER_TAKE] = {"peer_take", EPERM},
    [CALL_RANDOM] = {"random", ENOSYS},
    [CALL_SHARED_CREATE] = {"shared_create", EMFILE},
    [CALL_SHARED_FILL] = {"shared_fill", ENOSPC},
    [CALL_SHARED_SEAL] = {"shared_seal", EPERM},
    [CALL_SHARED_VERIFY] = {"shared_verify", EPERM},
    [CALL_SHARED_MAP] = {"shared_map", ENOMEM},
    [CALL_SHARED_READ] = {"shared_read", EIO},
    [CALL_DIRECTORY] = {"directory", EACCES},
    [CALL_SPILL_CREATE] = {"spill_create", ENOSPC},
    [CALL_SPILL_WRITE] = {"spill_write", ENOSPC},
    [CALL_SPILL_READ] = {"spill_read", EIO},
    [CALL_SPILL_REOPEN] = {"spill_reopen", EMFILE},
    [CALL_POLLER_OPEN] = {"poller_open", EMFILE},
    [CALL_POLLER_ADD] = {"poller_add", ENOSPC},
    [CALL_POLLER_REARM] = {"poller_rearm", ENOMEM},
    [CALL_POLLER_ADD_SIGN] = {"poller_add_sign", ENOSPC},
    [CALL_SIGN_OPEN] = {"sign_open", EMFILE},
    [CALL_START_THREAD] = {"start_thread", EAGAIN},
};

static struct {
    io_fault_kind kind;
    io_call only; /* CALL_COUNT: any */
    uint64_t fail_at;
    int os_errno;
    size_t limit_bytes;
    bool swallows;
    void (*after_wait)(void *user);
    void (*before_move)(void *user);
    void *user;
    _Atomic uint64_t calls, calls_of[CALL_COUNT];
} faults = {.only = CALL_COUNT};
/* Not part of the above: descriptors and mappings outlive an arm. */
static _Atomic int open_descriptors;
static _Atomic int64_t mapped_bytes;

static io_call call_named(const char *function)
{
    for (int i = 0; i < CALL_COUNT; i++)
        if (strcmp(CALLS[i].name, function) == 0)
            return (io_call)i;
    abort(); /* a test names a call that does not exist */
}

void io_fault_arm(io_fault_kind kind, uint64_t fail_at, int os_errno)
{
    memset(&faults, 0, sizeof faults);
    faults.kind = kind;
    faults.only = CALL_COUNT;
    faults.fail_at = fail_at;
    faults.os_errno = os_errno;
}

void io_fault_arm_call(const char *function, uint64_t fail_at, int os_errno)
{
    io_fault_arm(IO_FAULT_ERROR, fail_at, os_errno);
    faults.only = call_named(function);
}

void io_fault_limit(size_t bytes)
{
    faults.limit_bytes = bytes;
}

void io_fault_swallow(void)
{
    faults.swallows = true;
}

void io_fault_after_wait(void (*hook)(void *user), void *user)
{
    faults.after_wait = hook;
    faults.user = user;
}

void io_fault_before_move(void (*hook)(void *user), void *user)
{
    faults.before_move = hook;
    faults.user = user;
}

uint64_t io_fault_calls(void)
{
    return faults.calls;
}

uint64_t io_fault_calls_of(const char *function)
{
    return faults.calls_of[call_named(function)];
}

int io_fault_open_descriptors(void)
{
    return open_descriptors;
}

int64_t io_fault_mapped_bytes(void)
{
    return mapped_bytes;
}

void io_fault_descriptor(int change)
{
    open_descriptors += change;
}

void io_fault_mapped(int64_t change)
{
    mapped_bytes += change;
}

int io_fault_enter(io_call call, size_t *ret_limit)
{
    uint64_t of_call = ++faults.calls_of[call];
    uint64_t any = ++faults.calls;
    if (faults.before_move != NULL &&
        (call == CALL_SEND || call == CALL_SEND_FILE || call == CALL_RECEIVE))
        faults.before_move(faults.user);
    *ret_limit = faults.limit_bytes > 0 ? faults.limit_bytes : SIZE_MAX;
    if ((faults.only == CALL_COUNT ? any : of_call) != faults.fail_at ||
        (faults.only != CALL_COUNT && faults.only != call))
        return 0;
    switch (faults.kind) {
    case IO_FAULT_ERROR:
        return -(faults.os_errno != 0 ? faults.os_errno : CALLS[call].usual_errno);
    case IO_FAULT_AGAIN:
        return CALLS[call].may_wait ? -EAGAIN : 0;
    case IO_FAULT_SHORT:
        *ret_limit = CALLS[call].may_be_short ? 1 : *ret_limit;
        return 0;
    case IO_FAULT_NONE:
        break;
    }
    return 0;
}

#define PASS_ON(CALL, name, parameters, arguments)                                     \
    int __real_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters                                                  \
    {                                                                                  \
        size_t limit;                                                                  \
        int answer = io_fault_enter(CALL, &limit);                                     \
        return answer != 0 ? answer : __real_spw__##name arguments;                    \
    }
/* The same for a call that opens a descriptor. */
#define PASS_ON_OPEN(CALL, name, parameters, arguments)                                \
    int __real_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters                                                  \
    {                                                                                  \
        size_t limit;                                                                  \
        int answer = io_fault_enter(CALL, &limit);                                     \
        if (answer == 0)                                                               \
            answer = __real_spw__##name arguments;                                     \
        if (answer >= 0)                                                               \
            open_descriptors++;                                                        \
        return answer;                                                                 \
    }

PASS_ON(CALL_CONNECT, socket_connect,
        (int descriptor, const spw__socket_address *address), (descriptor, address))
PASS_ON(CALL_BIND, socket_bind, (int descriptor, const spw__socket_address *address),
        (descriptor, address))
PASS_ON(CALL_LISTEN, socket_listen, (int descriptor, int backlog),
        (descriptor, backlog))
PASS_ON(CALL_LOCAL, socket_local, (int descriptor, spw__socket_address *ret_address),
        (descriptor, ret_address))
PASS_ON(CALL_SET_REUSE_ADDRESS, socket_set_reuse_address, (int descriptor),
        (descriptor))
PASS_ON(CALL_SET_V6_ONLY, socket_set_v6_only, (int descriptor), (descriptor))
PASS_ON(CALL_SET_NO_DELAY, socket_set_no_delay, (int descriptor), (descriptor))
PASS_ON(CALL_SET_KEEP_ALIVE, socket_set_keep_alive,
        (int descriptor, int idle_s, int interval_s, int probes),
        (descriptor, idle_s, interval_s, probes))
PASS_ON(CALL_SET_USER_TIMEOUT, socket_set_user_timeout,
        (int descriptor, unsigned timeout_ms), (descriptor, timeout_ms))
PASS_ON(CALL_SET_CONGESTION, socket_set_congestion, (int descriptor, const char *name),
        (descriptor, name))

PASS_ON(CALL_FILE_VERIFY, regular_file_verify, (int descriptor), (descriptor))
PASS_ON(CALL_FILE_DESCRIBE, regular_file_describe,
        (int descriptor, spw__file_facts *ret_facts), (descriptor, ret_facts))
PASS_ON(CALL_PEER_TAKE, peer_process_take_descriptor, (pid_t pid, int number),
        (pid, number))
PASS_ON(CALL_POLLER_ADD, poller_add,
        (int poller, int descriptor, unsigned ready, uint64_t tag),
        (poller, descriptor, ready, tag))
PASS_ON(CALL_POLLER_REARM, poller_rearm,
        (int poller, int descriptor, unsigned ready, uint64_t tag),
        (poller, descriptor, ready, tag))
PASS_ON(CALL_POLLER_ADD_SIGN, poller_add_sign, (int poller, int sign, uint64_t tag),
        (poller, sign, tag))
PASS_ON_OPEN(CALL_OPEN, socket_open, (int family), (family))
PASS_ON_OPEN(CALL_ACCEPT, socket_accept,
             (int descriptor, spw__socket_address *ret_peer), (descriptor, ret_peer))
PASS_ON_OPEN(CALL_POLLER_OPEN, poller_open, (void), ())
PASS_ON_OPEN(CALL_SIGN_OPEN, sign_open, (void), ())

int __real_spw__poller_wait(int poller, int timeout_ms, spw__poller_event *ret_event);
int __wrap_spw__poller_wait(int poller, int timeout_ms, spw__poller_event *ret_event);
int __wrap_spw__poller_wait(int poller, int timeout_ms, spw__poller_event *ret_event)
{
    int answer = __real_spw__poller_wait(poller, timeout_ms, ret_event);
    if (faults.after_wait != NULL)
        faults.after_wait(faults.user);
    return answer;
}

typedef void *(*thread_function)(void *argument);
int __real_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          thread_function function, void *argument);
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          thread_function function, void *argument);
int __wrap_pthread_create(pthread_t *ret_thread, const pthread_attr_t *attributes,
                          thread_function function, void *argument)
{
    size_t limit;
    int answer = io_fault_enter(CALL_START_THREAD, &limit);
    return answer != 0
               ? -answer /* it answers an errno as it is */
               : __real_pthread_create(ret_thread, attributes, function, argument);
}

void __real_spw__poller_close(int descriptor);
void __wrap_spw__poller_close(int descriptor);
void __wrap_spw__poller_close(int descriptor)
{
    open_descriptors--;
    __real_spw__poller_close(descriptor);
}

void __real_spw__socket_close(int descriptor);
void __wrap_spw__socket_close(int descriptor);
void __wrap_spw__socket_close(int descriptor)
{
    open_descriptors--;
    __real_spw__socket_close(descriptor);
}

/* The first pieces, cut so that they are limit bytes together. */
static size_t cut(const struct iovec *pieces, size_t count, size_t limit,
                  struct iovec *ret_pieces)
{
    size_t kept = 0;
    for (; kept < count && limit > 0; kept++) {
        ret_pieces[kept] = pieces[kept];
        if (ret_pieces[kept].iov_len > limit)
            ret_pieces[kept].iov_len = limit;
        limit -= ret_pieces[kept].iov_len;
    }
    return kept;
}

static ssize_t total_of(const struct iovec *pieces, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += pieces[i].iov_len;
    return (ssize_t)total;
}

ssize_t __real_spw__socket_send(int descriptor, const struct iovec *pieces,
                                size_t count);
ssize_t __wrap_spw__socket_send(int descriptor, const struct iovec *pieces,
                                size_t count);
ssize_t __wrap_spw__socket_send(int descriptor, const struct iovec *pieces,
                                size_t count)
{
    struct iovec fewer[SPW__SOCKET_PIECES_MAX];
    size_t limit;
    int answer = io_fault_enter(CALL_SEND, &limit);
    if (answer != 0)
        return answer;
    count = cut(pieces, count, limit, fewer);
    return faults.swallows ? total_of(fewer, count)
                           : __real_spw__socket_send(descriptor, fewer, count);
}

ssize_t __real_spw__socket_send_file(int descriptor, int file, uint64_t offset,
                                     size_t size);
ssize_t __wrap_spw__socket_send_file(int descriptor, int file, uint64_t offset,
                                     size_t size);
ssize_t __wrap_spw__socket_send_file(int descriptor, int file, uint64_t offset,
                                     size_t size)
{
    size_t limit;
    int answer = io_fault_enter(CALL_SEND_FILE, &limit);
    if (answer != 0)
        return answer;
    size = size < limit ? size : limit;
    return faults.swallows
               ? (ssize_t)size
               : __real_spw__socket_send_file(descriptor, file, offset, size);
}

ssize_t __real_spw__socket_receive(int descriptor, const struct iovec *pieces,
                                   size_t count);
ssize_t __wrap_spw__socket_receive(int descriptor, const struct iovec *pieces,
                                   size_t count);
ssize_t __wrap_spw__socket_receive(int descriptor, const struct iovec *pieces,
                                   size_t count)
{
    struct iovec fewer[SPW__SOCKET_PIECES_MAX];
    size_t limit;
    int answer = io_fault_enter(CALL_RECEIVE, &limit);
    if (answer != 0)
        return answer;
    return __real_spw__socket_receive(descriptor, fewer,
                                      cut(pieces, count, limit, fewer));
}

int __real_spw__memory_map(size_t size, spw__page_kind pages, void **ret_data);
int __wrap_spw__memory_map(size_t size, spw__page_kind pages, void **ret_data);
int __wrap_spw__memory_map(size_t size, spw__page_kind pages, void **ret_data)
{
    size_t limit;
    int answer = io_fault_enter(CALL_MAP, &limit);
    if (answer == 0)
        answer = __real_spw__memory_map(size, pages, ret_data);
    if (answer == 0)
        mapped_bytes += (int64_t)size;
    return answer;
}

int __real_spw__memory_move(void *from, size_t size, void *to);
int __wrap_spw__memory_move(void *from, size_t size, void *to);
int __wrap_spw__memory_move(void *from, size_t size, void *to)
{
    size_t limit;
    int answer = io_fault_enter(CALL_MOVE, &limit);
    if (answer == 0)
        answer = __real_spw__memory_move(from, size, to);
    if (answer == 0)
        mapped_bytes -= (int64_t)size;
    return answer;
}

int __real_spw__memory_move_pages(void *from, size_t size, void *to);
int __wrap_spw__memory_move_pages(void *from, size_t size, void *to);
int __wrap_spw__memory_move_pages(void *from, size_t size, void *to)
{
    size_t limit;
    int answer = io_fault_enter(CALL_MOVE, &limit);
    return answer == 0 ? __real_spw__memory_move_pages(from, size, to) : answer;
}

void __real_spw__memory_unmap(void *data, size_t size);
void __wrap_spw__memory_unmap(void *data, size_t size);
void __wrap_spw__memory_unmap(void *data, size_t size)
{
    mapped_bytes -= (int64_t)size;
    __real_spw__memory_unmap(data, size);
}
