/* What is on disk and who sends it: a store's payload of ranges of files goes to a peer
 * as it is, or comes into memory here. Either way nothing is used that is not what was
 * written. */
#ifndef SPILLWAY_STORED_RANGES_H
#define SPILLWAY_STORED_RANGES_H

#include "spillway/payload.h"

/* Read the slices of a payload that are ranges of files, verify the checksums that they
 * have, and decompress. Small ones that lie behind each other share a buffer.
 * Returns: a payload of the caller's with as many slices, all in memory and plain;
 * those that were in memory are shared. Thread: any; blocks on the disk. Errors: IO
 * (errno tells), CORRUPT (other bytes than were written, or fewer), NO_MEMORY,
 * LIMIT_EXCEEDED. */
SPW_EXPORT SPW_NODISCARD spw_status spw_payload_read_back(spw_context *context,
                                                          const spw_payload *payload,
                                                          spw_payload **ret_payload,
                                                          spw_error *error);
/* Read through those slices that are ranges of files and have a checksum, and verify
 * that, with 1 MiB of memory at a time: for who sends them to a peer that cannot. What
 * was read so a moment ago is in the system's cache when it is sent.
 * Thread: any; blocks on the disk. Errors: as spw_payload_read_back. */
SPW_EXPORT SPW_NODISCARD spw_status spw_payload_verify(spw_context *context,
                                                       const spw_payload *payload,
                                                       spw_error *error);
/* The checksum that slices have, XXH3 with 64 bits, of size bytes (0 allowed).
 * Returns: it. Thread: any. */
SPW_EXPORT uint64_t spw_checksum(const void *data, size_t size);

#endif
