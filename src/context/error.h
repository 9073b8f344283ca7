/* Writing an spw_error: by the function that first knows the fault. */
#ifndef SPW_CONTEXT_ERROR_H
#define SPW_CONTEXT_ERROR_H

#include "context/compiler.h"
#include "spillway/status.h"

/* Fill error (NULL allowed) and answer status, so that a fault is one line:
 * return spw__error_set(error, SPW_STATUS_IO, errno, "..."). With an errno its text is
 * appended. */
spw_status spw__error_set(spw_error *error, spw_status status, int os_errno,
                          const char *format, ...) SPW_PRINTF(4, 5);

#endif
