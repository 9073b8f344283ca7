/* How a direction of a connection goes to a thread of the reactor and comes home. The
 * owner's thread alone decides both, so only it needs to know where a direction is. */
#include <stddef.h>

#include "context/error.h"
#include "transport/connection_state.h"

void spw__connection_init_directions(spw_connection *connection)
{
    spw__watch *watch = &connection->watch;
    watch->reading =
        (spw__task){.step = spw__connection_receive_step, .subject = connection};
    watch->writing =
        (spw__task){.step = spw__connection_send_step, .subject = connection};
    connection->receiving = (direction){.watch = watch, .task = &watch->reading};
    connection->sending = (direction){.watch = watch, .task = &watch->writing};
}

bool spw_connection_is_inline(const spw_connection *connection, uint64_t bytes)
{
    return connection->completions == NULL || bytes <= connection->inline_bytes;
}

bool spw__connection_go_by(spw_connection *connection, direction *way,
                           spw__watch *watch, spw__task *task, int descriptor,
                           unsigned wants)
{
    way->watch = watch;
    way->task = task;
    way->is_away = true;
    way->fault.status = SPW_STATUS_OK;
    bool is_away =
        connection->is_untaken
            ? spw__task_arm_apart(connection->completions, watch, descriptor, task,
                                  wants, -1)
            : spw__task_arm(connection->completions, watch, descriptor, task, wants);
    if (!is_away)
        way->is_away = false;
    return is_away;
}

/* By the stream, if there is one and somebody to send it to. Returns: whether it went.
 */
static bool go(spw_connection *connection, direction *way, spw__step_answer wants)
{
    if (connection->completions == NULL || connection->phase != CONNECTION_OPEN)
        return false;
    spw__watch *watch = &connection->watch;
    bool is_sending = way == &connection->sending;
    if (!is_sending)
        spw__connection_stop_saying(connection);
    return spw__connection_go_by(connection, way, watch,
                                 is_sending ? &watch->writing : &watch->reading,
                                 connection->stream.descriptor, wants);
}

bool spw__connection_go_now(spw_connection *connection)
{
    return go(connection, &connection->receiving, SPW__STEP_NOW);
}

bool spw__connection_go_send(spw_connection *connection)
{
    return go(connection, &connection->sending, SPW__STEP_WRITE);
}

bool spw__connection_send_away(spw_connection *connection, direction *way,
                               uint64_t bytes)
{
    return !spw_connection_is_inline(connection, bytes) &&
           go(connection, way,
              way == &connection->sending ? SPW__STEP_WRITE : SPW__STEP_READ);
}

void spw__connection_go_untaken(spw_connection *connection)
{
    if (!connection->sending.is_away && spw__send_queue_unsent(&connection->queue) > 0)
        (void)go(connection, &connection->sending, SPW__STEP_WRITE);
    (void)go(connection, &connection->receiving, SPW__STEP_READ);
}

void spw__connection_take(spw_connection *connection)
{
    spw__connection_call_home(connection, &connection->receiving);
    spw__connection_call_home(connection, &connection->sending);
    connection->is_untaken = false;
}

/* The process was forked while a thread of the parent worked on this: what there is of
 * it here may be in the middle of a change, so it is left alone for good. */
static void abandon(spw_connection *connection, direction *lost)
{
    if (lost == &connection->receiving) {
        connection->reader = NULL;
        spw__connection_leave(connection);
        connection->ready = (spw__ready_queue){0};
        connection->ahead = (read_ahead){0};
        spw__connection_abandon_receiver(connection);
    } else if (lost == &connection->announcing) {
        spw__connection_abandon_sender(connection);
    } else {
        spw__send_queue_init(&connection->queue,
                             spw_context_budget(connection->context));
    }
    (void)spw__error_set(&lost->fault, SPW_STATUS_CLOSED, 0,
                         "the connection to %s belongs to the parent process",
                         connection->peer_host);
}

/* A direction is home again. */
static void arrive(spw_connection *connection, direction *way)
{
    way->is_away = false;
    if (way == &connection->receiving) {
        spw__connection_say_rest(connection);
        spw__connection_receiving_arrived(connection);
        return;
    }
    if (way->fault.status != SPW_STATUS_OK && connection->phase != CONNECTION_ENDED)
        spw__connection_end(connection, &way->fault);
}

void spw__connection_call_home(spw_connection *connection, direction *way)
{
    if (!way->is_away)
        return;
    if (!spw__task_recall(way->watch, way->task))
        abandon(connection, way);
    arrive(connection, way);
}

spw_connection *spw_completions_next(spw_completions *completions)
{
    spw__task *task = spw__completions_next(completions);
    if (task == NULL)
        return NULL;
    spw_connection *connection = task->subject;
    if (task == connection->receiving.task)
        arrive(connection, &connection->receiving);
    else if (task == connection->sending.task)
        arrive(connection, &connection->sending);
    else
        arrive(connection, &connection->announcing);
    return connection;
}
