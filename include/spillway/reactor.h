/* Threads that move large bodies, so that the owner of a connection can do other things
 * meanwhile, and the way back to the owner.
 *
 * A connection that is given completions moves small amounts on its owner's thread, as
 * one without does. When much is to be received or sent, that direction goes to a
 * thread of the reactor; the connection says so (SPW_INTEREST_COMPLETION), does not
 * want its descriptor watched for it, and comes back through its completions, whose
 * descriptor the owner watches for reading. */
#ifndef SPILLWAY_REACTOR_H
#define SPILLWAY_REACTOR_H

#include "spillway/connection.h"

typedef struct spw_reactor spw_reactor;

enum { SPW_REACTOR_THREADS_MAX = 64 };

/* Make a reactor of threads (0: as many as the machine has cores, two to four). They
 * start when there is something for them to do. A process that was forked needs a
 * reactor of its own: connections with a parent's move everything themselves.
 * Returns: a reactor to be freed by spw_reactor_free. Borrows: context gets a reference
 * of its own. Thread: any. Errors: NO_MEMORY, IO (no descriptor, errno tells),
 * INVALID_ARGUMENT (more than SPW_REACTOR_THREADS_MAX). */
SPW_EXPORT SPW_NODISCARD spw_status spw_reactor_create(spw_context *context,
                                                       unsigned threads,
                                                       spw_reactor **ret_reactor,
                                                       spw_error *error);
/* Ends the threads. Takes: reactor (NULL allowed), all of whose completions have been
 * freed. Thread: none of its own. */
SPW_EXPORT void spw_reactor_free(spw_reactor *reactor);

/* Make the place where the connections of one owner come back.
 * Borrows: reactor, until they are freed. Returns: completions to be freed by
 * spw_completions_free. Thread: the owner's. Errors: NO_MEMORY, IO (errno tells). */
SPW_EXPORT SPW_NODISCARD spw_status spw_completions_create(
    spw_reactor *reactor, spw_completions **ret_completions, spw_error *error);
/* End completions.
 * Takes: completions (NULL allowed), all of whose connections have been freed, closed
 * or let go. Thread: the owner's. */
SPW_EXPORT void spw_completions_free(spw_completions *completions);
/* Returns: a descriptor that is readable as long as connections wait in next; it lives
 * as long as the completions, and is only to be watched. Thread: any. */
SPW_EXPORT int spw_completions_descriptor(const spw_completions *completions);
/* Take a connection back, of which something has been received or everything been sent,
 * or which has ended: call receive, look at interest and reap.
 * Returns: a connection, which is nobody else's, or NULL when there is none. Thread:
 * the owner's. */
SPW_EXPORT spw_connection *spw_completions_next(spw_completions *completions);

#endif
