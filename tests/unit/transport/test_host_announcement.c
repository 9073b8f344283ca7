#include "transport/host_announcement.h"

#include "payloads.h"
#include "torture.h"

static const size_t SIZES[] = {20, 1000, 999, 0, 5000};
static const spw__message_references FROM_1000 = {.from_bytes = 1000};

static void it_has_the_bodies_by_reference(void **state)
{
    torture *t = *state;
    spw_payload *payload = NULL;
    spw__host_announcement *announcement = NULL;
    TRY(payload_make(t->context, SIZES, COUNT_OF(SIZES), 1, &payload, &t->error));
    assert_int_equal(spw__host_announcement_count(payload, &FROM_1000), 2);
    TRY(spw__host_announcement_create(t->context, payload, &FROM_1000, &announcement,
                                      &t->error));
    assert_int_equal(announcement->count, 2);
    assert_int_equal(announcement->bytes, 6000);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 6000);
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < 2; i++) {
        const spw_slice *slice = &slices[i == 0 ? 1 : 4];
        assert_ptr_equal(announcement->bodies[i].data, spw_slice_data(slice));
        assert_int_equal(announcement->bodies[i].size, slice->size);
    }
    /* The buffers outlive the payload. */
    spw_payload_free(payload);
    payload = NULL;
    for (size_t i = 0; i < 5000; i += 7)
        assert_int_equal((unsigned char)announcement->bodies[1].data[i],
                         payload_byte(1, 4, i));
    spw__host_announcement_uncharge(announcement);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw__host_announcement_uncharge(announcement);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
end:
    spw__host_announcement_free(announcement);
    spw_payload_free(payload);
}

static void a_list_is_freed_whole(void **state)
{
    torture *t = *state;
    spw_payload *payload = NULL;
    spw__host_announcement *list = NULL;
    TRY(payload_make(t->context, SIZES, COUNT_OF(SIZES), 1, &payload, &t->error));
    for (int i = 0; i < 3; i++) {
        spw__host_announcement *next;
        TRY(spw__host_announcement_create(t->context, payload, &FROM_1000, &next,
                                          &t->error));
        next->next = list;
        list = next;
    }
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 18000);
end:
    spw__host_announcement_free(list);
    spw_payload_free(payload);
}

static void what_the_budget_refuses_is_not_announced(void **state)
{
    torture *t = *state;
    spw_payload *payload;
    spw__host_announcement *announcement = NULL;
    torture_limit(t, 12000); /* 7,019 of which the payload has */
    TRY(payload_make(t->context, SIZES, COUNT_OF(SIZES), 1, &payload, &t->error));
    assert_status(spw__host_announcement_create(t->context, payload, &FROM_1000,
                                                &announcement, &t->error),
                  LIMIT_EXCEEDED);
    assert_null(announcement);
    assert_int_equal(torture_charged(t, SPW_CHARGE_QUEUED), 0);
    spw_payload_free(payload);
end:;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_the_budget_refuses_is_not_announced,
                                        torture_setup, torture_teardown),
    };
    const struct CMUnitTest scenarios[] = {SCENARIO(it_has_the_bodies_by_reference),
                                           SCENARIO(a_list_is_freed_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("host_announcement", scenarios);
}
