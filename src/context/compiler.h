/* The only place with compiler attributes beside the public export.h. */
#ifndef SPW_CONTEXT_COMPILER_H
#define SPW_CONTEXT_COMPILER_H

#define SPW_PRINTF(format_index, first_index)                                          \
    __attribute__((format(printf, format_index, first_index)))

#endif
