/* Payloads with known content. */
#ifndef SPW_TESTS_PAYLOADS_H
#define SPW_TESTS_PAYLOADS_H

#include "spillway/payload.h"

/* One frame for each of count sizes, each in a buffer of its own, filled with bytes
 * that follow from seed, the frame's number and the byte's place. */
spw_status payload_make(spw_context *context, const size_t *sizes, size_t count,
                        unsigned seed, spw_payload **ret_payload, spw_error *error);
/* The byte that payload_make puts at a place. */
unsigned char payload_byte(unsigned seed, size_t frame, size_t place);
/* Fails the test unless payload is what payload_make made. */
void payload_assert(const spw_payload *payload, const size_t *sizes, size_t count,
                    unsigned seed);

/* What payload_make makes, as it goes over the wire. Returns: memory to be freed. */
char *payload_wire(spw_context *context, const size_t *sizes, size_t count,
                   unsigned seed, size_t *ret_size);

/* One frame of memory of the caller's, for which *released is raised when it is let go.
 * Borrows: both until then. */
spw_status payload_wrap(spw_context *context, void *data, size_t size,
                        unsigned *released, spw_payload **ret_payload,
                        spw_error *error);

#endif
