/* One process with one connection, driven by poll(). */
#include "example_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* An example that hears nothing for so long has failed. */
enum { PATIENCE_MS = 30000 };

/* ---- setting up and clearing away ---- */

static void print_log(void *user, spw_log_level level, const char *message)
{
    (void)user;
    (void)level;
    fprintf(stderr, "spillway: %s\n", message);
}

spw_status peer_open(peer *self, spw_error *error)
{
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    /* 1 GiB: what would take more is refused, and says so. */
    spw_status status = spw_budget_create(UINT64_C(1) << 30, &self->budget, error);
    if (status != SPW_STATUS_OK)
        return status;
    options.budget = self->budget;
    options.log = (spw_log_hook){.write = print_log, .level = SPW_LOG_WARNING};
    status = spw_context_create(&options, &self->context, error);
    if (status == SPW_STATUS_OK)
        status = spw_reactor_create(self->context, 0, &self->reactor, error);
    if (status == SPW_STATUS_OK)
        status = spw_completions_create(self->reactor, &self->completions, error);
    return status;
}

void peer_close(peer *self)
{
    /* Every free accepts NULL. What was made last goes first. */
    spw_connection_free(self->connection);
    spw_listener_free(self->listener);
    spw_meetings_free(self->meetings);
    spw_completions_free(self->completions);
    spw_reactor_free(self->reactor);
    spw_context_unref(self->context);
    spw_budget_free(self->budget);
    *self = (peer){0};
}

/* ---- waiting ---- */

static spw_status fail(spw_error *error, spw_status status, int os_errno,
                       const char *what)
{
    *error = (spw_error){.status = status, .os_errno = os_errno};
    snprintf(error->message, sizeof error->message, "%s%s%s", what,
             os_errno != 0 ? ": " : "", os_errno != 0 ? strerror(os_errno) : "");
    return status;
}

static spw_status wait_for(struct pollfd *watched, nfds_t count, spw_error *error)
{
    int ready;
    do {
        ready = poll(watched, count, PATIENCE_MS);
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return fail(error, SPW_STATUS_IO, errno, "poll");
    if (ready == 0)
        return fail(error, SPW_STATUS_TIMED_OUT, 0, "nothing came of it");
    return SPW_STATUS_OK;
}

/* What the connection wants of its descriptor now; poll leaves -1 out. */
static struct pollfd watch(const spw_connection *connection)
{
    unsigned interest = spw_connection_interest(connection);
    short events = 0;
    if (interest & SPW_INTEREST_READ)
        events |= POLLIN;
    if (interest & SPW_INTEREST_WRITE)
        events |= POLLOUT;
    int descriptor = events != 0 ? spw_connection_descriptor(connection) : -1;
    return (struct pollfd){.fd = descriptor, .events = events};
}

/* Wait until something can go on, and let it. */
static spw_status turn(peer *self, spw_error *error)
{
    enum { CONNECTION, COMPLETIONS, MEETINGS, COUNT };
    struct pollfd watched[COUNT] = {
        [CONNECTION] = watch(self->connection),
        [COMPLETIONS] = {spw_completions_descriptor(self->completions), POLLIN, 0},
        [MEETINGS] = {-1, POLLIN, 0},
    };
    if (self->meetings != NULL)
        watched[MEETINGS].fd = spw_meetings_descriptor(self->meetings);
    spw_status status = wait_for(watched, COUNT, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (watched[MEETINGS].revents != 0) {
        spw_error news;
        /* No fault: it says why bodies take the stream, and all works as well. */
        if (spw_meetings_on_readable(self->meetings, &news) != SPW_STATUS_OK)
            fprintf(stderr, "spillway: %s\n", news.message);
    }
    /* There is one connection, so which one comes back is no question. */
    if (watched[COMPLETIONS].revents != 0)
        while (spw_completions_next(self->completions) != NULL)
            continue;
    short events = watched[CONNECTION].events, revents = watched[CONNECTION].revents;
    if ((events & POLLIN) && (revents & ~POLLOUT) &&
        spw_connection_on_readable(self->connection) == SPW_STATUS_AGAIN)
        revents &= (short)~POLLIN; /* not a whole message yet: the next turn goes on */
    if ((events & POLLOUT) && (revents & ~POLLIN))
        status = spw_connection_on_writable(self->connection, error);
    spw_connection_reap(self->connection);
    return status;
}

/* ---- connecting ---- */

static spw_connection_options options_for(const peer *self)
{
    spw_connection_options options = SPW_CONNECTION_OPTIONS_INIT;
    options.completions = self->completions;
    options.user_timeout_ms = PATIENCE_MS;
    return options;
}

spw_status peer_accept(peer *self, int port_to, spw_error *error)
{
    spw_connection_options options = options_for(self);
    const char *host;
    uint16_t port;
    spw_status status =
        spw_listener_start(self->context, "127.0.0.1", 0, 1, &self->listener, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_listener_local(self->listener, &host, &port);
    if (write(port_to, &port, sizeof port) != sizeof port)
        return fail(error, SPW_STATUS_IO, errno, "cannot tell the port");
    do {
        struct pollfd watched = {spw_listener_descriptor(self->listener), POLLIN, 0};
        status = wait_for(&watched, 1, error);
        if (status == SPW_STATUS_OK)
            status =
                spw_listener_accept(self->listener, &options, &self->connection, error);
    } while (status == SPW_STATUS_AGAIN);
    return status;
}

spw_status peer_connect(peer *self, int port_from, spw_error *error)
{
    spw_connection_options options = options_for(self);
    uint16_t port;
    if (read(port_from, &port, sizeof port) != sizeof port)
        return fail(error, SPW_STATUS_PEER_CLOSED, 0, "the other process told no port");
    spw_status status = spw_connection_connect(self->context, "127.0.0.1", port,
                                               &options, &self->connection, error);
    while (status == SPW_STATUS_OK && spw_connection_is_connecting(self->connection))
        status = turn(self, error);
    return status;
}

/* ---- messages ---- */

spw_status append_copy(peer *self, spw_payload *payload, const void *data, size_t size,
                       spw_error *error)
{
    spw_slice slice = {.size = size, .plain_size = size};
    spw_status status =
        spw_buffer_create(self->context, size, SPW_CHARGE_HELD, &slice.buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    memcpy(spw_buffer_data(slice.buffer), data, size);
    status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(slice.buffer); /* what a call takes, it takes on success */
    return status;
}

spw_status peer_send(peer *self, spw_payload *payload, spw_error *error)
{
    uint64_t bytes;
    spw_status status = spw_connection_send(self->connection, payload, &bytes, error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

spw_status peer_receive(peer *self, spw_payload **ret_payload, spw_error *error)
{
    spw_status status;
    while ((status = spw_connection_receive(self->connection, ret_payload, error)) ==
           SPW_STATUS_AGAIN) {
        status = turn(self, error);
        if (status != SPW_STATUS_OK)
            return status;
    }
    return status;
}

spw_status peer_flush(peer *self, spw_error *error)
{
    spw_status status = SPW_STATUS_OK;
    while (status == SPW_STATUS_OK && spw_connection_is_open(self->connection) &&
           spw_connection_queued_bytes(self->connection) > 0)
        status = turn(self, error);
    return status;
}

/* ---- two processes ---- */

static int run_one(peer_role role, int port, const char *name)
{
    peer self = {0};
    spw_error error;
    spw_status status = peer_open(&self, &error);
    if (status == SPW_STATUS_OK)
        status = role(&self, port, &error);
    if (status != SPW_STATUS_OK)
        fprintf(stderr, "%s: %s (%s)\n", name, error.message, spw_status_name(status));
    peer_close(&self);
    return status == SPW_STATUS_OK ? 0 : 1;
}

int run_two(peer_role listening, peer_role connecting)
{
    int port[2], status;
    if (pipe(port) < 0) {
        perror("pipe");
        return 1;
    }
    /* Before either has anything of the library: threads do not survive a fork. */
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        close(port[1]);
        return run_one(connecting, port[0], "the process that connects");
    }
    close(port[0]);
    int code = run_one(listening, port[1], "the process that listens");
    close(port[1]);
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) != 0)
        code = 1;
    return code;
}
