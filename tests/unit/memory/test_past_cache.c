#include "memory/past_cache.h"

#include <stdlib.h>
#include <string.h>

#include "counted_context.h"
#include "platform/regular_file.h"
#include "private_place.h"
#include "testing.h"
#include "wire_bytes.h"

enum { FIRST = 4096 + 77, SECOND = 9 << 20 };

static void check(counted_context *counted, int descriptor, const wire_bytes *bytes,
                  spw__disk_speed *speed)
{
    const spw__spill_part parts[] = {{bytes->bytes, FIRST},
                                     {bytes->bytes + FIRST, SECOND}};
    uint8_t *back = malloc(FIRST + SECOND);
    assert_non_null(back);
    assert_int_equal(
        spw__write_past_cache(counted->context, descriptor, parts, 2, 4096, speed), 0);
    assert_int_equal(spw__spill_file_read(descriptor, back, FIRST + SECOND, 4096), 0);
    assert_memory_equal(back, bytes->bytes, FIRST + SECOND);
    free(back);
}

static void all_parts_are_written(void **state)
{
    (void)state;
    counted_context counted;
    private_place place;
    wire_bytes bytes = {0};
    spw__disk_speed speed = {0};
    counted_context_open(&counted, 0, 0);
    private_place_open(&place);
    wire_put_noise(&bytes, FIRST + SECOND, 7);
    int descriptor = spw__spill_file_create(place.directory);
    assert_true(descriptor >= 0);
    check(&counted, descriptor, &bytes, &speed);
    /* A disk that was found to be slow, and no memory to go past the cache. */
    spw__disk_wrote(&speed, 0, 1000000000, 1);
    check(&counted, descriptor, &bytes, &speed);
    counted_context_fail_at(&counted, 1);
    check(&counted, descriptor, &bytes, &speed);
    spw__regular_file_close(descriptor);
    wire_clear(&bytes);
    private_place_close(&place);
    counted_context_close(&counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_parts_are_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
