/* The inside of io_fault.h, for the files that pass the library's calls on. */
#ifndef SPW_TESTS_IO_FAULT_CALLS_H
#define SPW_TESTS_IO_FAULT_CALLS_H

#include "io_fault.h"

typedef enum io_call {
    CALL_OPEN,
    CALL_CONNECT,
    CALL_BIND,
    CALL_LISTEN,
    CALL_ACCEPT,
    CALL_LOCAL,
    CALL_SEND,
    CALL_SEND_FILE,
    CALL_FILE_VERIFY,
    CALL_FILE_DESCRIBE,
    CALL_RECEIVE,
    CALL_SET_REUSE_ADDRESS,
    CALL_SET_V6_ONLY,
    CALL_SET_NO_DELAY,
    CALL_SET_KEEP_ALIVE,
    CALL_SET_USER_TIMEOUT,
    CALL_SET_CONGESTION,
    CALL_MAP,
    CALL_MOVE,
    CALL_POLLER_OPEN,
    CALL_POLLER_ADD,
    CALL_POLLER_REARM,
    CALL_POLLER_ADD_SIGN,
    CALL_SIGN_OPEN,
    CALL_START_THREAD,
    CALL_UNIX_LISTEN,
    CALL_UNIX_CONNECT,
    CALL_UNIX_ACCEPT,
    CALL_UNIX_SEND,
    CALL_UNIX_RECEIVE,
    CALL_UNIX_HUNG_UP,
    CALL_PEER_IDENTIFY,
    CALL_PEER_HOLD,
    CALL_PEER_ALIVE,
    CALL_PEER_READ,
    CALL_PEER_TAKE,
    CALL_RANDOM,
    CALL_SHARED_CREATE,
    CALL_SHARED_FILL,
    CALL_SHARED_SEAL,
    CALL_SHARED_VERIFY,
    CALL_SHARED_MAP,
    CALL_SHARED_READ,
    CALL_DIRECTORY,
    CALL_SPILL_CREATE,
    CALL_SPILL_WRITE,
    CALL_SPILL_READ,
    CALL_SPILL_REOPEN,
    CALL_COUNT
} io_call;

/* Count a call. Returns: 0 to make it, or the negative errno to answer; *ret_limit is
 * how many bytes it may move. */
int io_fault_enter(io_call call, size_t *ret_limit);
/* A descriptor of the library's was opened (1) or closed (-1); memory was mapped, or
 * unmapped (negative). */
void io_fault_descriptor(int change);
void io_fault_mapped(int64_t change);

#endif
