#include "reader_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int reader_fixture_set_up(void **state)
{
    reader_fixture *at = calloc(1, sizeof *at);
    assert_non_null(at);
    counted_context_open(&at->counted, 0, 0);
    assert_ok(spw__message_reader_create(
        at->counted.context, choosy_sink_over(&at->choosy, at->counted.context),
        &at->reader, NULL));
    *state = at;
    return 0;
}

int reader_fixture_tear_down(void **state)
{
    reader_fixture *at = *state;
    spw__message_reader_free(at->reader);
    assert_int_equal(at->choosy.committed + at->choosy.aborted, at->choosy.reserved);
    counted_context_close(&at->counted);
    wire_clear(&at->wire);
    free(at);
    return 0;
}

spw_status reader_feed(spw__message_reader *reader, const uint8_t *data, size_t size,
                       size_t piece, spw_error *error)
{
    while (size > 0) {
        size_t step = piece < size ? piece : size, consumed;
        spw_status status =
            spw__message_reader_feed(reader, data, step, &consumed, error);
        if (status != SPW_STATUS_OK)
            return status;
        assert_int_equal(consumed, step);
        data += step;
        size -= step;
    }
    return SPW_STATUS_OK;
}

spw_status reader_write_direct(spw__message_reader *reader, const uint8_t *data,
                               size_t size, size_t piece, spw_error *error)
{
    while (size > 0) {
        size_t room, step = piece < size ? piece : size;
        spw_status status;
        void *direct = spw__message_reader_direct(reader, &room);
        if (room == 0) {
            assert_null(direct);
            step = 1;
            status = reader_feed(reader, data, step, 1, error);
        } else {
            step = step < room ? step : room;
            memcpy(direct, data, step);
            status = spw__message_reader_advance(reader, step, error);
        }
        if (status != SPW_STATUS_OK)
            return status;
        data += step;
        size -= step;
    }
    return SPW_STATUS_OK;
}

spw_payload *reader_take(spw__message_reader *reader, const wire_bytes *message)
{
    assert_true(spw__message_reader_is_whole(reader));
    assert_int_equal(spw__message_reader_missing(reader), 0);
    size_t unused;
    assert_null(spw__message_reader_direct(reader, &unused));
    spw_payload *payload = spw__message_reader_take(reader);
    assert_false(spw__message_reader_is_whole(reader));
    assert_true(spw__message_reader_is_idle(reader));
    size_t frames = (size_t)wire_number_at(message->bytes + 8);
    assert_int_equal(spw_payload_count(payload), frames);
    const uint8_t *body = message->bytes + 16 + 8 * frames;
    const spw_slice *slices = spw_payload_slices(payload);
    for (size_t i = 0; i < frames; i++) {
        assert_int_equal(slices[i].size, wire_number_at(message->bytes + 16 + 8 * i));
        if (slices[i].size > 0)
            assert_memory_equal(spw_slice_data(&slices[i]), body, slices[i].size);
        body += slices[i].size;
    }
    assert_ptr_equal(body, message->bytes + message->size);
    return payload;
}

void reader_for_each_message(reader_fixture *at, void (*test)(reader_fixture *))
{
    DIR *directory = opendir(TEST_CORPUS_DIR "/message_reader");
    assert_non_null(directory);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] == '.' || strchr(entry->d_name, '-') != NULL)
            continue;
        char path[300];
        snprintf(path, sizeof path, "message_reader/%s", entry->d_name);
        wire_clear(&at->wire);
        wire_put_corpus(&at->wire, path);
        test(at);
        count++;
    }
    closedir(directory);
    assert_true(count >= 30);
}

void reader_read_whole(reader_fixture *at)
{
    assert_ok(reader_feed(at->reader, at->wire.bytes, at->wire.size, SIZE_MAX, NULL));
    spw_payload_free(reader_take(at->reader, &at->wire));
}

void reader_refuses(reader_fixture *at, spw_status status, const char *why)
{
    spw__message_reader *reader;
    spw_sink sink = choosy_sink_over(&at->choosy, at->counted.context);
    assert_ok(spw__message_reader_create(at->counted.context, sink, &reader, NULL));
    spw_error error;
    size_t consumed = 77;
    spw_status got = spw__message_reader_feed(reader, at->wire.bytes, at->wire.size,
                                              &consumed, &error);
    assert_string_equal(spw_status_name(got), spw_status_name(status));
    assert_int_equal(consumed, 77);
    if (strstr(error.message, why) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.message, why);
    counted_context_check_uncharged(&at->counted);
    assert_status(spw__message_reader_feed(reader, "x", 1, &consumed, &error), CLOSED);
    assert_false(spw__message_reader_is_whole(reader));
    assert_false(spw__message_reader_is_idle(reader));
    size_t room;
    assert_null(spw__message_reader_direct(reader, &room));
    assert_int_equal(room, 0);
    spw__message_reader_free(reader);
}
