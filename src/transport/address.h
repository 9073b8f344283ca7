/* Numeric addresses: text to what the operating system takes, and back. Names are
 * resolved by the caller; nothing here blocks. */
#ifndef SPW_TRANSPORT_ADDRESS_H
#define SPW_TRANSPORT_ADDRESS_H

#include <net/if.h>
#include <stdint.h>

#include "platform/socket.h"
#include "spillway/status.h"

/* Room for a host's text, "fe80::1%eth0", and for "[host]:port". */
enum {
    SPW__ADDRESS_HOST_BYTES = INET6_ADDRSTRLEN + 1 + IF_NAMESIZE,
    SPW__ADDRESS_TEXT_BYTES = SPW__ADDRESS_HOST_BYTES + sizeof "[]:65535"
};

/* Errors: ADDRESS (not a numeric IPv4 or IPv6 host, or no such interface). */
spw_status spw__address_parse(const char *host, uint16_t port,
                              spw__socket_address *ret_address, spw_error *error);
/* The host's text, of SPW__ADDRESS_HOST_BYTES, and the port. */
void spw__address_host(const spw__socket_address *address, char *ret_host,
                       uint16_t *ret_port);
/* "host:port" as in a URL, of SPW__ADDRESS_TEXT_BYTES: for messages. */
void spw__address_text(const spw__socket_address *address, char *ret_text);

#endif
