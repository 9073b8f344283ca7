/* The only place with compiler attributes and built-ins beside the public export.h. */
#ifndef SPW_CONTEXT_COMPILER_H
#define SPW_CONTEXT_COMPILER_H

#define SPW_PRINTF(format_index, first_index)                                          \
    __attribute__((format(printf, format_index, first_index)))

/* The line of address will be read soon; nothing happens if it cannot be. */
#define SPW_PREFETCH(address) __builtin_prefetch(address)

#endif
