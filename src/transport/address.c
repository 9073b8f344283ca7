/* Addresses. The scope of a link-local IPv6 address is part of its text, by name when
 * the interface has one, as the operating system's own tools write it. */
#include "transport/address.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "context/error.h"

static bool parse_decimal(const char *text, uint32_t *ret_value)
{
    uint64_t value = 0;
    if (*text == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9')
            return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX)
            return false;
    }
    *ret_value = (uint32_t)value;
    return true;
}

static bool parse_scope(const char *text, uint32_t *ret_scope)
{
    int index = spw__socket_interface_index(text);
    if (index > 0) {
        *ret_scope = (uint32_t)index;
        return true;
    }
    return parse_decimal(text, ret_scope) && *ret_scope != 0;
}

static spw_status parse_v6(const char *host, uint16_t port,
                           spw__socket_address *ret_address, spw_error *error)
{
    spw__socket_address address = {
        .v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)},
        .size = sizeof address.v6,
    };
    char number[INET6_ADDRSTRLEN];
    const char *percent = strchr(host, '%');
    size_t length = percent != NULL ? (size_t)(percent - host) : strlen(host);
    if (length < sizeof number) {
        memcpy(number, host, length);
        number[length] = '\0';
    }
    if (length >= sizeof number ||
        inet_pton(AF_INET6, number, &address.v6.sin6_addr) != 1)
        return spw__error_set(
            error, SPW_STATUS_ADDRESS, 0,
            "\"%.64s\" is not a numeric IPv4 or IPv6 address; resolve "
            "the name first",
            host);
    if (percent != NULL && !parse_scope(percent + 1, &address.v6.sin6_scope_id))
        return spw__error_set(error, SPW_STATUS_ADDRESS, 0,
                              "\"%.64s\" names a network interface that is not there",
                              host);
    *ret_address = address;
    return SPW_STATUS_OK;
}

spw_status spw__address_parse(const char *host, uint16_t port,
                              spw__socket_address *ret_address, spw_error *error)
{
    spw__socket_address address = {
        .v4 = {.sin_family = AF_INET, .sin_port = htons(port)},
        .size = sizeof address.v4,
    };
    if (inet_pton(AF_INET, host, &address.v4.sin_addr) != 1)
        return parse_v6(host, port, ret_address, error);
    *ret_address = address;
    return SPW_STATUS_OK;
}

void spw__address_host(const spw__socket_address *address, char *ret_host,
                       uint16_t *ret_port)
{
    ret_host[0] = '\0';
    if (address->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address->v4.sin_addr, ret_host, SPW__ADDRESS_HOST_BYTES);
        *ret_port = ntohs(address->v4.sin_port);
        return;
    }
    inet_ntop(AF_INET6, &address->v6.sin6_addr, ret_host, SPW__ADDRESS_HOST_BYTES);
    *ret_port = ntohs(address->v6.sin6_port);
    uint32_t scope = address->v6.sin6_scope_id;
    if (scope == 0)
        return;
    char name[IF_NAMESIZE];
    size_t length = strlen(ret_host);
    /* The interface may have gone since: its number still says which it was. */
    if (spw__socket_interface_name(scope, name) < 0)
        snprintf(name, sizeof name, "%" PRIu32, scope);
    snprintf(ret_host + length, SPW__ADDRESS_HOST_BYTES - length, "%%%s", name);
}

void spw__address_text(const spw__socket_address *address, char *ret_text)
{
    char host[SPW__ADDRESS_HOST_BYTES];
    uint16_t port;
    spw__address_host(address, host, &port);
    const char *format =
        address->any.sa_family == AF_INET ? "%s:%" PRIu16 : "[%s]:%" PRIu16;
    snprintf(ret_text, SPW__ADDRESS_TEXT_BYTES, format, host, port);
}
