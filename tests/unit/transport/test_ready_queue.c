/* Messages wait in order, and no more of them than there is room for. */
#include "transport/ready_queue.h"

#include "payloads.h"
#include "torture.h"

static spw_payload *message_of(torture *t, size_t size)
{
    spw_payload *payload;
    assert_ok(payload_make(t->context, &size, 1, 1, &payload, &t->error));
    return payload;
}

static void takes_them_in_order_round_and_round(void **state)
{
    torture *t = *state;
    spw__ready_queue queue = {0};
    spw_payload *pushed[SPW__READY_MESSAGES];
    assert_null(spw__ready_queue_pop(&queue));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 11; i++) {
            pushed[i] = message_of(t, 10);
            spw__ready_queue_push(&queue, pushed[i]);
        }
        for (int i = 0; i < 11; i++) {
            spw_payload *popped = spw__ready_queue_pop(&queue);
            assert_ptr_equal(popped, pushed[i]);
            spw_payload_free(popped);
        }
        assert_true(spw__ready_queue_is_empty(&queue));
        assert_int_equal(queue.bytes, 0);
    }
}

static void is_full_by_messages(void **state)
{
    torture *t = *state;
    spw__ready_queue queue = {0};
    for (int i = 0; i < SPW__READY_MESSAGES; i++) {
        assert_false(spw__ready_queue_is_full(&queue));
        spw__ready_queue_push(&queue, message_of(t, 0));
    }
    assert_true(spw__ready_queue_is_full(&queue));
    spw_payload_free(spw__ready_queue_pop(&queue));
    assert_false(spw__ready_queue_is_full(&queue));
    spw__ready_queue_clear(&queue);
    assert_true(spw__ready_queue_is_empty(&queue));
}

static void is_full_by_bytes(void **state)
{
    torture *t = *state;
    spw__ready_queue queue = {0};
    spw__ready_queue_push(&queue, message_of(t, SPW__READY_BYTES - 1));
    assert_false(spw__ready_queue_is_full(&queue));
    spw__ready_queue_push(&queue, message_of(t, 1));
    assert_true(spw__ready_queue_is_full(&queue));
    spw__ready_queue_clear(&queue);
    spw__ready_queue_clear(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(takes_them_in_order_round_and_round),
        SCENARIO(is_full_by_messages),
        SCENARIO(is_full_by_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
