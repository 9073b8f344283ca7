/* Past the cache: step by step, so that a slow disk is noticed on the way. */
#include "memory/past_cache.h"

#include "platform/clock.h"
#include "spillway/buffer.h"

/* Stays in the processor's cache. As long as it writes, a thread has so much. */
enum { THROUGH_BYTES = 4 << 20 };

int spw__write_past_cache(spw_context *context, int descriptor,
                          const spw__spill_part *parts, size_t count, uint64_t offset,
                          spw__disk_speed *speed)
{
    spw_buffer *buffer;
    if (spw_buffer_create(context, THROUGH_BYTES + SPW__DIRECT_BYTES,
                          SPW_CHARGE_SPILLING, &buffer, NULL) != SPW_STATUS_OK)
        return spw__spill_file_write(descriptor, parts, count, offset);
    char *through = spw_buffer_data(buffer);
    through += -(uintptr_t)through % SPW__DIRECT_BYTES;
    spw__direct_write write;
    spw__direct_write_begin(&write, descriptor, parts, count, offset, through,
                            THROUGH_BYTES);
    uint64_t before = spw__clock_ns(), now;
    int answer;
    while ((answer = spw__direct_write_step(&write)) > 0) {
        now = spw__clock_ns();
        spw__disk_wrote(speed, (uint64_t)answer, now - before, spw__clock_ms());
        before = now;
        if (!spw__disk_is_fast(speed, spw__clock_ms()))
            spw__direct_write_end(&write);
    }
    spw__direct_write_end(&write);
    spw_buffer_unref(buffer);
    return answer;
}
