/* Statuses and errors: how every fallible call of the library answers. */
#ifndef SPILLWAY_STATUS_H
#define SPILLWAY_STATUS_H

#include "spillway/export.h"

#define SPW_STATUS_MAP(X)                                                              \
    X(OK, 0, "ok")                                                                     \
    X(AGAIN, 1, "nothing to do until the descriptor is ready")                         \
    X(INVALID_ARGUMENT, 2, "invalid argument")                                         \
    X(NO_MEMORY, 3, "out of memory")                                                   \
    X(LIMIT_EXCEEDED, 4, "limit exceeded")                                             \
    X(PROTOCOL, 5, "malformed message")                                                \
    X(REFUSED, 6, "connection refused")                                                \
    X(RESET, 7, "connection reset by the peer")                                        \
    X(PEER_CLOSED, 8, "connection closed by the peer")                                 \
    X(TRUNCATED, 9, "connection closed in the middle of a message")                    \
    X(CLOSED, 10, "closed on this side")                                               \
    X(TIMED_OUT, 11, "timed out")                                                      \
    X(UNREACHABLE, 12, "peer unreachable")                                             \
    X(ADDRESS, 13, "address cannot be used")                                           \
    X(IO, 14, "input/output error")                                                    \
    X(CORRUPT, 15, "data does not decompress to what it claims")                       \
    X(UNSUPPORTED, 16, "not supported")

typedef enum spw_status {
#define SPW__STATUS_VALUE(name, value, text) SPW_STATUS_##name = value,
    SPW_STATUS_MAP(SPW__STATUS_VALUE)
#undef SPW__STATUS_VALUE
} spw_status;

/* Fixed size, owned by the caller, never allocates. The function that first knows
 * the fault writes it; callers on the way up pass it on. */
typedef struct spw_error {
    spw_status status;
    int os_errno; /* 0 when the operating system had no part in it */
    char message[232];
} spw_error;

/* The fixed text of a status. Returns: a string that lives for ever. Thread: any. */
SPW_EXPORT const char *spw_status_text(spw_status status);

/* The name of a status without its prefix, such as "PEER_CLOSED".
 * Returns: a string that lives for ever, "UNKNOWN" for a value that is none.
 * Thread: any. */
SPW_EXPORT const char *spw_status_name(spw_status status);

#endif
