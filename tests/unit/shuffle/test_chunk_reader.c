#include "shuffle/chunk_reader.h"

#include "disk_fault.h"
#include "private_place.h"
#include "torture.h"
#include "wire_bytes.h"

enum { LEAD = 1000, SIZE = 50000, ALL = 53248 }; /* ALL: in whole pages */

typedef struct disk {
    private_place place;
    spw__chunk_files *files;
    wire_bytes bytes;
    spw__chunk chunk; /* behind LEAD bytes of another */
} disk;

static void open_disk(torture *t, disk *d)
{
    *d = (disk){0};
    private_place_open(&d->place);
    wire_put_noise(&d->bytes, ALL, 9);
    const spw_partitions_directory directory = {.path = d->place.directory};
    const spw__spill_part part = {d->bytes.bytes, ALL};
    assert_ok(spw__chunk_files_create(t->context, &directory, 1, &d->files, &t->error));
    d->chunk = (spw__chunk){.offset = LEAD, .size = SIZE};
    d->chunk.checksum = spw__checksum(d->bytes.bytes + LEAD, SIZE);
    assert_ok(
        spw__chunk_files_write(d->files, &part, 1, ALL, 1, &d->chunk.batch, &t->error));
}

static void close_disk(disk *d)
{
    spw__chunk_files_release(d->files, d->chunk.batch, 0, ALL);
    spw__chunk_files_free(d->files);
    wire_clear(&d->bytes);
    private_place_close(&d->place);
}

/* In steps that fit the window, end with it, go over it, and are larger than it. */
static spw_status read_through(torture *t, disk *d, uint64_t step, uint64_t window)
{
    spw__chunk_reader reader = {.chunk = &d->chunk};
    spw_status status = SPW_STATUS_OK;
    for (uint64_t at = 0; at < SIZE && status == SPW_STATUS_OK; at += step) {
        const void *data = NULL;
        uint64_t size = step < SIZE - at ? step : SIZE - at;
        status = spw__chunk_reader_next(&reader, t->context, d->files, size, window,
                                        &data, &t->error);
        if (status == SPW_STATUS_OK)
            assert_memory_equal(data, d->bytes.bytes + LEAD + at, size);
    }
    spw__chunk_reader_clear(&reader);
    return status;
}

static void windows_go_on_where_the_last_one_ended(void **state)
{
    static const uint64_t STEPS[] = {8, 96, 1000, 4096, 7777, SIZE};
    static const uint64_t WINDOWS[] = {1, 1000, 4096, 10000, 2 * SIZE};
    torture *t = *state;
    disk d;
    open_disk(t, &d);
    for (size_t i = 0; i < COUNT_OF(STEPS); i++)
        for (size_t k = 0; k < COUNT_OF(WINDOWS); k++)
            assert_ok(read_through(t, &d, STEPS[i], WINDOWS[k]));
    close_disk(&d);
}

static void a_bit_that_is_wrong_is_found(void **state)
{
    torture *t = *state;
    disk d;
    open_disk(t, &d);
    for (uint64_t n = 1; n <= 5; n++) {
        /* Behind what of its page is another's. */
        disk_fault_corrupt(n, 4095 * 8 + n);
        spw__chunk_reader reader = {.chunk = &d.chunk};
        spw_status status = SPW_STATUS_OK;
        const void *data;
        for (int i = 0; i < 5 && status == SPW_STATUS_OK; i++)
            status = spw__chunk_reader_next(&reader, t->context, d.files, SIZE / 5, 1,
                                            &data, &t->error);
        assert_status(status, CORRUPT);
        spw__chunk_reader_clear(&reader);
    }
    assert_ok(read_through(t, &d, SIZE, SIZE));
    close_disk(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(windows_go_on_where_the_last_one_ended),
        SCENARIO(a_bit_that_is_wrong_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
