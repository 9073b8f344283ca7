/* The inside of a connection, shared by its files: connection.c (birth, end, what can
 * be asked), connection_send.c, connection_receive.c, connection_held.c (messages that
 * wait to be let in), connection_values.c (and for a disk), connection_away.c (how each
 * direction goes to a thread and comes home), connection_offload.c (a setting) and, for
 * bodies that do not go by the stream, connection_host.c, which has an inside of its
 * own. */
#ifndef SPW_TRANSPORT_CONNECTION_STATE_H
#define SPW_TRANSPORT_CONNECTION_STATE_H

#include <stdatomic.h>

#include "context/admission.h"
#include "framing/message_reader.h"
#include "reactor/task.h"
#include "spillway/connection.h"
#include "transport/address.h"
#include "transport/connection_host.h"
#include "transport/file_window.h"
#include "transport/ready_queue.h"
#include "transport/send_queue.h"
#include "transport/stream_tcp.h"

typedef enum connection_phase {
    CONNECTION_CONNECTING,
    CONNECTION_OPEN,
    CONNECTION_ENDED
} connection_phase;

/* What has been read from the socket and not yet parsed. */
typedef struct read_ahead {
    char *data;      /* NULL until something is read */
    size_t capacity; /* of data: SPW__READ_AHEAD_..., 0 without */
    size_t start, end;
} read_ahead;

/* One of the ways that something goes. While it is away, a thread of the reactor has
 * what belongs to it (see spw_connection), and nobody else touches that. */
typedef struct direction {
    spw__watch *watch; /* by which it is away, or was last, */
    spw__task *task;   /* as this one of its tasks */
    bool is_away;
    /* What ended it on the thread; status OK: nothing. Of the thread. */
    spw_error fault;
} direction;

/* Invariants: the stream is open unless the phase is ENDED, and only then end says why.
 * Only while it is untaken is more than one message ready. While the reader is inside a
 * message, the read-ahead is empty: the socket is read only when nothing read before is
 * left to parse. The reader is NULL only after the end, when nothing is left to parse.
 */
struct spw_connection {
    /* Fixed. */
    spw_context *context;         /* one reference */
    spw_completions *completions; /* NULL: no direction ever goes away */
    uint64_t inline_bytes;
    char loopback_congestion[SPW__CONGESTION_NAME_BYTES]; /* empty: the system's */
    /* Of the owner; a thread reads the stream. */
    void *user;
    connection_phase phase;
    spw__stream_tcp stream;
    spw__watch watch;
    spw_error end;
    /* Of receiving. */
    direction receiving;
    bool is_wanted;  /* receive answered AGAIN and nothing has come of it yet */
    bool is_drained; /* the last read left nothing in the socket, as far as it showed */
    spw__message_reader *reader;
    /* Of the message under way, if it was held; bytes 0: no. */
    spw__admission admission;
    uint64_t held_since_ms; /* by the clock, of one that is held; 0: not asked yet */
    spw__ready_queue ready;
    read_ahead ahead;
    /* Of sending. */
    direction sending;
    spw__send_queue queue;
    spw__file_window window;
    /* For a peer of the same host; see connection_host.c. */
    direction announcing;
    _Atomic(spw__connection_host *) host; /* NULL: there is none */
    /* Accepted on a thread, and not taken by its owner yet: whatever goes away comes
     * back only by being called home. */
    bool is_untaken;
    /* What comes meanwhile: a message of so many bytes waits to be taken, and then for
     * who says where its values go. 0: none does. Fixed. */
    uint64_t untaken_hold_from;
    spw_connection *next_untaken; /* of its listener */
    /* Of the owner. */
    atomic_uint_least64_t offload_bytes; /* any thread; see connection_offload.c */
    uint16_t local_port, peer_port;
    char local_host[SPW__ADDRESS_HOST_BYTES], peer_host[SPW__ADDRESS_HOST_BYTES];
};

/* 64 KiB take a burst of small messages in one call and stay in the cache. A connection
 * on which little arrives makes do with less, for there may be thousands of them. */
enum { SPW__READ_AHEAD_LEAST = 8 * 1024, SPW__READ_AHEAD_MOST = 64 * 1024 };

/* Errors: INVALID_ARGUMENT. */
spw_status spw__connection_read_options(const spw_connection_options *given,
                                        spw_connection_options *ret_options,
                                        spw_error *error);
/* Make an open connection of an accepted descriptor, with options that were read.
 * Takes: descriptor, on success only. Errors: NO_MEMORY. */
spw_status spw__connection_adopt(spw_context *context, int descriptor,
                                 const spw__socket_address *peer,
                                 const spw_connection_options *options,
                                 spw_connection **ret_connection, spw_error *error);

/* The stream is connected. */
void spw__connection_opened(spw_connection *connection);
/* The connection has ended because of why: call all directions home, shut the stream,
 * give up the message under way and the send queue. No release callback runs. Messages
 * that are here already can still be received. Only while not ENDED. */
void spw__connection_end(spw_connection *connection, const spw_error *why);
/* Tell error (NULL allowed) why the connection has ended. Returns: that status. */
spw_status spw__connection_tell_end(const spw_connection *connection, spw_error *error);
/* The stream is lost in the middle of something: nothing read ahead means anything.
 * Messages that are ready can still be received. */
void spw__connection_fail_receiving(spw_connection *connection, const spw_error *why);
/* Receiving is home again: end it if a thread met its end, unless messages that came
 * before wait to be taken first. */
void spw__connection_receiving_arrived(spw_connection *connection);
/* Drop what was read ahead and the reader, whose message under way is aborted. */
void spw__connection_stop_reading(spw_connection *connection);
/* Drop what was read ahead, and its memory. */
void spw__connection_drop_ahead(spw_connection *connection);

/* Being let in, connection_held.c. Of receiving. */

/* Whether the message under way waits to be let in. */
bool spw__connection_is_held(const spw_connection *connection);
/* Let it in, if there is room for it or it can_wait no longer. Errors: AGAIN when it
 * has to wait; those of spw__message_reader_go_on. */
spw_status spw__connection_let_in(spw_connection *connection, bool can_wait,
                                  spw_error *error);
/* It has ended: what would wait for a disk from now on is given up, and nobody is
 * woken. Returns: whether that leaves something to be parsed. connection_values.c, as
 * are the next two. */
bool spw__connection_forget_sink(spw_connection *connection);
/* Whether it waits for the sink of its values. */
bool spw__connection_is_stalled(const spw_connection *connection);
/* Go on with it, if the sink does. Errors: AGAIN when it has to wait; why the message
 * is lost. */
spw_status spw__connection_look_again(spw_connection *connection, spw_error *error);
/* Some of it has come. */
void spw__connection_tell_moved(const spw_connection *connection);
/* If it was let in, it is whole or given up. */
void spw__connection_leave(spw_connection *connection);

/* Going away, connection_away.c. */

void spw__connection_init_directions(spw_connection *connection);
/* Have a task of a watch go on with a direction as soon as descriptor is ready for
 * wants. Only while it is home. Returns: whether it went. */
bool spw__connection_go_by(spw_connection *connection, direction *way,
                           spw__watch *watch, spw__task *task, int descriptor,
                           unsigned wants);
/* Have a thread go on with receiving by the stream whenever one is free. Only while it
 * is home. Returns: whether it went. */
bool spw__connection_go_now(spw_connection *connection);
/* Have a thread send from the queue, however little it is. Only while sending is home.
 * Returns: whether it went. */
bool spw__connection_go_send(spw_connection *connection);
/* If so many bytes are too many for the owner's thread, send the direction away until
 * it has moved them. Only while it is home. Returns: whether it went. */
bool spw__connection_send_away(spw_connection *connection, direction *way,
                               uint64_t bytes);
/* Let threads read what comes, and send what is queued, before the owner has taken the
 * connection; what cannot go away waits for the owner. Only while it is untaken. */
void spw__connection_go_untaken(spw_connection *connection);
/* Hand it to its owner: from now on it is as any other. */
void spw__connection_take(spw_connection *connection);
/* Have a direction back; does nothing while it is home. What ended it on the thread
 * ends the connection. */
void spw__connection_call_home(spw_connection *connection, direction *way);

/* What the threads run. */
spw__step_answer spw__connection_receive_step(spw__task *task);
spw__step_answer spw__connection_send_step(spw__task *task);

#endif
