#include "stored_objects.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

/* The first slice says what follows: the number and the size. */
typedef struct head {
    uint64_t number, size;
} head;

/* The others have so many bytes at most; and there are empty ones between them. */
static size_t slice_bytes(unsigned number, size_t size)
{
    static const size_t BYTES[] = {100, 3000, 70000, SIZE_MAX};
    size_t bytes = BYTES[number % COUNT_OF(BYTES)];
    return bytes < size / 1000 ? size / 1000 : bytes;
}

/* The byte at a place is number * 31 + place * 7 + place / 251. So it goes up by 7 in a
 * row of 251, and from the beginning of a row to that of the next by 251 * 7 + 1, which
 * modulo 256 is 178 times 7: each row is a piece of one sequence. Rows are copied and
 * compared whole, since a store's tests would spend their time on single bytes. */
enum { ROW_BYTES = 251, ROW_STEPS = 178, CYCLE = 256 };

typedef struct sequence {
    unsigned char bytes[CYCLE + ROW_BYTES];
} sequence;

static sequence sequence_of(unsigned number)
{
    sequence all;
    for (size_t i = 0; i < sizeof all.bytes; i++)
        all.bytes[i] = (unsigned char)(number * 31 + i * 7);
    return all;
}

static const unsigned char *row_at(const sequence *all, size_t place)
{
    return all->bytes + place / ROW_BYTES * ROW_STEPS % CYCLE;
}

static size_t row_size(size_t place, size_t end)
{
    return end - place < ROW_BYTES ? end - place : ROW_BYTES;
}

static void fill(unsigned char *bytes, unsigned number, size_t size)
{
    sequence all = sequence_of(number);
    for (size_t at = 0; at < size; at += ROW_BYTES)
        memcpy(bytes + at, row_at(&all, at), row_size(at, size));
}

/* Returns: the place of the first byte that is not as fill makes it; size: there is
 * none. */
static size_t first_wrong(const unsigned char *bytes, unsigned number, size_t size)
{
    sequence all = sequence_of(number);
    for (size_t at = 0; at < size; at += ROW_BYTES) {
        const unsigned char *row = row_at(&all, at);
        size_t step = row_size(at, size);
        if (memcmp(bytes + at, row, step) == 0)
            continue;
        for (size_t i = 0; i < step; i++)
            if (bytes[at + i] != row[i])
                return at + i;
    }
    return size;
}

stored_object *stored_object_create(stored_objects *all, unsigned number, size_t size)
{
    stored_object *object = malloc(sizeof *object + size);
    if (object == NULL)
        abort();
    object->references = 1;
    object->all = all;
    object->number = number;
    object->size = size;
    object->cannot_pack = false;
    fill(object->bytes, number, size);
    atomic_fetch_add(&all->live, 1);
    return object;
}

void stored_object_unref(stored_object *object)
{
    if (atomic_fetch_sub(&object->references, 1) != 1)
        return;
    atomic_fetch_sub(&object->all->live, 1);
    free(object);
}

static void let_go(void *user)
{
    stored_object_unref(user);
}

void stored_object_check(const stored_object *object, unsigned number, size_t size)
{
    if (object->number != number || object->size != size)
        fail_msg("object %u of %zu bytes instead of %u of %zu", object->number,
                 object->size, number, size);
    size_t wrong = first_wrong(object->bytes, number, size);
    if (wrong < size)
        fail_msg("object %u is wrong at byte %zu of %zu", number, wrong, size);
}

/* Takes: buffer, also on failure. */
static spw_status append(spw_payload *payload, spw_buffer *buffer, size_t size,
                         uint32_t flags, spw_error *error)
{
    spw_slice slice = {.kind = SPW_MEMORY_HOST,
                       .flags = flags,
                       .buffer = buffer,
                       .size = size,
                       .plain_size = size};
    spw_status status = spw_payload_append(payload, &slice, error);
    if (status != SPW_STATUS_OK)
        spw_buffer_unref(buffer);
    return status;
}

static spw_status append_copy(spw_context *context, spw_payload *payload,
                              const void *data, size_t size, spw_error *error)
{
    spw_buffer *buffer;
    spw_status status =
        spw_buffer_create(context, size, SPW_CHARGE_HELD, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    if (size > 0)
        memcpy(spw_buffer_data(buffer), data, size);
    return append(payload, buffer, size, SPW_SLICE_TRANSIENT, error);
}

static spw_status append_own(spw_context *context, spw_payload *payload,
                             stored_object *object, size_t from, size_t size,
                             spw_error *error)
{
    spw_buffer *buffer;
    spw_status status = spw_buffer_wrap(context, object->bytes + from, size, true,
                                        let_go, object, &buffer, error);
    if (status != SPW_STATUS_OK)
        return status;
    atomic_fetch_add(&object->references, 1);
    return append(payload, buffer, size, SPW_SLICE_WRITEABLE, error);
}

/* is_own: slices of the object's memory, which hold it. */
static spw_status make(spw_context *context, stored_object *object, bool is_own,
                       spw_payload **ret_payload, spw_error *error)
{
    head about = {.number = object->number, .size = object->size};
    size_t step = slice_bytes(object->number, object->size);
    spw_payload *payload;
    spw_status status = spw_payload_create(context, 0, &payload, error);
    if (status != SPW_STATUS_OK)
        return status;
    status = append_copy(context, payload, &about, sizeof about, error);
    for (size_t from = 0; from < object->size && status == SPW_STATUS_OK;) {
        size_t size = object->size - from < step ? object->size - from : step;
        status = is_own
                     ? append_own(context, payload, object, from, size, error)
                     : append_copy(context, payload, object->bytes + from, size, error);
        from += size;
    }
    if (status == SPW_STATUS_OK)
        status = append_copy(context, payload, NULL, 0, error);
    if (status != SPW_STATUS_OK) {
        spw_payload_free(payload);
        return status;
    }
    *ret_payload = payload;
    return SPW_STATUS_OK;
}

spw_status stored_object_payload(spw_context *context, unsigned number, size_t size,
                                 spw_payload **ret_payload, spw_error *error)
{
    stored_objects all = {0};
    stored_object *object = stored_object_create(&all, number, size);
    spw_status status = make(context, object, false, ret_payload, error);
    stored_object_unref(object);
    return status;
}

static head head_of(const spw_payload *payload)
{
    head about;
    const spw_slice *first = spw_payload_slices(payload);
    assert_true(spw_payload_count(payload) > 0 && first->size == sizeof about);
    assert_int_equal(first->kind, SPW_MEMORY_HOST);
    memcpy(&about, spw_slice_data(first), sizeof about);
    return about;
}

/* Join what follows the head; bytes has room for size. */
static void join(const spw_payload *payload, unsigned char *bytes, size_t size)
{
    size_t done = 0;
    for (size_t i = 1; i < spw_payload_count(payload); i++) {
        const spw_slice *slice = &spw_payload_slices(payload)[i];
        assert_int_equal(slice->kind, SPW_MEMORY_HOST);
        assert_int_equal(slice->codec, SPW_CODEC_NONE);
        assert_true(slice->size <= size - done);
        if (slice->size > 0)
            memcpy(bytes + done, spw_slice_data(slice), slice->size);
        done += slice->size;
    }
    assert_int_equal(done, size);
}

void stored_object_check_payload(const spw_payload *payload, unsigned number,
                                 size_t size)
{
    stored_objects all = {0};
    head about = head_of(payload);
    assert_int_equal(about.number, number);
    assert_int_equal(about.size, size);
    stored_object *object = stored_object_create(&all, number, size);
    join(payload, object->bytes, size);
    stored_object_check(object, number, size);
    stored_object_unref(object);
}

static void meanwhile(stored_objects *all)
{
    if (all->during != NULL)
        all->during(all->user);
}

static spw_status pack(void *self, void *object, spw_payload **ret_payload,
                       spw_error *error)
{
    stored_objects *all = self;
    stored_object *own = object;
    atomic_fetch_add(&all->packs, 1);
    meanwhile(all);
    if (own->cannot_pack) {
        *error = (spw_error){.status = SPW_STATUS_UNSUPPORTED,
                             .message = "this object cannot be packed"};
        return SPW_STATUS_UNSUPPORTED;
    }
    return make(all->context, own, true, ret_payload, error);
}

static spw_status unpack(void *self, const spw_payload *payload, void **ret_object,
                         spw_error *error)
{
    stored_objects *all = self;
    atomic_fetch_add(&all->unpacks, 1);
    meanwhile(all);
    if (all->unpack_status != SPW_STATUS_OK) {
        if (error != NULL)
            *error = (spw_error){.status = all->unpack_status,
                                 .message = "this payload cannot be unpacked"};
        return all->unpack_status;
    }
    head about = head_of(payload);
    stored_object *object =
        stored_object_create(all, (unsigned)about.number, about.size);
    memset(object->bytes, 0, about.size);
    join(payload, object->bytes, about.size);
    *ret_object = object;
    return SPW_STATUS_OK;
}

static void ref(void *self, void *object)
{
    (void)self;
    atomic_fetch_add(&((stored_object *)object)->references, 1);
}

static void unref(void *self, void *object)
{
    (void)self;
    stored_object_unref(object);
}

const spw_object_ops stored_object_ops = {
    .pack = pack, .unpack = unpack, .ref = ref, .unref = unref};
