/* Texts of statuses, and the one writer of spw_error. A message that does not fit is
 * cut, never overrun: an error must not fail in its turn. */
#include "spillway/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "context/error.h"
#include "spillway/spillway.h"

const char *spw_version(void)
{
    return SPW_VERSION;
}

const char *spw_status_text(spw_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                 \
    case SPW_STATUS_##name:                                                            \
        return text;
        SPW_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "unknown status";
}

const char *spw_status_name(spw_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                 \
    case SPW_STATUS_##name:                                                            \
        return #name;
        SPW_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

spw_status spw__error_set(spw_error *error, spw_status status, int os_errno,
                          const char *format, ...)
{
    if (error == NULL)
        return status;
    error->status = status;
    error->os_errno = os_errno;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    if (os_errno == 0 || written < 0 || (size_t)written >= sizeof error->message)
        return status;
    char text[96];
    /* The GNU strerror_r answers a pointer that may or may not be text. */
    const char *reason = strerror_r(os_errno, text, sizeof text);
    snprintf(error->message + written, sizeof error->message - (size_t)written, ": %s",
             reason);
    return status;
}
