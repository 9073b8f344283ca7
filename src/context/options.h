/* How an option struct is read: by the size that its caller knows, which is older or
 * newer than ours where the library was exchanged and the program was not.
 *
 * What this relies on, in every option struct of include/spillway/: the first member is
 * struct_size; zero means the default; a new member goes behind the end, never into
 * padding; and a struct that stands inside another one never grows. */
#ifndef SPW_CONTEXT_OPTIONS_H
#define SPW_CONTEXT_OPTIONS_H

#include <stddef.h>

#include "spillway/status.h"

/* Larger ones come from a struct_size that was never set, and are not looked at. */
enum { SPW__OPTIONS_BYTES_MAX = 4096 };

/* Copy what a caller gives (NULL allowed, and refused) to ret_own, an option struct of
 * own_bytes as we know it: what an older caller does not have is zero there, and what
 * only a newer one has must be zero. name, such as "CONNECTION", is for the message.
 * Errors: INVALID_ARGUMENT. */
spw_status spw__options_read(const void *given, const char *name, void *ret_own,
                             size_t own_bytes, spw_error *error);

#endif
