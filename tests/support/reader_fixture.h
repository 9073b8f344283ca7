/* A message reader over a choosy sink, and what feeds it and judges what comes out. */
#ifndef TEST_READER_FIXTURE_H
#define TEST_READER_FIXTURE_H

#include "choosy_sink.h"
#include "counted_context.h"
#include "framing/message_reader.h"
#include "testing.h"
#include "wire_bytes.h"

typedef struct reader_fixture {
    counted_context counted;
    choosy_sink choosy;
    spw__message_reader *reader;
    wire_bytes wire;
} reader_fixture;

/* Its tests are made by this. */
#define READER_TEST(function)                                                          \
    cmocka_unit_test_setup_teardown(function, reader_fixture_set_up,                   \
                                    reader_fixture_tear_down)
int reader_fixture_set_up(void **state);
int reader_fixture_tear_down(void **state);
/* All of size bytes, in pieces of at most piece. */
spw_status reader_feed(spw__message_reader *reader, const uint8_t *data, size_t size,
                       size_t piece, spw_error *error);
/* The same, but straight into place wherever the reader gives one. */
spw_status reader_write_direct(spw__message_reader *reader, const uint8_t *data,
                               size_t size, size_t piece, spw_error *error);
/* The reader has all of message: take it and compare. */
spw_payload *reader_take(spw__message_reader *reader, const wire_bytes *message);
/* Calls test for each message of stock's in the corpus. Inputs that a fuzzer found are
 * kept there too, under the names that it gives them: crash-..., timeout-... */
void reader_for_each_message(reader_fixture *at, void (*test)(reader_fixture *));
/* Feed it the message that at->wire is, and take that. */
void reader_read_whole(reader_fixture *at);
/* wire is refused with status, for the reason given; whatever comes afterwards fails.
 */
void reader_refuses(reader_fixture *at, spw_status status, const char *why);

#endif
