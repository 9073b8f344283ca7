/* What every codec must do, whoever fills the table: the same cases for each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "counted_context.h"
#include "frame_writer.h"
#include "spillway/codec.h"

typedef struct codec_subject {
    spw_codec_id id;
    const char *name;
    bool says_size;
    codec_frame (*write)(spw_codec_id codec, const void *plain, size_t plain_size);
    /* "spillway " 20 times, as the Python package that Dask uses compresses it. */
    const char *peers_bytes;
    size_t peers_size;
} codec_subject;

#define PEERS(bytes) bytes, sizeof bytes - 1

static codec_frame write_unsized(spw_codec_id codec, const void *plain,
                                 size_t plain_size)
{
    assert_int_equal(codec, SPW_CODEC_ZSTD);
    return frame_write_zstd_unsized(plain, plain_size);
}

/* By the library itself. */
static codec_frame write_own(spw_codec_id codec, const void *plain, size_t plain_size)
{
    size_t bound = spw_codec_bound(codec, plain_size), written = 0;
    unsigned char *roomy = malloc(bound);
    assert_non_null(roomy);
    assert_int_equal(spw_codec_compress(codec, plain_size > 0 ? plain : NULL,
                                        plain_size, roomy, bound, &written, NULL),
                     SPW_STATUS_OK);
    assert_in_range(written, 1, bound);
    codec_frame exact = frame_cut(&(codec_frame){roomy, bound}, written);
    free(roomy);
    return exact;
}

static codec_subject lz4 = {SPW_CODEC_LZ4, "lz4", true, frame_write,
                            PEERS("\xb4\0\0\0\x9fspillway \x09\0\x93Plway ")};
static codec_subject zstd = {
    SPW_CODEC_ZSTD, "zstd", true, frame_write,
    PEERS("\x28\xb5\x2f\xfd\x20\xb4\x85\0\0\x48spillway \x01\0\x28\x52\xe5\x08")};
static codec_subject zstd_unsized = {
    SPW_CODEC_ZSTD, "zstd", false, write_unsized,
    PEERS("\x28\xb5\x2f\xfd\0\0\x85\0\0\x48spillway \x01\0\x28\x52\xe5\x08")};
static codec_subject lz4_own = {SPW_CODEC_LZ4, "lz4", true, write_own,
                                PEERS("\xb4\0\0\0\x9fspillway \x09\0\x93Plway ")};
static codec_subject zstd_own = {
    SPW_CODEC_ZSTD, "zstd", true, write_own,
    PEERS("\x28\xb5\x2f\xfd\x20\xb4\x85\0\0\x48spillway \x01\0\x28\x52\xe5\x08")};
static codec_subject snappy = {
    SPW_CODEC_SNAPPY, "snappy", true, frame_write,
    PEERS("\xb4\x01\x20spillway \xfe\x09\0\xfe\x09\0\xaa\x09\0")};
static codec_subject zlib = {SPW_CODEC_ZLIB, "zlib", false, frame_write,
                             PEERS("\x78\x9c\x2b\x2e\xc8\xcc\xc9\x29\x4f\xac\x54\x28"
                                   "\x1e\x3a\x0c\0\x6d\xdd\x47\xa5")};

static codec_subject snappy_own = {
    SPW_CODEC_SNAPPY, "snappy", true, write_own,
    PEERS("\xb4\x01\x20spillway \xfe\x09\0\xfe\x09\0\xaa\x09\0")};
static codec_subject zlib_own = {SPW_CODEC_ZLIB, "zlib", false, write_own,
                                 PEERS("\x78\x9c\x2b\x2e\xc8\xcc\xc9\x29\x4f\xac"
                                       "\x54\x28\x1e\x3a\x0c\0\x6d\xdd\x47\xa5")};

#define GUARD_BYTES ((size_t)64)
#define GUARD 0xA5

/* --- plain data ------------------------------------------------------------------ */

typedef enum plain_content { ZEROS, TEXT, NOISE, CONTENT_COUNT } plain_content;

static unsigned char *make_plain(plain_content content, size_t size)
{
    unsigned char *plain = malloc(size > 0 ? size : 1);
    assert_non_null(plain);
    uint32_t noise = 2463534242u; /* xorshift32 */
    for (size_t i = 0; i < size; i++) {
        noise ^= noise << 13;
        noise ^= noise >> 17;
        noise ^= noise << 5;
        if (content == ZEROS)
            plain[i] = 0;
        else if (content == TEXT)
            plain[i] = (unsigned char)((size_t) "spillway"[i % 8] + i / 100 % 7);
        else
            plain[i] = (unsigned char)noise;
    }
    return plain;
}

/* Memory with a guard behind it. */
static unsigned char *make_out(size_t size)
{
    unsigned char *out = malloc(size + GUARD_BYTES);
    assert_non_null(out);
    memset(out, GUARD, size + GUARD_BYTES);
    return out;
}

static void check_guard(const unsigned char *out, size_t size)
{
    for (size_t i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(out[size + i], GUARD);
}

/* --- calls, each with what must hold on failure ---------------------------------- */

static spw_status decompress(const codec_subject *subject, const codec_frame *frame,
                             void *out, size_t out_size)
{
    spw_error error = {0};
    spw_status status = spw_codec_decompress(subject->id, frame->bytes, frame->size,
                                             out, out_size, &error);
    check_guard(out, out_size);
    if (status != SPW_STATUS_OK) {
        assert_int_equal(error.status, status);
        assert_true(strstr(error.message, subject->name) != NULL);
    }
    return status;
}

static spw_status expand(counted_context *counted, const codec_subject *subject,
                         const codec_frame *frame, spw_buffer **ret_buffer)
{
    spw_buffer *const untouched = (spw_buffer *)counted;
    spw_buffer *buffer = untouched;
    spw_error error = {0};
    spw_status status = spw_codec_expand(counted->context, subject->id, frame->bytes,
                                         frame->size, SPW_CHARGE_HELD, &buffer, &error);
    if (status == SPW_STATUS_OK) {
        *ret_buffer = buffer;
        return status;
    }
    assert_ptr_equal(buffer, untouched);
    assert_int_equal(error.status, status);
    assert_true(error.message[0] != '\0');
    counted_context_check_uncharged(counted);
    return status;
}

static void check_size_claim(const codec_subject *subject, const codec_frame *frame,
                             uint64_t plain_size)
{
    uint64_t claimed = UINT64_MAX;
    spw_status status =
        spw_codec_plain_size(subject->id, frame->bytes, frame->size, &claimed, NULL);
    assert_int_equal(status,
                     subject->says_size ? SPW_STATUS_OK : SPW_STATUS_UNSUPPORTED);
    assert_true(claimed == (subject->says_size ? plain_size : UINT64_MAX));
}

/* --- cases ------------------------------------------------------------------------ */

static void name_and_number_agree(void **state)
{
    const codec_subject *subject = *state;
    assert_int_equal(spw_codec_by_name(subject->name), subject->id);
    assert_string_equal(spw_codec_name(subject->id), subject->name);
}

static void reads_what_peers_send(void **state)
{
    const codec_subject *subject = *state;
    codec_frame peers = {(unsigned char *)subject->peers_bytes, subject->peers_size};
    codec_frame frame = frame_cut(&peers, peers.size);
    unsigned char *out = make_out(180);
    check_size_claim(subject, &frame, 180);
    assert_int_equal(decompress(subject, &frame, out, 180), SPW_STATUS_OK);
    for (size_t i = 0; i < 180; i++)
        assert_int_equal(out[i], "spillway "[i % 9]);
    free(out);
    frame_clear(&frame);
}

static void check_round_trip(const codec_subject *subject, plain_content content,
                             size_t size)
{
    unsigned char *plain = make_plain(content, size);
    codec_frame frame = subject->write(subject->id, plain, size);
    check_size_claim(subject, &frame, size);

    unsigned char *out = make_out(size);
    assert_int_equal(decompress(subject, &frame, out, size), SPW_STATUS_OK);
    assert_memory_equal(out, plain, size);

    counted_context counted;
    counted_context_open(&counted, 0, 0);
    spw_buffer *buffer;
    assert_int_equal(expand(&counted, subject, &frame, &buffer), SPW_STATUS_OK);
    assert_int_equal(spw_buffer_size(buffer), size);
    assert_true(spw_buffer_is_writeable(buffer));
    assert_int_equal((uintptr_t)spw_buffer_data(buffer) % SPW_BUFFER_ALIGNMENT, 0);
    assert_memory_equal(spw_buffer_data(buffer), plain, size);
    spw_budget_figures figures;
    spw_budget_read(counted.budget, &figures);
    assert_int_equal(figures.used_bytes[SPW_CHARGE_HELD], size);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);

    free(out);
    frame_clear(&frame);
    free(plain);
}

static void gives_back_what_was_compressed(void **state)
{
    /* Around the edges of alignment, of a zstd block (128 KiB), of the first pieces
     * (64 KiB) and of many pieces. */
    static const size_t SIZES[] = {0,      1,      2,      63,     64,     65,
                                   1000,   65535,  65536,  65537,  131071, 131072,
                                   131073, 262144, 262145, 3000001};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        for (plain_content content = 0; content < CONTENT_COUNT; content++)
            check_round_trip(*state, content, SIZES[i]);
    }
}

static void refuses_another_size(void **state)
{
    const codec_subject *subject = *state;
    for (plain_content content = 0; content < CONTENT_COUNT; content++) {
        const size_t size = 5000;
        unsigned char *plain = make_plain(content, size);
        codec_frame frame = subject->write(subject->id, plain, size);
        static const size_t OTHERS[] = {0, 1, 2500, 4999, 5001, 5100, 10000};
        for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
            unsigned char *out = make_out(OTHERS[i]);
            assert_int_equal(decompress(subject, &frame, out, OTHERS[i]),
                             SPW_STATUS_CORRUPT);
            free(out);
        }
        if (subject->says_size) {
            /* The claim is compared first, nothing is decompressed in vain. */
            unsigned char out = GUARD;
            spw_error error;
            assert_int_equal(spw_codec_decompress(subject->id, frame.bytes, frame.size,
                                                  &out, 1, &error),
                             SPW_STATUS_CORRUPT);
            assert_true(strstr(error.message, "claims 5000 bytes") != NULL);
            assert_int_equal(out, GUARD);
        }
        frame_clear(&frame);
        free(plain);
    }
}

static void refuses_a_size_out_of_reach(void **state)
{
    const codec_subject *subject = *state;
    unsigned char *plain = make_plain(ZEROS, 1000);
    codec_frame frame = subject->write(subject->id, plain, 1000);
    /* One byte of memory: the answer must come before anything is written. */
    unsigned char out = GUARD;
    spw_error error;
    assert_int_equal(spw_codec_decompress(subject->id, frame.bytes, frame.size, &out,
                                          SIZE_MAX, &error),
                     SPW_STATUS_CORRUPT);
    assert_true(strstr(error.message, "cannot hold") != NULL);
    assert_int_equal(out, GUARD);
    frame_clear(&frame);
    free(plain);
}

static void refuses_each_truncation(void **state)
{
    const codec_subject *subject = *state;
    for (plain_content content = 0; content < CONTENT_COUNT; content++) {
        const size_t size = 1500;
        unsigned char *plain = make_plain(content, size);
        unsigned char *out = make_out(size);
        codec_frame whole = subject->write(subject->id, plain, size);
        counted_context counted;
        counted_context_open(&counted, 0, 0);
        for (size_t kept = 0; kept < whole.size; kept++) {
            codec_frame cut = frame_cut(&whole, kept);
            spw_buffer *buffer;
            assert_int_equal(decompress(subject, &cut, out, size), SPW_STATUS_CORRUPT);
            assert_int_equal(expand(&counted, subject, &cut, &buffer),
                             SPW_STATUS_CORRUPT);
            frame_clear(&cut);
        }
        counted_context_close(&counted);
        frame_clear(&whole);
        free(out);
        free(plain);
    }
}

static void refuses_bytes_after_the_end(void **state)
{
    const codec_subject *subject = *state;
    static const size_t SIZES[] = {0, 1, 1500};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        unsigned char *plain = make_plain(TEXT, SIZES[i]);
        unsigned char *out = make_out(SIZES[i]);
        codec_frame whole = subject->write(subject->id, plain, SIZES[i]);
        counted_context counted;
        counted_context_open(&counted, 0, 0);
        for (unsigned extra = 0; extra < 256; extra++) {
            unsigned char byte = (unsigned char)extra;
            codec_frame more = frame_join(&whole, &(codec_frame){&byte, 1});
            spw_buffer *buffer;
            assert_int_equal(decompress(subject, &more, out, SIZES[i]),
                             SPW_STATUS_CORRUPT);
            assert_int_equal(expand(&counted, subject, &more, &buffer),
                             SPW_STATUS_CORRUPT);
            frame_clear(&more);
        }
        counted_context_close(&counted);
        frame_clear(&whole);
        free(out);
        free(plain);
    }
}

static void refuses_a_frame_without_bytes(void **state)
{
    const codec_subject *subject = *state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    unsigned char out[GUARD_BYTES];
    memset(out, GUARD, sizeof out);
    codec_frame nothing = {NULL, 0};
    uint64_t claimed = 77;
    spw_buffer *buffer;
    assert_int_equal(spw_codec_plain_size(subject->id, NULL, 0, &claimed, NULL),
                     SPW_STATUS_CORRUPT);
    assert_int_equal(claimed, 77);
    assert_int_equal(decompress(subject, &nothing, out, 0), SPW_STATUS_CORRUPT);
    assert_int_equal(expand(&counted, subject, &nothing, &buffer), SPW_STATUS_CORRUPT);
    counted_context_close(&counted);
}

/* Only zlib has a checksum, so a flipped bit may decompress to other bytes of the right
 * number; it must never do anything else than that or be refused. */
static void stays_inside_with_each_bit_flipped(void **state)
{
    const codec_subject *subject = *state;
    for (plain_content content = 0; content < CONTENT_COUNT; content++) {
        const size_t size = 400;
        unsigned char *plain = make_plain(content, size);
        unsigned char *out = make_out(size);
        codec_frame frame = subject->write(subject->id, plain, size);
        counted_context counted;
        counted_context_open(&counted, 1 << 20, 0);
        for (size_t bit = 0; bit < frame.size * 8; bit++) {
            frame.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
            spw_status status = decompress(subject, &frame, out, size);
            assert_true(status == SPW_STATUS_OK || status == SPW_STATUS_CORRUPT);
            spw_buffer *buffer = NULL;
            spw_status expanded = expand(&counted, subject, &frame, &buffer);
            if (expanded == SPW_STATUS_OK)
                spw_buffer_unref(buffer);
            else
                assert_true(expanded == SPW_STATUS_CORRUPT ||
                            expanded == SPW_STATUS_LIMIT_EXCEEDED);
            frame.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        counted_context_close(&counted);
        frame_clear(&frame);
        free(out);
        free(plain);
    }
}

static void answers_without_an_error_struct(void **state)
{
    const codec_subject *subject = *state;
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    unsigned char plain[100] = {0};
    codec_frame whole = subject->write(subject->id, plain, sizeof plain);
    codec_frame cut = frame_cut(&whole, whole.size - 1);
    spw_buffer *buffer;
    unsigned char out[100];
    assert_int_equal(
        spw_codec_decompress(subject->id, cut.bytes, cut.size, out, sizeof out, NULL),
        SPW_STATUS_CORRUPT);
    assert_int_equal(spw_codec_expand(counted.context, subject->id, cut.bytes, cut.size,
                                      SPW_CHARGE_HELD, &buffer, NULL),
                     SPW_STATUS_CORRUPT);
    frame_clear(&cut);
    frame_clear(&whole);
    counted_context_close(&counted);
}

static spw_status expand_under(const codec_subject *subject, const codec_frame *frame,
                               uint64_t bytes_per_message, uint64_t budget_bytes,
                               uint64_t *ret_peak_bytes)
{
    counted_context counted;
    counted_context_open(&counted, bytes_per_message, budget_bytes);
    spw_buffer *buffer = NULL;
    spw_status status = expand(&counted, subject, frame, &buffer);
    if (status == SPW_STATUS_OK)
        spw_buffer_unref(buffer);
    spw_budget_figures figures;
    spw_budget_read(counted.budget, &figures);
    *ret_peak_bytes = figures.peak_bytes;
    counted_context_close(&counted);
    return status;
}

static void keeps_to_the_limits(void **state)
{
    const codec_subject *subject = *state;
    static const size_t SIZES[] = {2, 65536, 65537, 131072, 1000000};
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
        const size_t size = SIZES[i];
        unsigned char *plain = make_plain(TEXT, size);
        codec_frame frame = subject->write(subject->id, plain, size);
        uint64_t peak;
        assert_int_equal(expand_under(subject, &frame, size, 0, &peak), SPW_STATUS_OK);
        assert_int_equal(expand_under(subject, &frame, size - 1, 0, &peak),
                         SPW_STATUS_LIMIT_EXCEEDED);
        /* A claimed size is allocated once; an unclaimed one is joined from pieces. */
        uint64_t needed = subject->says_size ? size : 2 * size;
        assert_int_equal(expand_under(subject, &frame, size, needed, &peak),
                         SPW_STATUS_OK);
        assert_true(peak <= needed);
        assert_int_equal(expand_under(subject, &frame, size, needed - 1, &peak),
                         SPW_STATUS_LIMIT_EXCEEDED);
        assert_true(peak < needed);
        frame_clear(&frame);
        free(plain);
    }
}

static void a_bomb_takes_no_more_than_the_limit(void **state)
{
    const codec_subject *subject = *state;
    const size_t size = (size_t)64 << 20;
    void *plain = calloc(1, size);
    assert_non_null(plain);
    codec_frame bomb = subject->write(subject->id, plain, size);
    free(plain);
    assert_true(bomb.size < size / 20);
    uint64_t peak;
    assert_int_equal(expand_under(subject, &bomb, 1 << 20, 0, &peak),
                     SPW_STATUS_LIMIT_EXCEEDED);
    assert_true(peak <= 1 << 20);
    assert_int_equal(expand_under(subject, &bomb, 0, 1 << 20, &peak),
                     SPW_STATUS_LIMIT_EXCEEDED);
    assert_true(peak <= 1 << 20);
    frame_clear(&bomb);
}

static void survives_each_failed_allocation(void **state)
{
    const codec_subject *subject = *state;
    const size_t size = 1000000;
    unsigned char *plain = make_plain(ZEROS, size);
    codec_frame frame = subject->write(subject->id, plain, size);
    counted_context counted;
    counted_context_open(&counted, 0, 0);
    size_t live_before = counted.allocator.live_blocks;
    size_t n = 0;
    spw_buffer *buffer = NULL;
    spw_status status;
    do {
        n++;
        counted_context_fail_at(&counted, n);
        status = expand(&counted, subject, &frame, &buffer);
        if (status != SPW_STATUS_OK) {
            assert_int_equal(status, SPW_STATUS_NO_MEMORY);
            assert_int_equal(counted.allocator.live_blocks, live_before);
        }
    } while (status != SPW_STATUS_OK);
    print_message("%s: each of %zu allocations failed once\n", subject->name, n - 1);
    /* A buffer and its memory; with pieces of 64, 64, 128, 256 and 512 KiB first. */
    assert_int_equal(n - 1, subject->says_size ? 2 : 12);
    assert_memory_equal(spw_buffer_data(buffer), plain, size);
    spw_buffer_unref(buffer);
    counted_context_close(&counted);
    frame_clear(&frame);
    free(plain);
}

/* Into less room than it takes, down to none, and nothing is written behind it. */
static void compresses_into_the_room_or_says_so(void **state)
{
    const codec_subject *subject = *state;
    static const size_t SIZES[] = {0, 1, 30, 2000};
    for (plain_content content = 0; content < CONTENT_COUNT; content++)
        for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++) {
            unsigned char *plain = make_plain(content, SIZES[i]);
            codec_frame best = subject->write(subject->id, plain, SIZES[i]);
            size_t bound = spw_codec_bound(subject->id, SIZES[i]);
            for (size_t room = 0; room <= bound; room++) {
                unsigned char *out = make_out(room);
                size_t written = 77;
                spw_error error = {0};
                spw_status status =
                    spw_codec_compress(subject->id, plain, SIZES[i],
                                       room > 0 ? out : NULL, room, &written, &error);
                check_guard(out, room);
                if (room == bound || status == SPW_STATUS_OK) {
                    assert_int_equal(status, SPW_STATUS_OK);
                    assert_in_range(written, 1, room);
                } else {
                    assert_int_equal(status, SPW_STATUS_LIMIT_EXCEEDED);
                    assert_int_equal(written, 77);
                    assert_true(strstr(error.message, subject->name) != NULL);
                }
                if (room < best.size / 2)
                    assert_int_equal(status, SPW_STATUS_LIMIT_EXCEEDED);
                free(out);
            }
            frame_clear(&best);
            free(plain);
        }
}

static void text_and_zeros_shrink(void **state)
{
    const codec_subject *subject = *state;
    for (plain_content content = ZEROS; content <= TEXT; content++) {
        unsigned char *plain = make_plain(content, 1 << 20);
        codec_frame frame = subject->write(subject->id, plain, 1 << 20);
        assert_true(frame.size < (1 << 20) / 10);
        frame_clear(&frame);
        free(plain);
    }
}

#define CASE(test, subject)                                                            \
    {                                                                                  \
#test "(" #subject ")", test, NULL, NULL, &subject                             \
    }
#define CONTRACT(subject)                                                              \
    CASE(name_and_number_agree, subject), CASE(reads_what_peers_send, subject),        \
        CASE(gives_back_what_was_compressed, subject),                                 \
        CASE(refuses_another_size, subject),                                           \
        CASE(refuses_a_size_out_of_reach, subject),                                    \
        CASE(refuses_each_truncation, subject),                                        \
        CASE(refuses_bytes_after_the_end, subject),                                    \
        CASE(refuses_a_frame_without_bytes, subject),                                  \
        CASE(stays_inside_with_each_bit_flipped, subject),                             \
        CASE(answers_without_an_error_struct, subject),                                \
        CASE(keeps_to_the_limits, subject),                                            \
        CASE(a_bomb_takes_no_more_than_the_limit, subject),                            \
        CASE(survives_each_failed_allocation, subject)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONTRACT(lz4),
        CONTRACT(zstd),
        CONTRACT(zstd_unsized),
        CONTRACT(snappy),
        CONTRACT(zlib),
        CONTRACT(lz4_own),
        CONTRACT(zstd_own),
        CONTRACT(snappy_own),
        CONTRACT(zlib_own),
        CASE(compresses_into_the_room_or_says_so, lz4_own),
        CASE(compresses_into_the_room_or_says_so, zstd_own),
        CASE(compresses_into_the_room_or_says_so, zlib_own),
        CASE(text_and_zeros_shrink, lz4_own),
        CASE(text_and_zeros_shrink, zstd_own),
        CASE(text_and_zeros_shrink, snappy_own),
        CASE(text_and_zeros_shrink, zlib_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
