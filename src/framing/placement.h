/* Where the frames of one message go. The reader asks for the next frame's place when
 * it gets there, and tells when a sub-header has been read, from which the places of
 * the frames behind it follow. */
#ifndef SPW_FRAMING_PLACEMENT_H
#define SPW_FRAMING_PLACEMENT_H

#include "framing/sub_header.h"
#include "memory/value_sink.h"

typedef struct spw__placement {
    spw_context *context; /* borrowed */
    spw_sink sink;
    /* The message: lengths of its frames (borrowed from the reader). */
    const uint64_t *lengths;
    uint64_t frames;
    spw_payload *payload; /* one slice for each frame placed so far */
    /* What the sink reserved; one reference each. */
    spw_slice *regions;
    size_t region_count, region_capacity;
    /* The region that small frames share, and how much of it is used. */
    spw_buffer *shared; /* borrowed from regions */
    uint64_t shared_used, shared_size;
    uint64_t small_alone; /* small buffers that got a region of their own */
    /* The chain of sub-headers: the frame at which the next one stands, or no frame
     * when the chain does not parse and the rest is placed plainly. */
    uint64_t next_header;
    spw__sub_header header; /* scratch */
    /* Of the message under way, or of the next; NULL: values go to memory. */
    spw_value_sink *values;
    spw__place *place; /* of the value that is being placed; NULL: none */
    /* The value that is going to disk: its first frame, and the one behind its last.
     * Equal: none is. */
    uint64_t disk_first, disk_end;
    const spw_slice *disk_slices; /* borrowed from its file */
} spw__placement;

/* Begin a message of frames lengths. Borrows: lengths until the message ends.
 * Errors: NO_MEMORY. */
spw_status spw__placement_begin(spw__placement *placement, const uint64_t *lengths,
                                uint64_t frames, spw_error *error);
/* Make sure that frame (the first that has none) has a place.
 * Errors: NO_MEMORY, LIMIT_EXCEEDED, what the sink answers. */
spw_status spw__placement_place(spw__placement *placement, uint64_t frame,
                                spw_error *error);
/* Ask a sink where the values of this message go, or of the next; a sink that there was
 * is freed. It is freed with the message. Takes: values. */
void spw__placement_ask(spw__placement *placement, spw_value_sink *values);
/* frame has been read. If it is a sub-header, place what it announces.
 * Errors: as place, and AGAIN: the sink has to be waited for, and then asked again by
 * the same call. */
spw_status spw__placement_frame_read(spw__placement *placement, uint64_t frame,
                                     spw_error *error);
/* Whether frame, which has a place, goes to disk: through the window, which is of the
 * first such frame that is not full. Errors: those of spw__value_sink_ops. */
bool spw__placement_is_on_disk(const spw__placement *placement, uint64_t frame);
spw_status spw__placement_window(spw__placement *placement, void **ret_data,
                                 size_t *ret_size, spw_error *error);
void spw__placement_wrote(spw__placement *placement, size_t size);
/* Whether frame, which has a place, has a region to itself. */
bool spw__placement_is_alone(const spw__placement *placement, uint64_t frame);
/* Let frame, which is alone, be buffer, and give up its region. Takes: buffer, of the
 * frame's size. */
void spw__placement_replace(spw__placement *placement, uint64_t frame,
                            spw_buffer *buffer);
/* The message is whole: commit its regions. Returns: its payload, the caller's. */
spw_payload *spw__placement_commit(spw__placement *placement);
/* Give up the message, if there is one. */
void spw__placement_abort(spw__placement *placement);
/* Give back everything, scratch included. */
void spw__placement_clear(spw__placement *placement);

#endif
