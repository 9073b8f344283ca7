/* What the examples share: one process with one connection, driven by poll(). A program
 * that has an event loop gives it the same descriptors instead. */
#ifndef EXAMPLE_PEER_H
#define EXAMPLE_PEER_H

#include <spillway/spillway.h>

/* Everything that a process needs. All zero before peer_open; peer_close takes whatever
 * there is of it. */
typedef struct peer {
    spw_budget *budget;           /* what its memory is charged to */
    spw_context *context;         /* the rest is made from it */
    spw_reactor *reactor;         /* threads for what is large */
    spw_completions *completions; /* and the way back from them */
    spw_meetings *meetings;       /* NULL: it meets nobody of its host */
    spw_listener *listener;       /* NULL in the one that connects */
    spw_connection *connection;
} peer;

/* On failure, too, close it afterwards. */
spw_status peer_open(peer *self, spw_error *error);
void peer_close(peer *self);

/* Listen on a port of the loopback, which goes to port_to for the other process, and
 * wait for it to connect. */
spw_status peer_accept(peer *self, int port_to, spw_error *error);
/* Learn the port from port_from, and connect. */
spw_status peer_connect(peer *self, int port_from, spw_error *error);

/* Send a message. Takes: payload, always. */
spw_status peer_send(peer *self, spw_payload *payload, spw_error *error);
/* Wait for a whole message. Returns: a payload of the caller's. */
spw_status peer_receive(peer *self, spw_payload **ret_payload, spw_error *error);
/* Wait until nothing of what was sent is kept here any more. */
spw_status peer_flush(peer *self, spw_error *error);

/* Append a frame with a copy of data. */
spw_status append_copy(peer *self, spw_payload *payload, const void *data, size_t size,
                       spw_error *error);

/* What a role returns is the status that its process ends with. */
typedef spw_status (*peer_role)(peer *self, int port, spw_error *error);
/* Run the two roles in two processes; the port goes from the first to the second by a
 * pipe. Returns: what main returns. */
int run_two(peer_role listening, peer_role connecting);

#endif
