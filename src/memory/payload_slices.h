/* A payload's inside, for the layers that make one and for its own other files. */
#ifndef SPW_MEMORY_PAYLOAD_SLICES_H
#define SPW_MEMORY_PAYLOAD_SLICES_H

#include "spillway/payload.h"

/* Put the start of another buffer, as large as the slice, in the place of a slice's.
 * Takes: buffer's reference. */
void spw__payload_replace(spw_payload *payload, size_t index, spw_buffer *buffer);
/* The same as spw_payload_slices, to be changed by who made the payload, while nobody
 * else has it. */
spw_slice *spw__payload_slices(spw_payload *payload);
/* Borrows: the context, as long as the payload lives. */
spw_context *spw__payload_context(const spw_payload *payload);

#endif
