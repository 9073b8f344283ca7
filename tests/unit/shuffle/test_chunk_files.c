#include "shuffle/chunk_files.h"

#include <errno.h>
#include <string.h>

#include "io_fault.h"
#include "private_place.h"
#include "torture.h"
#include "wire_bytes.h"

enum { SIZE = 20480 };

typedef struct disk {
    private_place place;
    spw__chunk_files *files;
    wire_bytes bytes;
    spw__spill_part part;
} disk;

static void open_disk(torture *t, disk *d)
{
    *d = (disk){0};
    private_place_open(&d->place);
    wire_put_noise(&d->bytes, SIZE, 3);
    d->part = (spw__spill_part){d->bytes.bytes, SIZE};
    const spw_partitions_directory directory = {.path = d->place.directory};
    assert_ok(spw__chunk_files_create(t->context, &directory, 1, &d->files, &t->error));
}

static void close_disk(disk *d)
{
    spw__chunk_files_free(d->files);
    wire_clear(&d->bytes);
    private_place_close(&d->place);
}

static uint64_t used(const disk *d)
{
    spw__chunk_files_figures figures;
    spw__chunk_files_read_figures(d->files, &figures);
    return figures.used_bytes;
}

static spw__batch *write_batch(torture *t, disk *d, uint32_t chunks)
{
    spw__batch *batch = NULL;
    assert_ok(
        spw__chunk_files_write(d->files, &d->part, 1, SIZE, chunks, &batch, &t->error));
    return batch;
}

static void check(torture *t, disk *d, const spw__batch *batch, uint64_t from,
                  size_t size)
{
    static _Alignas(SPW__DIRECT_BYTES) uint8_t back[SIZE];
    assert_ok(spw__chunk_files_read(d->files, batch, from, back, size, &t->error));
    assert_memory_equal(back, d->bytes.bytes + from, size);
}

/* Whole pages of neighbours once they are some MiB, or when another one comes that is
 * no neighbour; and what is left with the last of them. */
static void space_comes_back_by_chunks(void **state)
{
    enum { CHUNKS = 12 };
    static const int ORDER[CHUNKS] = {0, 1, 2, 3, 5, 4, 6, 7, 11, 8, 10, 9};
    static const uint64_t USED[CHUNKS] = {12, 12, 12, 8, 8, 8, 8, 4, 4, 3, 2, 0};
    static uint8_t bytes[CHUNKS << 20];
    const spw__spill_part part = {bytes, sizeof bytes};
    torture *t = *state;
    disk d;
    open_disk(t, &d);
    spw__batch *other = write_batch(t, &d, 1), *batch;
    assert_ok(spw__chunk_files_write(d.files, &part, 1, sizeof bytes, CHUNKS, &batch,
                                     &t->error));
    for (int i = 0; i < CHUNKS; i++) {
        spw__chunk_files_release(d.files, batch, (uint64_t)ORDER[i] << 20, 1 << 20);
        assert_int_equal(used(&d), SIZE + (USED[i] << 20));
    }
    check(t, &d, other, 0, SIZE);
    spw__chunk_files_release(d.files, other, 0, SIZE);
    assert_int_equal(used(&d), 0);
    close_disk(&d);
}

/* What failed in the middle is written over, and counts for nothing. */
static void what_was_not_written_takes_no_room(void **state)
{
    torture *t = *state;
    disk d;
    spw__batch *batch = NULL;
    open_disk(t, &d);
    spw__batch *first = write_batch(t, &d, 1);
    io_fault_arm_call("spill_write", 1, EIO);
    assert_status(
        spw__chunk_files_write(d.files, &d.part, 1, SIZE, 1, &batch, &t->error), IO);
    assert_null(batch);
    assert_non_null(strstr(t->error.message, d.place.directory));
    assert_int_equal(used(&d), 20480);
    spw__batch *second = write_batch(t, &d, 1);
    check(t, &d, first, 0, SIZE);
    check(t, &d, second, 0, SIZE);
    spw__chunk_files_release(d.files, first, 0, SIZE);
    check(t, &d, second, 0, SIZE);
    spw__chunk_files_release(d.files, second, 0, SIZE);
    close_disk(&d);
}

static void directories_without_a_path_are_refused(void **state)
{
    torture *t = *state;
    spw__chunk_files *files = NULL;
    const spw_partitions_directory none[] = {{.path = ""}, {.path = NULL}};
    for (size_t i = 0; i < COUNT_OF(none); i++)
        assert_status(
            spw__chunk_files_create(t->context, &none[i], 1, &files, &t->error),
            INVALID_ARGUMENT);
    assert_status(spw__chunk_files_create(t->context, none, 0, &files, &t->error),
                  INVALID_ARGUMENT);
    assert_null(files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(space_comes_back_by_chunks),
        SCENARIO(what_was_not_written_takes_no_room),
        SCENARIO(directories_without_a_path_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
