/* Where chunks of partitions are on disk: a file without a name in each directory, made
 * when it is first needed. What is written together is a batch, one range of a file,
 * which begins on a multiple of SPW__DIRECT_BYTES and is never written again. Space
 * comes back as its chunks are released, a few MiB of neighbours at a time, the rest
 * with the last; where a file system cannot, with the file. */
#ifndef SPW_SHUFFLE_CHUNK_FILES_H
#define SPW_SHUFFLE_CHUNK_FILES_H

#include "platform/spill_file.h"
#include "spillway/partitions.h"

typedef struct spw__chunk_files spw__chunk_files;
typedef struct spw__batch spw__batch;

typedef struct spw__chunk_files_figures {
    uint64_t used_bytes; /* now, of all directories */
    uint64_t write_ns, read_ns;
} spw__chunk_files_figures;

/* Make a private directory in each of those named, after what killed processes left
 * there has been removed. Borrows: directories, during the call. Returns: to be freed
 * by spw__chunk_files_free. Errors: NO_MEMORY, INVALID_ARGUMENT, IO. */
spw_status spw__chunk_files_create(spw_context *context,
                                   const spw_partitions_directory *directories,
                                   size_t count, spw__chunk_files **ret_files,
                                   spw_error *error);
/* Takes: files (NULL allowed), of which all batches have been released. */
void spw__chunk_files_free(spw__chunk_files *files);

/* Write parts of together size bytes, whole pages (> 0), in the first directory that
 * takes them. chunks (> 0): how often the batch will be released. Returns: in
 * ret_batch. Thread: any; blocks. Errors: IO, LIMIT_EXCEEDED (nothing takes them; the
 * message says what was tried last), NO_MEMORY. */
spw_status spw__chunk_files_write(spw__chunk_files *files, const spw__spill_part *parts,
                                  size_t count, uint64_t size, uint32_t chunks,
                                  spw__batch **ret_batch, spw_error *error);
/* Read size bytes from offset of a batch on: whole pages into whole pages, of
 * SPW__DIRECT_BYTES each. Thread: any; blocks. Errors: IO, CORRUPT (the file has lost
 * its end). */
spw_status spw__chunk_files_read(spw__chunk_files *files, const spw__batch *batch,
                                 uint64_t offset, void *data, size_t size,
                                 spw_error *error);
/* A chunk, size bytes from offset on, is wanted no more. Takes: batch, with its last
 * chunk. Thread: any; asks the file system. */
void spw__chunk_files_release(spw__chunk_files *files, spw__batch *batch,
                              uint64_t offset, uint64_t size);
/* Thread: any. */
void spw__chunk_files_read_figures(spw__chunk_files *files,
                                   spw__chunk_files_figures *ret_figures);

#endif
