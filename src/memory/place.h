/* A place: what bytes that have been received have in the store for which they came,
 * room in its memory or a range on its disk. The buffers or the file that they are in
 * hold it, so that it is given back when nobody has them any more, whoever that was. */
#ifndef SPW_MEMORY_PLACE_H
#define SPW_MEMORY_PLACE_H

#include <stdatomic.h>

#include "spillway/buffer.h"
#include "spillway/file.h"

typedef struct spw__place spw__place;

/* Stands at the beginning of what its maker has of it. */
struct spw__place {
    _Atomic size_t references;
    /* The last reference has gone. Thread: whichever dropped it. */
    void (*release)(spw__place *place);
};

static inline spw__place *spw__place_ref(spw__place *place)
{
    atomic_fetch_add_explicit(&place->references, 1, memory_order_relaxed);
    return place;
}

/* Takes: one reference (NULL allowed). */
static inline void spw__place_unref(spw__place *place)
{
    if (place != NULL &&
        atomic_fetch_sub_explicit(&place->references, 1, memory_order_acq_rel) == 1)
        place->release(place);
}

/* Have a buffer, that nobody else has yet and that holds none, hold a place until its
 * memory has been given back. Takes: one reference. */
void spw__buffer_hold(spw_buffer *buffer, spw__place *place);
/* Borrows: the place, as long as the buffer. Returns: NULL: it holds none. Thread: any.
 */
spw__place *spw__buffer_place(const spw_buffer *buffer);

/* Make another file of the same descriptor, which holds a place. Takes: one reference
 * to place, on success only; a reference of its own to file, which is not such a one.
 * Errors: NO_MEMORY. */
spw_status spw__file_share(spw_file *file, spw__place *place, spw_file **ret_file,
                           spw_error *error);
/* As spw__buffer_place. */
spw__place *spw__file_place(const spw_file *file);

#endif
