#include "disk_fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "io_fault_calls.h"
#include "platform/regular_file.h"
#include "platform/spill_file.h"

enum { DESCRIPTORS_MAX = 1 << 16 };

static _Atomic bool is_ours[DESCRIPTORS_MAX];
static struct {
    _Atomic uint64_t room; /* bytes */
    _Atomic uint64_t reads, corrupt_at, corrupt_bit, cut_at;
    unsigned ways;
    void (*function)(void *argument, disk_fault_way way);
    void *argument;
} disk = {.room = UINT64_MAX};

static struct {
    _Atomic uint64_t creates, creates_failed, writes, writes_failed, writes_full, reads,
        reads_failed, reads_cut, reads_corrupt;
} figures;

disk_fault_figures disk_fault_read_figures(void)
{
    return (disk_fault_figures){
        figures.creates,       figures.creates_failed, figures.writes,
        figures.writes_failed, figures.writes_full,    figures.reads,
        figures.reads_failed,  figures.reads_cut,      figures.reads_corrupt};
}

void disk_fault_reset(void)
{
    disk_fault_room(UINT64_MAX);
    disk_fault_corrupt(0, 0);
    disk_fault_cut(0);
    disk_fault_during(0, NULL, NULL);
}

void disk_fault_room(uint64_t bytes)
{
    disk.room = bytes;
}

void disk_fault_corrupt(uint64_t n, uint64_t bit)
{
    disk.corrupt_at = n == 0 ? 0 : disk.reads + n;
    disk.corrupt_bit = bit;
}

void disk_fault_cut(uint64_t n)
{
    disk.cut_at = n == 0 ? 0 : disk.reads + n;
}

void disk_fault_during(unsigned ways,
                       void (*function)(void *argument, disk_fault_way way),
                       void *argument)
{
    disk.ways = ways;
    disk.function = function;
    disk.argument = argument;
}

static void let_others_act(disk_fault_way way)
{
    if ((disk.ways & way) != 0)
        disk.function(disk.argument, way);
}

static int count_open(int answer)
{
    if (answer >= DESCRIPTORS_MAX)
        abort(); /* more than a test may have */
    if (answer >= 0) {
        is_ours[answer] = true;
        io_fault_descriptor(1);
    }
    return answer;
}

int __real_spw__spill_file_create(const char *directory);
int __wrap_spw__spill_file_create(const char *directory);
int __wrap_spw__spill_file_create(const char *directory)
{
    size_t limit;
    int answer = io_fault_enter(CALL_SPILL_CREATE, &limit);
    figures.creates++;
    figures.creates_failed += answer != 0;
    let_others_act(DISK_FAULT_CREATING);
    if (answer == 0)
        answer = __real_spw__spill_file_create(directory);
    return count_open(answer);
}

int __real_spw__spill_file_reopen(int descriptor);
int __wrap_spw__spill_file_reopen(int descriptor);
int __wrap_spw__spill_file_reopen(int descriptor)
{
    size_t limit;
    int answer = io_fault_enter(CALL_SPILL_REOPEN, &limit);
    let_others_act(DISK_FAULT_REOPENING);
    if (answer == 0)
        answer = __real_spw__spill_file_reopen(descriptor);
    return count_open(answer);
}

/* Only spill files count: others were opened by whoever tests. */
void __real_spw__regular_file_close(int descriptor);
void __wrap_spw__regular_file_close(int descriptor);
void __wrap_spw__regular_file_close(int descriptor)
{
    if (descriptor >= 0 && descriptor < DESCRIPTORS_MAX &&
        atomic_exchange(&is_ours[descriptor], false))
        io_fault_descriptor(-1);
    __real_spw__regular_file_close(descriptor);
}

/* Returns: how many of wanted bytes the disk takes. */
static uint64_t take_room(uint64_t wanted)
{
    uint64_t room = disk.room, taken;
    do {
        if (room == UINT64_MAX)
            return wanted;
        taken = wanted < room ? wanted : room;
    } while (!atomic_compare_exchange_weak(&disk.room, &room, room - taken));
    return taken;
}

/* Half, of what goes past the cache in such a piece as may. */
static uint64_t half_of(uint64_t bytes)
{
    uint64_t half = bytes / 2;
    return half < SPW__DIRECT_BYTES ? half : half - half % SPW__DIRECT_BYTES;
}

/* The parts between two bytes of them. Returns: how many. */
static size_t between(const spw__spill_part *parts, size_t count, uint64_t from,
                      uint64_t to, spw__spill_part *ret_parts)
{
    size_t used = 0;
    uint64_t begin = 0;
    for (size_t i = 0; i < count; begin += parts[i].size, i++) {
        uint64_t end = begin + parts[i].size;
        uint64_t first = from > begin ? from : begin, last = to < end ? to : end;
        if (first < last)
            ret_parts[used++] =
                (spw__spill_part){.data = (const char *)parts[i].data + (first - begin),
                                  .size = (size_t)(last - first)};
    }
    return used;
}

int __real_spw__spill_file_write(int descriptor, const spw__spill_part *parts,
                                 size_t count, uint64_t offset);
int __wrap_spw__spill_file_write(int descriptor, const spw__spill_part *parts,
                                 size_t count, uint64_t offset);
int __wrap_spw__spill_file_write(int descriptor, const spw__spill_part *parts,
                                 size_t count, uint64_t offset)
{
    size_t limit;
    int fault = io_fault_enter(CALL_SPILL_WRITE, &limit);
    spw__spill_part *some = malloc((count + 1) * sizeof *some);
    if (some == NULL)
        abort();
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++)
        total += parts[i].size;
    uint64_t end = fault != 0 ? 0 : take_room(total), half = half_of(end);
    figures.writes++;
    figures.writes_failed += fault != 0;
    figures.writes_full += fault == 0 && end < total;
    int answer = __real_spw__spill_file_write(
        descriptor, some, between(parts, count, 0, half, some), offset);
    let_others_act(DISK_FAULT_WRITING);
    if (answer == 0)
        answer = __real_spw__spill_file_write(
            descriptor, some, between(parts, count, half, end, some), offset + half);
    free(some);
    if (fault != 0)
        return fault;
    return answer == 0 && end < total ? -ENOSPC : answer;
}

int __real_spw__spill_file_read(int descriptor, void *data, size_t size,
                                uint64_t offset);
int __wrap_spw__spill_file_read(int descriptor, void *data, size_t size,
                                uint64_t offset);
int __wrap_spw__spill_file_read(int descriptor, void *data, size_t size,
                                uint64_t offset)
{
    size_t limit, half = (size_t)half_of(size);
    int answer = io_fault_enter(CALL_SPILL_READ, &limit);
    uint64_t n = ++disk.reads;
    figures.reads++;
    figures.reads_failed += answer != 0;
    if (answer == 0)
        answer = __real_spw__spill_file_read(descriptor, data, half, offset);
    let_others_act(DISK_FAULT_READING);
    if (answer == 0 && n == disk.cut_at) {
        figures.reads_cut++;
        answer = -ENODATA;
    }
    if (answer == 0)
        answer = __real_spw__spill_file_read(descriptor, (char *)data + half,
                                             size - half, offset + half);
    if (answer == 0 && n == disk.corrupt_at && size > 0) {
        figures.reads_corrupt++;
        uint64_t bit = disk.corrupt_bit % ((uint64_t)size * 8);
        ((unsigned char *)data)[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    return answer;
}
