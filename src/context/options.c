/* Option structs of any age. This is libbpf's rule: a program that does not know an
 * option gets its default, and one that sets an option which we do not know is told so,
 * for it would otherwise go without what it asked for. */
#include "context/options.h"

#include <stdbool.h>
#include <string.h>

#include "context/error.h"

/* No version of a struct that begins with a size_t has a size that is no multiple of
 * its alignment, so that no member of another version is cut. */
static bool is_possible(size_t bytes)
{
    return bytes >= sizeof(size_t) && bytes <= SPW__OPTIONS_BYTES_MAX &&
           bytes % _Alignof(size_t) == 0;
}

static bool is_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

spw_status spw__options_read(const void *given, const char *name, void *ret_own,
                             size_t own_bytes, spw_error *error)
{
    size_t bytes = 0;
    if (given != NULL)
        memcpy(&bytes, given, sizeof bytes);
    if (!is_possible(bytes))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "options of an unknown size; use SPW_%s_OPTIONS_INIT",
                              name);
    size_t known = bytes < own_bytes ? bytes : own_bytes;
    if (!is_zero((const unsigned char *)given + known, bytes - known))
        return spw__error_set(error, SPW_STATUS_INVALID_ARGUMENT, 0,
                              "an option is set that only a newer libspillway knows "
                              "(SPW_%s_OPTIONS_INIT)",
                              name);
    memset(ret_own, 0, own_bytes);
    memcpy(ret_own, given, known);
    memcpy(ret_own, &own_bytes, sizeof own_bytes);
    return SPW_STATUS_OK;
}
