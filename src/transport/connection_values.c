/* Messages whose values a sink sends to memory or to disk. While the sink has to be
 * waited for, nothing is read: receiving is away, parked, until the sink wakes it, and
 * the network or the side channel stops the peer. */
#include "context/error.h"
#include "transport/connection_state.h"

static void wake(void *completions)
{
    spw__reactor_unpark(completions);
}

void spw_connection_receive_values(spw_connection *connection, spw_value_sink *sink)
{
    /* Where no thread can wait for a disk, and where one has the reader, none is asked.
     */
    if (connection->completions == NULL || connection->receiving.is_away ||
        connection->phase != CONNECTION_OPEN) {
        spw_value_sink_free(sink);
        return;
    }
    sink->wake = wake;
    sink->user = connection->completions;
    spw__message_reader_ask(connection->reader, sink);
}

bool spw__connection_forget_sink(spw_connection *connection)
{
    if (connection->reader == NULL)
        return false;
    spw__message_reader_ask(connection->reader, NULL);
    return connection->ahead.start < connection->ahead.end &&
           !spw__message_reader_is_asking(connection->reader);
}

bool spw__connection_is_stalled(const spw_connection *connection)
{
    return connection->reader != NULL &&
           spw__message_reader_is_waiting(connection->reader);
}

spw_status spw__connection_look_again(spw_connection *connection, spw_error *error)
{
    spw_status status = spw__message_reader_look_again(connection->reader, error);
    if (status == SPW_STATUS_OK && spw__connection_is_stalled(connection))
        return SPW_STATUS_AGAIN;
    return status;
}
