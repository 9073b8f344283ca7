/* Calls of the system that fail on demand: sockets, mappings, what a reactor waits by,
 * and its threads. The linker sends every call of the library to platform/socket.h,
 * memory_map.h and poller.h through here (--wrap, see tests/CMakeLists.txt), so that
 * the library has no seam of its own. Waiting never fails, for there is no way in which
 * it could. Counts as well which descriptors are open and how much is mapped. Thread:
 * what the library calls, any; arm only while no other thread calls it. */
#ifndef SPW_TESTS_IO_FAULT_H
#define SPW_TESTS_IO_FAULT_H

#include <stddef.h>
#include <stdint.h>

typedef enum io_fault_kind {
    IO_FAULT_NONE,
    IO_FAULT_ERROR, /* the call is not made and answers an errno */
    IO_FAULT_AGAIN, /* accept, send(_file), receive answer EAGAIN once without cause */
    IO_FAULT_SHORT  /* send(_file) and receive move a single byte */
} io_fault_kind;

/* Begin to count calls from 1; the fail_at-th meets the fault (0: none does).
 * os_errno 0 stands for an errno that is usual for the call. */
void io_fault_arm(io_fault_kind kind, uint64_t fail_at, int os_errno);
/* As IO_FAULT_ERROR, for the fail_at-th call of one function, such as "receive". */
void io_fault_arm_call(const char *function, uint64_t fail_at, int os_errno);
/* No call of send or receive moves more, until the next arm; 0: no limit. */
void io_fault_limit(size_t bytes);

/* Until the next arm, send answers that it took all it was given, and drops it. */
void io_fault_swallow(void);

/* Until the next arm, run hook after each event that a thread of a reactor has fetched
 * and before it acts on it. */
void io_fault_after_wait(void (*hook)(void *user), void *user);

/* Until the next arm, run hook at each call of send, send_file and receive, before it
 * is made. */
void io_fault_before_move(void (*hook)(void *user), void *user);

/* Calls since the last arm, and of one function. */
uint64_t io_fault_calls(void);
uint64_t io_fault_calls_of(const char *function);
/* Descriptors that the library has open. */
int io_fault_open_descriptors(void);
/* Bytes that the library has mapped. */
int64_t io_fault_mapped_bytes(void);

#endif
