/* A listener: accepts connections on one numeric address. */
#ifndef SPILLWAY_LISTENER_H
#define SPILLWAY_LISTENER_H

#include "spillway/connection.h"

typedef struct spw_listener spw_listener;

/* Bind and listen on a numeric host. An IPv6 listener takes IPv6 only, so that both
 * families can share a port.
 * Returns: a listener to be freed by spw_listener_free. Thread: the owner's.
 * Errors: ADDRESS (in use, not ours; errno tells), NO_MEMORY, IO. */
SPW_EXPORT SPW_NODISCARD spw_status spw_listener_start(spw_context *context,
                                                       const char *host, uint16_t port,
                                                       int backlog,
                                                       spw_listener **ret_listener,
                                                       spw_error *error);
/* Stops listening. Takes: listener (NULL allowed). */
SPW_EXPORT void spw_listener_free(spw_listener *listener);

SPW_EXPORT int spw_listener_descriptor(const spw_listener *listener);
/* The bound address. Returns: text that lives as long as the listener. */
SPW_EXPORT void spw_listener_local(const spw_listener *listener, const char **ret_host,
                                   uint16_t *ret_port);
/* Accept one connection. Errors: AGAIN when none waits; IO (out of descriptors:
 * errno tells), NO_MEMORY. */
SPW_EXPORT SPW_NODISCARD spw_status
spw_listener_accept(spw_listener *listener, const spw_connection_options *options,
                    spw_connection **ret_connection, spw_error *error);

#endif
