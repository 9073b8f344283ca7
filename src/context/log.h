/* Saying something to whoever runs the library: through the context's hook only. */
#ifndef SPW_CONTEXT_LOG_H
#define SPW_CONTEXT_LOG_H

#include "context/compiler.h"
#include "spillway/context.h"

/* Log one line, without a newline. Nothing is formatted when the hook is silent or its
 * level is lower; a line that does not fit is cut. Thread: any. */
void spw__log(const spw_context *context, spw_log_level level, const char *format, ...)
    SPW_PRINTF(3, 4);

#endif
