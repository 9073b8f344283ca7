/* Changing a payload that is still being made, for the layers that make it. */
#ifndef SPW_MEMORY_PAYLOAD_SLICES_H
#define SPW_MEMORY_PAYLOAD_SLICES_H

#include "spillway/payload.h"

/* Put the start of another buffer, as large as the slice, in the place of a slice's.
 * Takes: buffer's reference. */
void spw__payload_replace(spw_payload *payload, size_t index, spw_buffer *buffer);

#endif
