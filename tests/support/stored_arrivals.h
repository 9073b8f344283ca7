/* Payloads that arrive at a store as from a connection, without one: their first slice
 * is the header, in memory, and the store's sink says where the others go. */
#ifndef SPW_TESTS_STORED_ARRIVALS_H
#define SPW_TESTS_STORED_ARRIVALS_H

#include "spillway/store.h"

/* Bring payload, all of it in memory, in pieces. Whenever the sink has to be waited
 * for, wait is called; if it answers false, the connection is lost: CLOSED.
 * Returns: a payload of the caller's, as it was received. Errors: the sink's. */
spw_status stored_arrival_bring(spw_store *store, spw_context *context,
                                const spw_payload *payload, bool (*wait)(void *user),
                                void *user, spw_payload **ret_payload,
                                spw_error *error);

#endif
