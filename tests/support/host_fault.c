#include "host_fault.h"

#include <stdatomic.h>

#include "io_fault_calls.h"
#include "platform/peer_process.h"
#include "platform/private_directory.h"
#include "platform/shared_memory.h"
#include "platform/unix_socket.h"

/* Set by a test, read by any thread. */
static _Atomic uid_t user = (uid_t)-1;
static _Atomic int refused_reads, refused_memfds, refused_maps;
static _Atomic bool loses_descriptor;
static void (*_Atomic after_read)(void *argument); /* once */
static void *_Atomic after_read_argument;

void host_fault_set_user(uid_t as)
{
    user = as;
}

void host_fault_refuse_reads(int os_errno)
{
    refused_reads = os_errno;
}

void host_fault_refuse_memfds(int os_errno)
{
    refused_memfds = os_errno;
}

void host_fault_refuse_maps(int os_errno)
{
    refused_maps = os_errno;
}

void host_fault_lose_descriptor(void)
{
    loses_descriptor = true;
}

void host_fault_after_read(void (*function)(void *argument), void *argument)
{
    after_read_argument = argument;
    after_read = function;
}

#define PASS_ON(CALL, type, name, parameters, arguments)                               \
    type __real_spw__##name parameters;                                                \
    type __wrap_spw__##name parameters;                                                \
    type __wrap_spw__##name parameters                                                 \
    {                                                                                  \
        size_t limit;                                                                  \
        int answer = io_fault_enter(CALL, &limit);                                     \
        return answer != 0 ? answer : __real_spw__##name arguments;                    \
    }

/* The same for calls that answer a descriptor. */
#define PASS_ON_OPENING(CALL, name, parameters, arguments)                             \
    int __real_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters;                                                 \
    int __wrap_spw__##name parameters                                                  \
    {                                                                                  \
        size_t limit;                                                                  \
        int answer = io_fault_enter(CALL, &limit);                                     \
        if (answer == 0)                                                               \
            answer = __real_spw__##name arguments;                                     \
        if (answer >= 0)                                                               \
            io_fault_descriptor(1);                                                    \
        return answer;                                                                 \
    }

#define PASS_ON_CLOSING(name)                                                          \
    void __real_spw__##name(int descriptor);                                           \
    void __wrap_spw__##name(int descriptor);                                           \
    void __wrap_spw__##name(int descriptor)                                            \
    {                                                                                  \
        io_fault_descriptor(-1);                                                       \
        __real_spw__##name(descriptor);                                                \
    }

PASS_ON_OPENING(CALL_UNIX_LISTEN, unix_socket_listen, (const char *path, int backlog),
                (path, backlog))
PASS_ON_OPENING(CALL_UNIX_CONNECT, unix_socket_connect, (const char *path), (path))
PASS_ON_OPENING(CALL_UNIX_ACCEPT, unix_socket_accept, (int descriptor), (descriptor))
PASS_ON_CLOSING(unix_socket_close)
PASS_ON(CALL_UNIX_SEND, ssize_t, unix_socket_send,
        (int descriptor, const struct iovec *pieces, size_t count, int passed),
        (descriptor, pieces, count, passed))
PASS_ON(CALL_UNIX_HUNG_UP, int, unix_socket_is_hung_up, (int descriptor), (descriptor))
PASS_ON(CALL_PEER_IDENTIFY, int, peer_process_identify,
        (int socket, spw__peer_process *ret_peer), (socket, ret_peer))
PASS_ON(CALL_PEER_ALIVE, int, peer_process_is_alive, (const spw__peer_process *peer),
        (peer))
PASS_ON(CALL_RANDOM, int, random_bytes, (void *data, size_t size), (data, size))
PASS_ON(CALL_SHARED_FILL, int, shared_memory_fill,
        (int descriptor, uint64_t offset, const void *data, size_t size),
        (descriptor, offset, data, size))
PASS_ON(CALL_SHARED_SEAL, int, shared_memory_seal, (int descriptor), (descriptor))
PASS_ON(CALL_SHARED_VERIFY, int, shared_memory_verify, (int descriptor, uint64_t size),
        (descriptor, size))
PASS_ON(CALL_SHARED_READ, int, shared_memory_read,
        (int descriptor, uint64_t offset, void *to, size_t size),
        (descriptor, offset, to, size))
PASS_ON_CLOSING(shared_memory_close)
PASS_ON(CALL_DIRECTORY, int, private_directory_create,
        (const char *parent, const char *prefix, char *text, size_t room),
        (parent, prefix, text, room))

ssize_t __real_spw__unix_socket_receive(int descriptor, const struct iovec *pieces,
                                        size_t count, int *ret_passed,
                                        bool *ret_is_lost);
ssize_t __wrap_spw__unix_socket_receive(int descriptor, const struct iovec *pieces,
                                        size_t count, int *ret_passed,
                                        bool *ret_is_lost);
ssize_t __wrap_spw__unix_socket_receive(int descriptor, const struct iovec *pieces,
                                        size_t count, int *ret_passed,
                                        bool *ret_is_lost)
{
    size_t limit;
    int answer = io_fault_enter(CALL_UNIX_RECEIVE, &limit);
    if (answer != 0)
        return answer;
    int passed = -1;
    ssize_t size = __real_spw__unix_socket_receive(descriptor, pieces, count, &passed,
                                                   ret_is_lost);
    if (size < 0)
        return size;
    if (passed >= 0 && loses_descriptor) {
        loses_descriptor = false;
        __real_spw__shared_memory_close(passed);
        passed = -1;
        *ret_is_lost = true;
    }
    if (passed >= 0)
        io_fault_descriptor(1);
    *ret_passed = passed;
    return size;
}

int __real_spw__peer_process_hold(int socket, spw__peer_process *peer);
int __wrap_spw__peer_process_hold(int socket, spw__peer_process *peer);
int __wrap_spw__peer_process_hold(int socket, spw__peer_process *peer)
{
    size_t limit;
    int answer = io_fault_enter(CALL_PEER_HOLD, &limit);
    if (answer == 0)
        answer = __real_spw__peer_process_hold(socket, peer);
    if (answer == 0)
        io_fault_descriptor(1);
    return answer;
}

void __real_spw__peer_process_release(spw__peer_process *peer);
void __wrap_spw__peer_process_release(spw__peer_process *peer);
void __wrap_spw__peer_process_release(spw__peer_process *peer)
{
    if (peer->descriptor >= 0)
        io_fault_descriptor(-1);
    __real_spw__peer_process_release(peer);
}

int __real_spw__peer_process_read(const spw__peer_process *peer,
                                  const spw__peer_piece *pieces, size_t count);
int __wrap_spw__peer_process_read(const spw__peer_process *peer,
                                  const spw__peer_piece *pieces, size_t count);
int __wrap_spw__peer_process_read(const spw__peer_process *peer,
                                  const spw__peer_piece *pieces, size_t count)
{
    size_t limit;
    int answer = io_fault_enter(CALL_PEER_READ, &limit);
    if (answer == 0 && refused_reads != 0)
        answer = -refused_reads;
    if (answer == 0)
        answer = __real_spw__peer_process_read(peer, pieces, count);
    void (*function)(void *argument) = atomic_exchange(&after_read, NULL);
    if (function != NULL)
        function(after_read_argument);
    return answer;
}

uid_t __real_spw__peer_process_own_user(void);
uid_t __wrap_spw__peer_process_own_user(void);
uid_t __wrap_spw__peer_process_own_user(void)
{
    return user != (uid_t)-1 ? user : __real_spw__peer_process_own_user();
}

int __real_spw__shared_memory_create(void);
int __wrap_spw__shared_memory_create(void);
int __wrap_spw__shared_memory_create(void)
{
    size_t limit;
    int answer = io_fault_enter(CALL_SHARED_CREATE, &limit);
    if (answer == 0 && refused_memfds != 0)
        answer = -refused_memfds;
    if (answer == 0)
        answer = __real_spw__shared_memory_create();
    if (answer >= 0)
        io_fault_descriptor(1);
    return answer;
}

int __real_spw__shared_memory_map(int descriptor, size_t size, void **ret_data);
int __wrap_spw__shared_memory_map(int descriptor, size_t size, void **ret_data);
int __wrap_spw__shared_memory_map(int descriptor, size_t size, void **ret_data)
{
    size_t limit;
    int answer = io_fault_enter(CALL_SHARED_MAP, &limit);
    if (answer == 0 && refused_maps != 0)
        answer = -refused_maps;
    if (answer == 0)
        answer = __real_spw__shared_memory_map(descriptor, size, ret_data);
    if (answer == 0)
        io_fault_mapped((int64_t)size);
    return answer;
}

void __real_spw__shared_memory_unmap(void *data, size_t size);
void __wrap_spw__shared_memory_unmap(void *data, size_t size);
void __wrap_spw__shared_memory_unmap(void *data, size_t size)
{
    io_fault_mapped(-(int64_t)size);
    __real_spw__shared_memory_unmap(data, size);
}
