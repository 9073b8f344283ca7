/* Direct I/O. Memory of others lies anywhere, and a disk takes it from boundaries only:
 * what is written passes through a buffer that lies on one, which stays in the
 * processor's cache and costs a twentieth of what a page of the system's does. What is
 * read is placed right from the start. */
#include "platform/direct_file.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "platform/regular_file.h"

static const size_t BOUNDARY = SPW__DIRECT_BYTES;

static void take(spw__direct_write *write, size_t size)
{
    for (char *to = write->through; size > 0;) {
        size_t left = write->parts->size - write->skipped;
        size_t step = left < size ? left : size;
        memcpy(to, (const char *)write->parts->data + write->skipped, step);
        to += step;
        size -= step;
        write->skipped += step;
        if (write->skipped == write->parts->size) {
            write->parts++;
            write->skipped = 0;
        }
    }
}

/* How much of what is left, at a place in the file, is one step: what shares its page
 * with others; or whole pages, and then ret_is_whole. */
static size_t next_step(uint64_t at, uint64_t left, size_t most, bool *ret_is_whole)
{
    size_t in_page = (size_t)(at % BOUNDARY);
    *ret_is_whole = in_page == 0 && left >= BOUNDARY;
    uint64_t step = *ret_is_whole ? left - left % BOUNDARY : BOUNDARY - in_page;
    step = step < left ? step : left;
    return step < most ? (size_t)step : most;
}

void spw__direct_write_begin(spw__direct_write *write, int descriptor,
                             const spw__spill_part *parts, size_t count,
                             uint64_t offset, void *through, size_t through_size)
{
    *write = (spw__direct_write){.descriptor = descriptor,
                                 .direct = spw__spill_file_open_direct(descriptor),
                                 .parts = parts,
                                 .offset = offset,
                                 .through = through,
                                 .through_size = through_size};
    for (size_t i = 0; i < count; i++)
        write->left += parts[i].size;
}

int spw__direct_write_step(spw__direct_write *write)
{
    bool is_whole;
    int answer = -EINVAL;
    if (write->left == 0)
        return 0;
    size_t step = next_step(write->offset, write->left, write->through_size, &is_whole);
    take(write, step);
    spw__spill_part part = {.data = write->through, .size = step};
    if (is_whole && write->direct >= 0)
        answer = spw__spill_file_write(write->direct, &part, 1, write->offset);
    if (answer == -EINVAL) /* or the disk asks for more than we know of */
        answer = spw__spill_file_write(write->descriptor, &part, 1, write->offset);
    if (answer < 0)
        return answer;
    write->offset += step;
    write->left -= step;
    return (int)step;
}

void spw__direct_write_end(spw__direct_write *write)
{
    if (write->direct >= 0)
        spw__regular_file_close(write->direct);
    write->direct = -EINVAL;
}

int spw__direct_file_read(int descriptor, void *data, size_t size, uint64_t offset)
{
    int direct = -EINVAL, answer = 0;
    if ((uintptr_t)data % BOUNDARY == offset % BOUNDARY)
        direct = spw__spill_file_open_direct(descriptor);
    if (direct < 0)
        return spw__spill_file_read(descriptor, data, size, offset);
    for (size_t done = 0; done < size && answer >= 0;) {
        bool is_whole;
        char *to = (char *)data + done;
        size_t step = next_step(offset + done, size - done, size, &is_whole);
        answer =
            is_whole ? spw__spill_file_read(direct, to, step, offset + done) : -EINVAL;
        if (answer == -EINVAL)
            answer = spw__spill_file_read(descriptor, to, step, offset + done);
        done += step;
    }
    spw__regular_file_close(direct);
    return answer;
}
