/* The message under way, as one of those that the budget lets in (context/admission.h):
 * from a limit on it is held by the reader until it is let in, and so is its sender.
 * Invariant: admission.bytes is what the budget counts as in flight for it. */
#include "platform/clock.h"
#include "transport/connection_state.h"

bool spw__connection_is_held(const spw_connection *connection)
{
    return connection->reader != NULL &&
           spw__message_reader_is_held(connection->reader);
}

spw_status spw__connection_let_in(spw_connection *connection, bool can_wait,
                                  spw_error *error)
{
    uint64_t bytes = spw__message_reader_missing(connection->reader);
    uint64_t now = spw__clock_ms(), waited = 0;
    if (connection->held_since_ms != 0) /* the clock may stand for a few milliseconds */
        waited = now > connection->held_since_ms ? now - connection->held_since_ms : 1;
    if (!spw__budget_admit(spw_context_budget(connection->context), bytes, now,
                           can_wait ? waited : UINT64_MAX, &connection->admission)) {
        if (connection->held_since_ms == 0)
            connection->held_since_ms = now;
        return SPW_STATUS_AGAIN;
    }
    return spw__message_reader_go_on(connection->reader, error);
}

void spw__connection_tell_moved(const spw_connection *connection)
{
    if (connection->admission.bytes > 0)
        spw__budget_moved(spw_context_budget(connection->context), spw__clock_ms());
}

void spw__connection_leave(spw_connection *connection)
{
    connection->held_since_ms = 0;
    if (connection->admission.bytes == 0)
        return;
    spw__budget_leave(spw_context_budget(connection->context), &connection->admission);
    connection->admission.bytes = 0;
    if (connection->completions != NULL) /* of one let go, others hear by the clock */
        spw__reactor_unpark(connection->completions);
}
