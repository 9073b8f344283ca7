#include "framing/placement.h"

#include <stdlib.h>
#include <string.h>

#include "choosy_sink.h"
#include "context/figures.h"
#include "counted_context.h"
#include "testing.h"
#include "torture.h"
#include "wire_bytes.h"

enum { FRAMES_MAX = 32 };

/* Everything that a message's frames go through, without a reader. */
typedef struct fixture {
    counted_context counted;
    choosy_sink choosy;
    spw__placement placement;
    wire_bytes frames[FRAMES_MAX];
    uint64_t lengths[FRAMES_MAX];
    size_t count;
} fixture;

static int set_up(void **state)
{
    fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    counted_context_open(&at->counted, 0, 0);
    at->placement.context = at->counted.context;
    at->placement.sink = choosy_sink_over(&at->choosy, at->counted.context);
    *state = at;
    return 0;
}

static int tear_down(void **state)
{
    fixture *at = *state;
    spw__placement_clear(&at->placement);
    assert_int_equal(at->choosy.committed + at->choosy.aborted, at->choosy.reserved);
    counted_context_close(&at->counted);
    for (size_t i = 0; i < FRAMES_MAX; i++)
        wire_clear(&at->frames[i]);
    free(at);
    return 0;
}

static void add_noise(fixture *at, size_t size)
{
    wire_put_noise(&at->frames[at->count++], size, (unsigned)size + 1);
}

/* A sub-header and the bodies behind it: size bytes for each sub-frame. */
static void add_value(fixture *at, const size_t *shards, size_t buffers,
                      const char *const *compression, const size_t *sizes, size_t count)
{
    wire_put_sub_header(&at->frames[at->count++],
                        &(wire_value){shards, buffers, compression, count});
    for (size_t i = 0; i < count; i++)
        add_noise(at, sizes[i]);
}

static spw_status play(fixture *at, spw_error *error)
{
    for (size_t i = 0; i < at->count; i++)
        at->lengths[i] = at->frames[i].size;
    spw_status status =
        spw__placement_begin(&at->placement, at->lengths, at->count, error);
    for (size_t i = 0; i < at->count && status == SPW_STATUS_OK; i++) {
        status = spw__placement_place(&at->placement, i, error);
        if (status != SPW_STATUS_OK)
            break;
        const spw_slice *slice = &spw_payload_slices(at->placement.payload)[i];
        assert_int_equal(slice->size, at->frames[i].size);
        if (slice->size > 0)
            memcpy(spw_slice_data(slice), at->frames[i].bytes, slice->size);
        status = spw__placement_frame_read(&at->placement, i, error);
    }
    return status;
}

static const spw_slice *slice_at(const fixture *at, size_t frame)
{
    return &spw_payload_slices(at->placement.payload)[frame];
}

static bool is_alone(const fixture *at, size_t frame, size_t count)
{
    uint64_t size = 0;
    for (size_t i = frame; i < frame + count; i++)
        size += at->frames[i].size;
    return spw_buffer_size(slice_at(at, frame)->buffer) == size;
}

static bool follows(const fixture *at, size_t frame)
{
    const spw_slice *before = slice_at(at, frame - 1), *slice = slice_at(at, frame);
    return slice->buffer == before->buffer &&
           slice->offset == before->offset + before->size;
}

static bool is_aligned(const fixture *at, size_t frame)
{
    return (uintptr_t)spw_slice_data(slice_at(at, frame)) % SPW_BUFFER_ALIGNMENT == 0;
}

/* What a buffer has beside its frames, from the place on that the sink gave, is zero:
 * nothing of what its memory held before can be seen. */
static void check_gaps(const fixture *at, const spw_buffer *buffer)
{
    size_t size = spw_buffer_size(buffer);
    bool *is_written = calloc(size + 1, sizeof *is_written);
    assert_non_null(is_written);
    for (size_t i = 0; i < at->count; i++)
        for (size_t k = 0;
             slice_at(at, i)->buffer == buffer && k < slice_at(at, i)->size; k++)
            is_written[slice_at(at, i)->offset + k] = true;
    for (size_t k = at->choosy.lead_bytes; k < size; k++)
        if (!is_written[k])
            assert_int_equal(((const char *)spw_buffer_data(buffer))[k], 0);
    free(is_written);
}

/* The content is all there, and every frame is its own or follows another's end. */
static void check_content(const fixture *at)
{
    assert_int_equal(spw_payload_count(at->placement.payload), at->count);
    for (size_t i = 0; i < at->count; i++) {
        if (at->frames[i].size > 0)
            assert_memory_equal(spw_slice_data(slice_at(at, i)), at->frames[i].bytes,
                                at->frames[i].size);
        assert_int_equal(slice_at(at, i)->flags, SPW_SLICE_WRITEABLE);
        assert_int_equal(slice_at(at, i)->plain_size, at->frames[i].size);
        assert_true(is_aligned(at, i) || follows(at, i));
        if (i == 0 || slice_at(at, i)->buffer != slice_at(at, i - 1)->buffer)
            check_gaps(at, slice_at(at, i)->buffer);
    }
}

enum { SHARD = 8192 };
static const size_t TWO_SHARDS[] = {SHARD, SHARD};

static void one_buffer_in_two_shards_is_one_region(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 2));
    assert_true(follows(at, 3));
    assert_int_equal(at->choosy.reserved, 2); /* the shared region and the buffer's */
}

static void two_buffers_of_the_same_lengths_are_two_regions(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){1, 1}, 2, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 1));
    assert_true(is_alone(at, 3, 1));
    assert_true(is_aligned(at, 3));
    assert_int_equal(at->choosy.reserved, 3);
}

static void two_values_have_two_regions(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    for (int i = 0; i < 2; i++)
        add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 2) && follows(at, 3));
    assert_true(is_alone(at, 5, 2) && follows(at, 6));
    assert_int_equal(at->choosy.reserved, 3);
}

static void what_is_no_sub_header_gets_plain_placement(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    wire_put_string(&at->frames[at->count++], "not a sub-header");
    add_noise(at, SHARD);
    add_noise(at, SHARD);
    /* The chain is lost: this header is not looked for any more. */
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    check_content(at);
    static const size_t PLAIN[] = {2, 3, 5, 6};
    for (size_t i = 0; i < 4; i++)
        assert_true(is_alone(at, PLAIN[i], 1) && is_aligned(at, PLAIN[i]));
}

static void a_value_without_split_keys_gets_plain_placement(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, NULL, 0, NULL, TWO_SHARDS, 2);
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 1) && is_alone(at, 3, 1));
    assert_true(is_alone(at, 5, 2)); /* and the chain goes on behind it */
}

static void an_impossible_count_gets_plain_placement(void **state)
{
    fixture *at = *state;
    static const uint64_t CLAIMS[] = {3, 1000, UINT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        at->count = 0;
        for (size_t frame = 0; frame < FRAMES_MAX; frame++)
            wire_clear(&at->frames[frame]);
        add_noise(at, 50);
        wire_bytes *header = &at->frames[at->count++];
        wire_put_map(header, 1);
        wire_put_string(header, "num-sub-frames");
        wire_put_unsigned(header, CLAIMS[i]);
        add_noise(at, SHARD);
        add_noise(at, SHARD);
        size_t before = at->choosy.reserved;
        assert_ok(play(at, NULL));
        check_content(at);
        assert_true(is_alone(at, 2, 1) && is_alone(at, 3, 1));
        assert_int_equal(at->choosy.reserved - before, 3);
        spw__placement_abort(&at->placement);
    }
}

static void compressed_shards_are_each_on_their_own(void **state)
{
    fixture *at = *state;
    static const size_t SIZES[] = {5000, 6000, 7000, 8000, 100, 200};
    static const char *const NAMES[] = {"lz4", "lz4", NULL, NULL, NULL, "lz4"};
    add_noise(at, 50);
    add_value(at, (size_t[]){2, 2, 2}, 3, NAMES, SIZES, 6);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 1) && is_alone(at, 3, 1));
    assert_true(is_alone(at, 4, 2) && follows(at, 5));
    assert_true(is_aligned(at, 6) && is_aligned(at, 7)); /* small, in a shared region */
}

static void frames_that_are_no_buffers_share_aligned_places(void **state)
{
    fixture *at = *state;
    static const size_t SIZES[] = {1, 64, 0, 65, 4095, 0, 7};
    for (size_t i = 0; i < 7; i++)
        add_noise(at, SIZES[i]);
    assert_ok(play(at, NULL));
    check_content(at);
    for (size_t i = 0; i < at->count; i++) {
        assert_true(is_aligned(at, i));
        assert_ptr_equal(slice_at(at, i)->buffer, slice_at(at, 0)->buffer);
    }
    assert_int_equal(at->choosy.reserved, 1);
}

static void a_few_small_buffers_are_each_alone(void **state)
{
    fixture *at = *state;
    static const size_t SIZES[] = {1, 64, 0, 65, 4095};
    add_noise(at, 50);
    add_value(at, (size_t[]){1, 1, 1, 1, 1}, 5, NULL, SIZES, 5);
    assert_ok(play(at, NULL));
    check_content(at);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(is_alone(at, 2 + i, 1), SIZES[i] > 0);
    assert_ptr_equal(slice_at(at, 1)->buffer, slice_at(at, 0)->buffer);
    assert_int_equal(at->choosy.reserved, 1 + 4);
}

enum { MANY = 20 };

/* One value of many small buffers. */
static void add_many_small(fixture *at)
{
    size_t shards[MANY], sizes[MANY];
    for (size_t i = 0; i < MANY; i++) {
        shards[i] = 1;
        sizes[i] = 100;
    }
    add_noise(at, 50);
    add_value(at, shards, MANY, NULL, sizes, MANY);
}

static void many_small_buffers_share(void **state)
{
    fixture *at = *state;
    add_many_small(at);
    assert_ok(play(at, NULL));
    check_content(at);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(is_alone(at, 2 + i, 1), i < 16);
    assert_ptr_equal(slice_at(at, 2 + 16)->buffer, slice_at(at, 0)->buffer);
    assert_int_equal(at->choosy.reserved, 1 + 16);
}

static void the_next_message_has_its_own_few(void **state)
{
    fixture *at = *state;
    add_many_small(at);
    for (int i = 0; i < 2; i++) {
        assert_ok(play(at, NULL));
        assert_true(is_alone(at, 2, 1));
        spw_payload_free(spw__placement_commit(&at->placement));
    }
}

static void small_shards_of_one_buffer_lie_side_by_side(void **state)
{
    fixture *at = *state;
    static const size_t SIZES[] = {10, 10, 3, 20};
    add_noise(at, 50);
    add_value(at, (size_t[]){3, 1}, 2, NULL, SIZES, 4);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_aligned(at, 2) && follows(at, 3) && follows(at, 4));
    assert_true(is_aligned(at, 5));
}

static void a_large_buffer_of_small_shards_is_alone(void **state)
{
    fixture *at = *state;
    static const size_t SIZES[] = {1500, 1500, 1500};
    add_noise(at, 50);
    add_value(at, (size_t[]){3}, 1, NULL, SIZES, 3);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 3));
}

static void the_border_between_small_and_large(void **state)
{
    fixture *at = *state;
    add_noise(at, 4095);
    add_noise(at, 4096);
    add_noise(at, 10);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_false(is_alone(at, 0, 1));
    assert_true(is_alone(at, 1, 1));
}

static void a_frame_of_nothing_has_a_place(void **state)
{
    fixture *at = *state;
    for (int i = 0; i < 3; i++)
        add_noise(at, 0);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_int_equal(at->choosy.reserved, 1);
}

static void shared_regions_are_limited(void **state)
{
    fixture *at = *state;
    for (int i = 0; i < FRAMES_MAX; i++)
        add_noise(at, 4000);
    assert_ok(play(at, NULL));
    check_content(at);
    for (size_t i = 0; i < at->count; i++)
        assert_in_range(spw_buffer_size(slice_at(at, i)->buffer), 4000, 65536);
    /* 16 frames on 4,032 bytes to a region of 64 KiB. */
    assert_int_equal(at->choosy.reserved, 2);
    assert_int_equal(at->choosy.reserved_bytes, FRAMES_MAX * 4032);
}

static void a_sink_may_begin_inside_its_buffer(void **state)
{
    fixture *at = *state;
    at->choosy.lead_bytes = 128;
    add_noise(at, 50);
    add_noise(at, 0);
    add_value(at, (size_t[]){2, 1}, 2, NULL, (size_t[]){SHARD, SHARD, 30}, 3);
    assert_ok(play(at, NULL));
    check_content(at);
    for (size_t i = 0; i < at->count; i++)
        assert_true(slice_at(at, i)->offset >= 128);
}

static void a_commit_makes_the_regions_held(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    uint64_t charged = counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT);
    assert_int_equal(charged, at->choosy.reserved_bytes);
    spw_payload *payload = spw__placement_commit(&at->placement);
    assert_int_equal(at->choosy.committed, at->choosy.reserved);
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_HELD), charged);
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT), 0);
    spw_payload_free(payload);
    counted_context_check_uncharged(&at->counted);
}

static void an_abort_gives_everything_back(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    assert_ok(play(at, NULL));
    spw__placement_abort(&at->placement);
    assert_int_equal(at->choosy.aborted, at->choosy.reserved);
    counted_context_check_uncharged(&at->counted);
    spw__placement_abort(&at->placement); /* once more is nothing */
    assert_int_equal(at->choosy.aborted, at->choosy.reserved);
}

static void a_sub_header_over_the_limit_is_not_looked_into(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){2}, 1, NULL, TWO_SHARDS, 2);
    at->counted.context->limits.sub_header_bytes = at->frames[1].size - 1;
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(is_alone(at, 2, 1) && is_alone(at, 3, 1));
    spw__placement_abort(&at->placement);
    at->counted.context->limits.sub_header_bytes++;
    assert_ok(play(at, NULL));
    assert_true(is_alone(at, 2, 2));
}

static void a_refused_reservation_leaves_nothing(void **state)
{
    fixture *at = *state;
    add_noise(at, SHARD);
    add_value(at, (size_t[]){2, 1}, 2, NULL, (size_t[]){SHARD, SHARD, 300}, 3);
    for (int i = 0; i < 20; i++)
        add_noise(at, 4000);
    size_t n = 1;
    for (;; n++) {
        at->choosy.asked = 0;
        at->choosy.refuse_at = n;
        spw_error error;
        spw_status status = play(at, &error);
        spw__placement_abort(&at->placement);
        counted_context_check_uncharged(&at->counted);
        if (status == SPW_STATUS_OK)
            break;
        assert_status(status, LIMIT_EXCEEDED);
        assert_string_equal(error.message, "refused by the test");
    }
    /* Frame 0, small ones, a buffer, a small buffer, more small ones. */
    assert_int_equal(n - 1, 5);
}

/* Before the sub-header is read a shared region has room for what turns out to be
 * shards of large buffers; that must not happen again for each buffer. */
static void small_shards_of_large_buffers_cost_room_once(void **state)
{
    fixture *at = *state;
    size_t sizes[27];
    for (size_t i = 0; i < 27; i++)
        sizes[i] = 4000;
    add_noise(at, 50);
    add_value(at, (size_t[]){9, 9, 9}, 3, NULL, sizes, 27);
    assert_ok(play(at, NULL));
    check_content(at);
    assert_true(at->choosy.reserved_bytes <= 2 * 27 * 4032 + 8192);
}

static void bug_scratch_of_a_huge_message_was_kept(void **state)
{
    fixture *at = *state;
    enum { FRAMES = 5000 };
    uint64_t *lengths = malloc(FRAMES * sizeof *lengths);
    assert_non_null(lengths);
    for (int i = 0; i < FRAMES; i++)
        lengths[i] = 4096;
    assert_ok(spw__placement_begin(&at->placement, lengths, FRAMES, NULL));
    for (uint64_t i = 0; i < FRAMES; i++)
        assert_ok(spw__placement_place(&at->placement, i, NULL));
    spw_payload_free(spw__placement_commit(&at->placement));
    assert_int_equal(at->counted.allocator.live_blocks, 1); /* the context */
    free(lengths);
}

/* Whether a frame can be let be another buffer. */
static void what_has_a_region_to_itself(void **state)
{
    fixture *at = *state;
    add_noise(at, 50);
    add_value(at, (size_t[]){1, 2, 1}, 3, NULL, (size_t[]){5000, SHARD, SHARD, 100}, 4);
    add_noise(at, 60);
    add_noise(at, 5000);
    assert_ok(play(at, NULL));
    static const bool ALONE[] = {false, false, true, false, false, true, false, true};
    for (size_t i = 0; i < at->count; i++)
        assert_int_equal(spw__placement_is_alone(&at->placement, i), ALONE[i]);
}

static void a_frame_alone_may_be_another_buffer(void **state)
{
    fixture *at = *state;
    at->choosy.lead_bytes = 64;
    add_noise(at, 50);
    add_value(at, (size_t[]){1, 1}, 2, NULL, (size_t[]){5000, 6000}, 2);
    assert_ok(play(at, NULL));
    uint64_t reserved = counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT);
    spw_buffer *buffer;
    assert_ok(
        spw_buffer_create(at->counted.context, 5000, SPW_CHARGE_HELD, &buffer, NULL));
    spw__placement_replace(&at->placement, 2, buffer);
    assert_ptr_equal(slice_at(at, 2)->buffer, buffer);
    assert_int_equal(slice_at(at, 2)->offset, 0);
    assert_int_equal(at->choosy.aborted, 1);
    assert_int_equal(counted_context_charged(&at->counted, SPW_CHARGE_IN_FLIGHT),
                     reserved - 5064);
    assert_memory_equal(spw_slice_data(slice_at(at, 3)), at->frames[3].bytes, 6000);
    spw_payload_free(spw__placement_commit(&at->placement));
    assert_int_equal(at->choosy.committed, at->choosy.reserved - 1);
}

static void every_kind_of_place(void **state)
{
    torture *t = *state;
    fixture at = {.count = 0};
    static const char *const NAMES[] = {NULL, NULL, "lz4"};
    add_noise(&at, 50);
    add_value(&at, (size_t[]){2, 1}, 2, NAMES, (size_t[]){SHARD, SHARD, 5000}, 3);
    for (int i = 0; i < 10; i++)
        add_noise(&at, 5000);
    at.placement.context = t->context;
    at.placement.sink = choosy_sink_over(&at.choosy, t->context);
    TRY(play(&at, &t->error));
    spw_payload_free(spw__placement_commit(&at.placement));
end:
    spw__placement_clear(&at.placement);
    assert_int_equal(at.choosy.committed + at.choosy.aborted, at.choosy.reserved);
    for (size_t i = 0; i < FRAMES_MAX; i++)
        wire_clear(&at.frames[i]);
}

#define TEST_AT(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_AT(one_buffer_in_two_shards_is_one_region),
        TEST_AT(two_buffers_of_the_same_lengths_are_two_regions),
        TEST_AT(two_values_have_two_regions),
        TEST_AT(what_is_no_sub_header_gets_plain_placement),
        TEST_AT(a_value_without_split_keys_gets_plain_placement),
        TEST_AT(an_impossible_count_gets_plain_placement),
        TEST_AT(compressed_shards_are_each_on_their_own),
        TEST_AT(frames_that_are_no_buffers_share_aligned_places),
        TEST_AT(a_few_small_buffers_are_each_alone),
        TEST_AT(many_small_buffers_share),
        TEST_AT(the_next_message_has_its_own_few),
        TEST_AT(small_shards_of_one_buffer_lie_side_by_side),
        TEST_AT(a_large_buffer_of_small_shards_is_alone),
        TEST_AT(the_border_between_small_and_large),
        TEST_AT(a_frame_of_nothing_has_a_place),
        TEST_AT(shared_regions_are_limited),
        TEST_AT(a_sink_may_begin_inside_its_buffer),
        TEST_AT(a_commit_makes_the_regions_held),
        TEST_AT(an_abort_gives_everything_back),
        TEST_AT(a_sub_header_over_the_limit_is_not_looked_into),
        TEST_AT(a_refused_reservation_leaves_nothing),
        TEST_AT(small_shards_of_large_buffers_cost_room_once),
        TEST_AT(bug_scratch_of_a_huge_message_was_kept),
        TEST_AT(what_has_a_region_to_itself),
        TEST_AT(a_frame_alone_may_be_another_buffer),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(every_kind_of_place)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("placement", scenarios);
}
