/* What a connection is told about offloading. The decision is made where the work is
 * done, outside of the library; it is kept here because it belongs to the connection.
 * Invariant: no lock and no other state depends on it, so it may change at any time. */
#include "transport/connection_state.h"

void spw_connection_set_offload_bytes(spw_connection *connection, uint64_t bytes)
{
    atomic_store_explicit(&connection->offload_bytes, bytes, memory_order_relaxed);
}

uint64_t spw_connection_offload_bytes(const spw_connection *connection)
{
    return atomic_load_explicit(&connection->offload_bytes, memory_order_relaxed);
}
