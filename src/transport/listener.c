/* Listeners. */
#include "spillway/listener.h"

#include <errno.h>

#include "context/allocate.h"
#include "context/error.h"
#include "transport/listener_state.h"
#include "transport/stream_tcp.h"

/* Returns: a listening descriptor, or a negative errno and in ret_what what failed. */
static int open_listening(const spw__socket_address *address, int backlog,
                          const char **ret_what)
{
    *ret_what = "open a socket for";
    int descriptor = spw__socket_open(address->any.sa_family);
    if (descriptor < 0)
        return descriptor;
    *ret_what = "set up a listener on";
    int answer = spw__socket_set_reuse_address(descriptor);
    if (answer == 0 && address->any.sa_family == AF_INET6)
        answer = spw__socket_set_v6_only(descriptor);
    if (answer == 0) {
        *ret_what = "bind to";
        answer = spw__socket_bind(descriptor, address);
    }
    if (answer == 0) {
        *ret_what = "listen on";
        answer = spw__socket_listen(descriptor, backlog);
    }
    if (answer == 0)
        return descriptor;
    spw__socket_close(descriptor);
    return answer;
}

spw_status spw_listener_start(spw_context *context, const char *host, uint16_t port,
                              int backlog, spw_listener **ret_listener,
                              spw_error *error)
{
    spw__socket_address address;
    spw_status status = spw__address_parse(host, port, &address, error);
    if (status != SPW_STATUS_OK)
        return status;
    spw_listener *listener =
        spw__allocate(context, sizeof *listener, _Alignof(spw_listener));
    if (listener == NULL)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a listener");
    *listener = (spw_listener){.context = spw_context_ref(context),
                               .descriptor = -1,
                               .owner = spw__socket_owner(),
                               .away = {.sign = -1}};
    const char *what;
    int answer = open_listening(&address, backlog, &what);
    if (answer < 0)
        goto fail;
    listener->descriptor = answer;
    what = "find the bound address of";
    answer = spw__socket_local(listener->descriptor, &listener->local);
    if (answer < 0)
        goto fail;
    spw__address_host(&listener->local, listener->host, &listener->port);
    *ret_listener = listener;
    return SPW_STATUS_OK;
fail:
    spw_listener_free(listener);
    return spw__stream_tcp_fault(answer, what, &address, error);
}

void spw_listener_free(spw_listener *listener)
{
    if (listener == NULL)
        return;
    spw_context *context = listener->context;
    spw__listener_stop_serving(listener);
    if (listener->descriptor >= 0) {
        spw__socket_shutdown(listener->descriptor, listener->owner);
        spw__socket_close(listener->descriptor);
    }
    spw__release(context, listener, sizeof *listener, _Alignof(spw_listener));
    spw_context_unref(context);
}

int spw_listener_descriptor(const spw_listener *listener)
{
    return listener->away.sign >= 0 ? listener->away.sign : listener->descriptor;
}

void spw_listener_local(const spw_listener *listener, const char **ret_host,
                        uint16_t *ret_port)
{
    *ret_host = listener->host;
    *ret_port = listener->port;
}

/* Faults of the connection that was to be accepted, not of the listener (accept(2)
 * lists those that the network below passes on): the next one may be fine. */
static bool is_transient(int answer)
{
    switch (-answer) {
    case EAGAIN:
    case ECONNABORTED:
    case EPERM:
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case EOPNOTSUPP:
        return true;
    default:
        return false;
    }
}

spw_status spw__listener_accept_here(spw_listener *listener,
                                     const spw_connection_options *options,
                                     spw_connection **ret_connection, spw_error *error)
{
    spw__socket_address peer;
    int descriptor = spw__socket_accept(listener->descriptor, &peer);
    if (descriptor < 0 && is_transient(descriptor))
        return SPW_STATUS_AGAIN;
    if (descriptor < 0)
        return spw__stream_tcp_fault(descriptor, "accept a connection on",
                                     &listener->local, error);
    spw_status status = spw__connection_adopt(listener->context, descriptor, &peer,
                                              options, ret_connection, error);
    if (status != SPW_STATUS_OK)
        spw__socket_close(descriptor);
    return status;
}

spw_status spw_listener_accept(spw_listener *listener,
                               const spw_connection_options *given,
                               spw_connection **ret_connection, spw_error *error)
{
    if (listener->away.sign >= 0)
        return spw__listener_take(listener, ret_connection, error);
    spw_connection_options options = {0};
    spw_status status = spw__connection_read_options(given, &options, error);
    if (status != SPW_STATUS_OK)
        return status;
    return spw__listener_accept_here(listener, &options, ret_connection, error);
}
