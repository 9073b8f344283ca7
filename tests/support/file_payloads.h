/* Payloads of which some frames are ranges of a file. */
#ifndef SPW_TESTS_FILE_PAYLOADS_H
#define SPW_TESTS_FILE_PAYLOADS_H

#include "spillway/payload.h"

/* A file with no name, open for reading and writing. Returns: a descriptor. */
int file_open(void);
/* How many descriptors this process has open. */
unsigned file_count_descriptors(void);

/* What payload_make makes, with the frames whose bits in_file has in one file, behind
 * each other with gaps between them. */
spw_status payload_make_in_file(spw_context *context, const size_t *sizes, size_t count,
                                uint64_t in_file, unsigned seed,
                                spw_payload **ret_payload, spw_error *error);
/* The same with all frames in the file, and their checksums, as a store has them; none
 * larger than 3 MiB. */
spw_status payload_make_stored(spw_context *context, const size_t *sizes, size_t count,
                               unsigned seed, spw_payload **ret_payload,
                               spw_error *error);
/* One frame, a store's too, that begins behind bytes of which a file has none. */
spw_status payload_make_stored_at(spw_context *context, uint64_t offset, size_t size,
                                  unsigned seed, spw_payload **ret_payload,
                                  spw_error *error);
/* Cut the file of a payload's frame so that kept bytes of the frame remain. */
void payload_cut_file(const spw_payload *payload, size_t frame, uint64_t kept);

#endif
