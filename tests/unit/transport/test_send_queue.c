/* The send queue alone: order, charges, pieces across messages. */
#include "transport/send_queue.h"

#include <stdlib.h>
#include <string.h>

#include "file_payloads.h"
#include "payloads.h"
#include "torture.h"

static const size_t TINY[] = {10};
static const size_t MIXED[] = {10, 5000, 20, 6000};

static spw_status make_writer(torture *t, const size_t *sizes, size_t count,
                              unsigned seed, spw__message_writer **ret_writer)
{
    spw_payload *payload;
    spw_status status =
        payload_make(t->context, sizes, count, seed, &payload, &t->error);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw__message_writer_create(t->context, payload, ret_writer, &t->error);
    if (status != SPW_STATUS_OK)
        spw_payload_free(payload);
    return status;
}

static spw_status push(torture *t, spw__send_queue *queue, const size_t *sizes,
                       size_t count, unsigned seed)
{
    spw__message_writer *writer;
    spw_status status = make_writer(t, sizes, count, seed, &writer);
    if (status != SPW_STATUS_OK)
        return status;
    status = spw__send_queue_push(queue, writer, &t->error);
    if (status != SPW_STATUS_OK)
        spw__message_writer_free(writer);
    return status;
}

/* What the queue gives, step bytes at a time, is what wire says; in *ret_whole how many
 * messages became whole. */
static void assert_gives(torture *t, spw__send_queue *queue, const char *wire,
                         size_t size, size_t step, size_t *ret_whole)
{
    size_t place = 0;
    *ret_whole = 0;
    while (queue->head != NULL) {
        struct iovec pieces[3];
        size_t given = 0;
        size_t count = spw__send_queue_pieces(queue, pieces, COUNT_OF(pieces), step);
        assert_in_range(count, 1, COUNT_OF(pieces));
        for (size_t i = 0; i < count; i++) {
            assert_true(place + given + pieces[i].iov_len <= size);
            assert_memory_equal(pieces[i].iov_base, wire + place + given,
                                pieces[i].iov_len);
            given += pieces[i].iov_len;
        }
        assert_in_range(given, 1, step);
        place += given;
        *ret_whole += spw__send_queue_advance(queue, given);
        assert_int_equal(queue->unsent_bytes, size - place);
        assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), size - place);
    }
    assert_int_equal(place, size);
}

static void gives_every_byte_in_order(void **state)
{
    static const size_t STEPS[] = {1, 7, 50, 4096, 5000, 1 << 20};
    torture *t = *state;
    size_t tiny_size, mixed_size, whole;
    char *tiny = payload_wire(t->context, TINY, COUNT_OF(TINY), 1, &tiny_size);
    char *mixed = payload_wire(t->context, MIXED, COUNT_OF(MIXED), 2, &mixed_size);
    char *wire = malloc(2 * tiny_size + mixed_size);
    assert_non_null(wire);
    memcpy(wire, tiny, tiny_size);
    memcpy(wire + tiny_size, mixed, mixed_size);
    memcpy(wire + tiny_size + mixed_size, tiny, tiny_size);
    for (size_t i = 0; i < COUNT_OF(STEPS); i++) {
        spw__send_queue queue;
        spw__send_queue_init(&queue, t->budget);
        assert_ok(push(t, &queue, TINY, COUNT_OF(TINY), 1));
        assert_ok(push(t, &queue, MIXED, COUNT_OF(MIXED), 2));
        assert_ok(push(t, &queue, TINY, COUNT_OF(TINY), 1));
        assert_gives(t, &queue, wire, 2 * tiny_size + mixed_size, STEPS[i], &whole);
        assert_int_equal(whole, 3);
        spw__send_queue_clear(&queue);
    }
    free(wire);
    free(mixed);
    free(tiny);
}

/* What a file holds pins no memory, so it is not charged, and nothing of memory
 * overtakes it. */
static void files_wait_their_turn_and_are_not_charged(void **state)
{
    static const size_t SIZES[] = {10, 7000, 20};
    torture *t = *state;
    spw__send_queue queue;
    spw_payload *payload;
    spw__message_writer *writer;
    spw__file_range range;
    struct iovec pieces[8];
    spw__send_queue_init(&queue, t->budget);
    assert_false(spw__send_queue_next_file(&queue, 100, &range));
    assert_ok(push(t, &queue, TINY, COUNT_OF(TINY), 1));
    assert_ok(payload_make_in_file(t->context, SIZES, 3, 2, 1, &payload, NULL));
    assert_ok(spw__message_writer_create(t->context, payload, &writer, NULL));
    assert_ok(spw__send_queue_push(&queue, writer, NULL));
    assert_ok(push(t, &queue, TINY, COUNT_OF(TINY), 2));
    const uint64_t tiny = 16 + 8 + 10, head = 16 + 24 + 10;
    assert_int_equal(queue.unsent_bytes, 2 * tiny + head + 7000 + 20);
    assert_int_equal(queue.file_bytes, 7000);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 2 * tiny + head + 20);
    assert_int_equal(spw__send_queue_pieces(&queue, pieces, 8, SIZE_MAX), 2);
    assert_int_equal(pieces[0].iov_len, tiny);
    assert_int_equal(pieces[1].iov_len, head);
    assert_false(spw__send_queue_next_file(&queue, 100, &range));
    assert_int_equal(spw__send_queue_advance(&queue, tiny + head), 1);
    assert_int_equal(spw__send_queue_pieces(&queue, pieces, 8, SIZE_MAX), 0);
    assert_true(spw__send_queue_next_file(&queue, 100, &range));
    assert_int_equal(range.size, 100);
    uint64_t offset = range.offset;
    assert_int_equal(spw__send_queue_advance(&queue, 60), 0);
    assert_true(spw__send_queue_next_file(&queue, 10000, &range));
    assert_int_equal(range.offset, offset + 60);
    assert_int_equal(range.size, 6940);
    assert_int_equal(queue.file_bytes, 6940);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), tiny + 20);
    spw__send_queue_abandon(&queue);
    assert_int_equal(queue.file_bytes, 0);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw__send_queue_clear(&queue);
}

static void takes_more_after_it_was_empty(void **state)
{
    torture *t = *state;
    size_t size, whole;
    char *wire = payload_wire(t->context, TINY, COUNT_OF(TINY), 1, &size);
    spw__send_queue queue;
    spw__send_queue_init(&queue, t->budget);
    for (int i = 0; i < 3; i++) {
        assert_ok(push(t, &queue, TINY, COUNT_OF(TINY), 1));
        assert_gives(t, &queue, wire, size, 64, &whole);
        assert_null(queue.tail);
    }
    spw__send_queue_clear(&queue);
    free(wire);
}

static void an_empty_queue_gives_nothing(void **state)
{
    torture *t = *state;
    struct iovec piece;
    spw__send_queue queue;
    spw__send_queue_init(&queue, t->budget);
    assert_int_equal(spw__send_queue_pieces(&queue, &piece, 1, 100), 0);
    spw__send_queue_reap(&queue);
    spw__send_queue_clear(&queue);
}

static void lets_go_only_when_reaped(void **state)
{
    torture *t = *state;
    char data[5000] = {0};
    unsigned released = 0;
    spw_payload *payload;
    spw__message_writer *writer;
    spw__send_queue queue;
    spw__send_queue_init(&queue, t->budget);
    for (int i = 0; i < 2; i++) {
        assert_ok(
            payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
        assert_ok(spw__message_writer_create(t->context, payload, &writer, NULL));
        assert_ok(spw__send_queue_push(&queue, writer, NULL));
    }
    assert_int_equal(spw__send_queue_advance(&queue, queue.unsent_bytes / 2 + 1), 1);
    assert_int_equal(released, 0);
    spw__send_queue_reap(&queue);
    assert_int_equal(released, 1);
    spw__send_queue_abandon(&queue);
    assert_null(queue.head);
    assert_null(queue.tail);
    assert_int_equal(queue.unsent_bytes, 0);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    assert_int_equal(released, 1);
    spw__send_queue_reap(&queue);
    assert_int_equal(released, 2);
}

static void a_refused_message_is_not_taken(void **state)
{
    torture *t = *state;
    torture_limit(t, 60);
    unsigned released = 0;
    char data[10] = {0};
    spw_payload *payload;
    spw__message_writer *writers[2];
    spw__send_queue queue;
    spw__send_queue_init(&queue, t->budget);
    for (int i = 0; i < 2; i++) {
        assert_ok(
            payload_wrap(t->context, data, sizeof data, &released, &payload, NULL));
        assert_ok(spw__message_writer_create(t->context, payload, &writers[i], NULL));
    }
    assert_ok(spw__send_queue_push(&queue, writers[0], NULL));
    assert_status(spw__send_queue_push(&queue, writers[1], &t->error), LIMIT_EXCEEDED);
    assert_ptr_equal(queue.tail, writers[0]);
    assert_int_equal(queue.unsent_bytes, spw__message_writer_total(writers[0]));
    spw__message_writer_free(writers[1]);
    spw__send_queue_clear(&queue);
    assert_int_equal(released, 2);
}

static void sends_two_messages(void **state)
{
    torture *t = *state;
    spw__send_queue queue;
    spw__send_queue_init(&queue, t->budget);
    TRY(push(t, &queue, TINY, COUNT_OF(TINY), 1));
    TRY(push(t, &queue, MIXED, COUNT_OF(MIXED), 2));
    assert_int_equal(spw__send_queue_advance(&queue, queue.unsent_bytes), 2);
end:
    spw__send_queue_clear(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(gives_every_byte_in_order),
        SCENARIO(files_wait_their_turn_and_are_not_charged),
        SCENARIO(takes_more_after_it_was_empty),
        SCENARIO(an_empty_queue_gives_nothing),
        SCENARIO(lets_go_only_when_reaped),
        SCENARIO(a_refused_message_is_not_taken),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(sends_two_messages)};
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    failures += cmocka_run_group_tests(scenarios, NULL, NULL);
    return failures + TORTURE_SUITE("send_queue", scenarios);
}
