#include "spillway/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_payloads.h"
#include "io_fault.h"
#include "memory/place.h"
#include "torture.h"

static void the_last_reference_closes(void **state)
{
    torture *t = *state;
    int descriptor = file_open();
    spw_file *file = NULL;
    t->status = spw_file_adopt(t->context, descriptor, &file, &t->error);
    if (t->status != SPW_STATUS_OK) {
        assert_null(file);
        assert_int_equal(close(descriptor), 0); /* it was not taken */
        return;
    }
    assert_int_equal(spw_file_descriptor(file), descriptor);
    assert_ptr_equal(spw_file_ref(file), file);
    spw_file_unref(file);
    assert_int_not_equal(fcntl(descriptor, F_GETFD), -1);
    spw_file_unref(file);
    assert_int_equal(fcntl(descriptor, F_GETFD), -1);
    spw_file_unref(NULL);
}

static void what_is_no_file_is_refused(void **state)
{
    torture *t = *state;
    spw_file *file = NULL;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_status(spw_file_adopt(t->context, ends[0], &file, &t->error),
                  INVALID_ARGUMENT);
    assert_non_null(strstr(t->error.message, "no ordinary file"));
    assert_status(spw_file_adopt(t->context, -1, &file, NULL), INVALID_ARGUMENT);
    assert_null(file);
    assert_int_equal(close(ends[0]) + close(ends[1]), 0);
}

static void a_file_system_that_does_not_answer_is_told(void **state)
{
    torture *t = *state;
    spw_file *file = NULL;
    int descriptor = file_open();
    io_fault_arm_call("file_verify", 1, ESTALE);
    assert_status(spw_file_adopt(t->context, descriptor, &file, &t->error), IO);
    assert_int_equal(t->error.os_errno, ESTALE);
    assert_null(file);
    assert_int_equal(close(descriptor), 0);
}

static void frames_in_a_file(void **state)
{
    static const size_t SIZES[] = {10, 20, 0, 5000};
    torture *t = *state;
    spw_payload *payload = NULL;
    TRY(payload_make_in_file(t->context, SIZES, 4, 0xe, 1, &payload, &t->error));
end:
    spw_payload_free(payload);
}

static unsigned places_released;

static void count_place(spw__place *place)
{
    (void)place;
    places_released++;
}

static void a_share_keeps_the_file_open_and_holds_its_place(void **state)
{
    torture *t = *state;
    spw__place place = {.references = 1, .release = count_place};
    spw_file *file = NULL, *share = NULL;
    int descriptor = file_open();
    places_released = 0;
    t->status = spw_file_adopt(t->context, descriptor, &file, &t->error);
    if (t->status != SPW_STATUS_OK) {
        assert_int_equal(close(descriptor), 0);
        return;
    }
    assert_null(spw__file_place(file));
    TRY(spw__file_share(file, &place, &share, &t->error));
    assert_ptr_equal(spw__file_place(share), &place);
    assert_int_equal(spw_file_descriptor(share), descriptor);
    spw_file_unref(file);
    file = NULL;
    assert_true(fcntl(descriptor, F_GETFD) >= 0);
    spw_file_unref(share);
    assert_int_equal(places_released, 1);
    assert_true(fcntl(descriptor, F_GETFD) < 0);
end:
    spw_file_unref(file);
}

/* What this process says of a file that it has open. */
static spw_file_claim claim_of(int descriptor)
{
    struct stat found;
    assert_int_equal(fstat(descriptor, &found), 0);
    return (spw_file_claim){.process = getpid(),
                            .descriptor = descriptor,
                            .device = found.st_dev,
                            .inode = found.st_ino};
}

static void what_a_process_has_open_is_taken(void **state)
{
    torture *t = *state;
    int descriptor = file_open();
    spw_file_claim claim = claim_of(descriptor);
    spw_file *file = NULL;
    uint64_t size = 1;
    unsigned open = file_count_descriptors();
    assert_int_equal(write(descriptor, "bytes", 5), 5);
    t->status = spw_file_take(t->context, &claim, &file, &size, &t->error);
    if (t->status == SPW_STATUS_OK) {
        assert_int_equal(size, 5);
        assert_int_not_equal(spw_file_descriptor(file), descriptor);
        assert_int_equal(claim_of(spw_file_descriptor(file)).inode, claim.inode);
        spw_file_unref(file);
    }
    assert_int_equal(file_count_descriptors(), open);
    assert_int_equal(close(descriptor), 0);
}

static void what_cannot_be_taken_is_told(void **state)
{
    torture *t = *state;
    int descriptor = file_open();
    spw_file_claim claim = claim_of(descriptor), other = claim;
    spw_file *file = NULL;
    uint64_t size;
    unsigned open = file_count_descriptors();
    other.inode++;
    assert_status(spw_file_take(t->context, &other, &file, &size, &t->error),
                  UNSUPPORTED);
    assert_int_equal(t->error.os_errno, ESTALE);
    assert_non_null(strstr(t->error.message, "cannot take descriptor"));
    other = claim;
    other.device++;
    assert_status(spw_file_take(t->context, &other, &file, &size, &t->error),
                  UNSUPPORTED);
    assert_int_equal(t->error.os_errno, ESTALE);
    other = claim;
    other.process = INT64_MIN;
    assert_status(spw_file_take(t->context, &other, &file, &size, NULL), UNSUPPORTED);
    other.process = (int64_t)1 << 32;
    assert_status(spw_file_take(t->context, &other, &file, &size, NULL), UNSUPPORTED);
    other = claim;
    other.descriptor = -1;
    assert_status(spw_file_take(t->context, &other, &file, &size, NULL), UNSUPPORTED);
    io_fault_arm_call("peer_take", 1, EMFILE);
    assert_status(spw_file_take(t->context, &claim, &file, &size, &t->error), IO);
    assert_non_null(strstr(t->error.message, "ulimit -n"));
    io_fault_arm_call("file_describe", 1, EIO);
    assert_status(spw_file_take(t->context, &claim, &file, &size, &t->error),
                  UNSUPPORTED);
    assert_int_equal(t->error.os_errno, EIO);
    assert_null(file);
    assert_int_equal(file_count_descriptors(), open);
    assert_int_equal(close(descriptor), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCENARIO(what_is_no_file_is_refused),
        SCENARIO(a_file_system_that_does_not_answer_is_told),
        SCENARIO(what_cannot_be_taken_is_told),
    };
    const struct CMUnitTest scenarios[] = {
        SCENARIO(the_last_reference_closes), SCENARIO(frames_in_a_file),
        SCENARIO(what_a_process_has_open_is_taken),
        SCENARIO(a_share_keeps_the_file_open_and_holds_its_place)};
    return cmocka_run_group_tests(tests, NULL, NULL) +
           cmocka_run_group_tests(scenarios, NULL, NULL) +
           TORTURE_SUITE("file", scenarios);
}
