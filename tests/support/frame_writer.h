/* Compressed frames for tests, in the shape in which Dask's peers send them. */
#ifndef TEST_FRAME_WRITER_H
#define TEST_FRAME_WRITER_H

#include "spillway/payload.h"

/* bytes is a heap block of exactly size bytes, so that AddressSanitizer sees a read
 * past the frame's end. */
typedef struct codec_frame {
    unsigned char *bytes;
    size_t size;
} codec_frame;

codec_frame frame_write(spw_codec_id codec, const void *plain, size_t plain_size);
/* A zstd frame that does not say its size. */
codec_frame frame_write_zstd_unsized(const void *plain, size_t plain_size);
/* The first size bytes of a frame, in a block of their own. */
codec_frame frame_cut(const codec_frame *whole, size_t size);
/* Two frames' bytes, one after the other. */
codec_frame frame_join(const codec_frame *first, const codec_frame *second);
void frame_clear(codec_frame *frame);

#endif
