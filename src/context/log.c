/* The one way to the log hook. It never allocates: it is called when memory is out. */
#include "context/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "context/figures.h"

enum { LINE_BYTES = 512 };

void spw__log(const spw_context *context, spw_log_level level, const char *format, ...)
{
    const spw_log_hook *log = &context->log;
    if (log->write == NULL || level > log->level)
        return;
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (written >= 0)
        log->write(log->user, level, line);
}
