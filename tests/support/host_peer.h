/* Two processes of one host with a connection between them: the test, and a peer that
 * is the same program, started anew with "--peer ROLE DESCRIPTOR". */
#ifndef SPW_TESTS_HOST_PEER_H
#define SPW_TESTS_HOST_PEER_H

#include <sys/types.h>

#include "loopback.h"

/* What one of the two processes has. */
typedef struct host_side {
    spw_context *context; /* borrowed */
    int control;          /* a blocking socket to the other process */
    spw_reactor *reactor;
    spw_completions *completions;
    spw_listener *listener;
    spw_meetings *meetings;
    private_place place;
    spw_connection *connection;
} host_side;

typedef struct host_peer {
    pid_t pid;
    host_side side; /* ours */
} host_peer;

/* What a peer does with its side before it ends. Fails by cmocka's checks, which end
 * the process. */
typedef struct host_role {
    const char *name;
    void (*play)(torture *t, host_side *side);
} host_role;

/* To be called first in main. Returns: false when this process is the test; else it
 * has played its role, and *ret_code is what main returns. */
bool host_peer_is_one(int argc, char **argv, const host_role *roles, size_t count,
                      int *ret_code);

/* Start a peer, and connect to it; both expect each other at meetings with these
 * options (NULL: the default) and have as many threads (0: the default). */
void host_peer_start(torture *t, const char *role, const spw_meetings_options *options,
                     unsigned threads, host_peer *ret_peer);
/* Close our side, and wait for the peer, which must end well. */
void host_peer_end(host_peer *peer);
/* Kill it, and wait for that. */
void host_peer_kill(host_peer *peer);
/* Close our side of a peer that was killed. */
void host_peer_close(host_peer *peer);

/* Tell the other process that something has been done, and wait for the same. */
void host_side_tell(const host_side *side);
void host_side_await(const host_side *side);
/* Send something large and receive it back, in both directions, so that both have met.
 * Both processes call it. */
void host_side_meet(torture *t, host_side *side, bool is_first);

#endif
