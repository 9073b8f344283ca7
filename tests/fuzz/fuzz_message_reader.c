/* Fuzz target: a stream of messages. It is read twice, once as one piece, once cut in
 * pieces that follow from its content, part of them through direct() and advance(), and
 * both again with references allowed; what does not come in the stream follows from its
 * address, and part of it is adopted in the reading that is cut.
 * Both must give the same messages and the same end, and for each:
 * - what is placed is what was sent, by a second, simpler reading of the format here;
 * - each frame is aligned or follows the one before it, and none overlap;
 * - nothing is reserved before the table of lengths is there, and afterwards no more
 *   than twice what it announces (an aligned place for each frame, and room in shared
 *   regions that larger buffers of small shards do not use);
 * - what is allocated beside is bounded by what has arrived;
 * - a taken message is HELD and nothing else is, and after free nothing is charged.
 *
 * The corpus has messages of stock Dask, written by make_corpus.py. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "framing/message_reader.h"
#include "spillway/spillway.h"

#define FRAMES_LIMIT 4096
#define BYTES_LIMIT ((uint64_t)1 << 20)
/* Bodies by reference cost the input nothing: no message is begun after so much. */
#define REMOTE_LIMIT ((uint64_t)4 << 20)
/* What a message that comes in pieces is held from. */
enum { HOLD_FROM = 100 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Our own allocator: what is live beside the reserved bodies. */
typedef struct memory {
    uint64_t live_bytes;
} memory;

static void *allocate(void *user, size_t size, size_t alignment)
{
    memory *mine = user;
    void *pointer;
    if (alignment < sizeof(void *))
        alignment = sizeof(void *);
    if (posix_memalign(&pointer, alignment, size) != 0)
        return NULL;
    mine->live_bytes += size;
    return pointer;
}

static void release(void *user, void *pointer, size_t size, size_t alignment)
{
    (void)alignment;
    memory *mine = user;
    mine->live_bytes -= size;
    free(pointer);
}

typedef struct reading {
    const uint8_t *data;
    size_t size;
    bool is_cut, allows_references;
    uint32_t random;
    /* What was found. */
    size_t place;           /* bytes consumed */
    size_t start;           /* of the message under way */
    uint64_t digest;        /* over all messages: frames and their content */
    uint64_t remote_bytes;  /* of all messages */
    uint64_t adopted_bytes; /* of the message under way */
    spw_status status;
    memory memory;
    uint64_t memory_before;
    spw_budget *budget;
    spw_context *context;
    spw__message_reader *reader;
} reading;

static uint32_t next_random(reading *run)
{
    run->random ^= run->random << 13;
    run->random ^= run->random >> 17;
    run->random ^= run->random << 5;
    return run->random;
}

static uint64_t number_at(const uint8_t *data)
{
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--)
        value = value << 8 | data[i];
    return value;
}

/* The tables of the message under way. */
typedef struct tables {
    uint64_t frames, bytes; /* what is announced, each frame on a place of its own */
    const uint8_t *lengths;
    const uint8_t *places; /* NULL: all in the stream */
    const uint8_t *bodies;
} tables;

static uint64_t place_of(const tables *all, uint64_t frame)
{
    return all->places != NULL ? number_at(all->places + 8 * frame) : 0;
}

/* Returns: whether all of them are there. */
static bool read_tables(const reading *run, tables *ret_tables)
{
    size_t there = run->place - run->start;
    const uint8_t *head = run->data + run->start;
    if (there < 16)
        return false;
    uint64_t frames = number_at(head + 8);
    bool is_referenced = run->allows_references && number_at(head) >> 63 != 0;
    if (frames > (there - 16) / (is_referenced ? 16 : 8))
        return false;
    *ret_tables = (tables){.frames = frames, .bytes = 64, .lengths = head + 16};
    ret_tables->bodies = ret_tables->lengths + 8 * frames;
    if (is_referenced) {
        ret_tables->places = ret_tables->bodies;
        ret_tables->bodies += 8 * frames;
    }
    for (uint64_t i = 0; i < frames; i++)
        ret_tables->bytes += (number_at(ret_tables->lengths + 8 * i) + 63) / 64 * 64;
    return true;
}

/* What stands at an address of the sender's, or, with 0, what it passes. */
static uint8_t remote_byte(uint64_t address, uint64_t place_in_frame)
{
    uint64_t value = address != 0 ? address + place_in_frame : 91 + place_in_frame;
    return (uint8_t)(value ^ value >> 7 ^ value >> 20);
}

static void check_memory(const reading *run)
{
    spw_budget_figures figures;
    spw_budget_read(run->budget, &figures);
    uint64_t reserved = figures.used_bytes[SPW_CHARGE_IN_FLIGHT];
    require(figures.used_bytes[SPW_CHARGE_QUEUED] == 0);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0);
    tables all = {0};
    bool has_tables = read_tables(run, &all);
    if (run->status != SPW_STATUS_OK || !has_tables)
        require(reserved == 0);
    else
        require(reserved <= 2 * all.bytes);
    /* 16 bytes of tables a frame; slices, regions, buffers and lists for it beside. */
    uint64_t beside = run->memory.live_bytes - run->memory_before - reserved;
    require(beside <= 1024 + 32 * (uint64_t)run->size + 512 * all.frames);
}

static uint64_t mix(uint64_t digest, const uint8_t *data, uint64_t size)
{
    for (uint64_t i = 0; i < size; i++)
        digest = (digest ^ data[i]) * UINT64_C(1099511628211);
    return (digest ^ size) * UINT64_C(1099511628211);
}

static void check_places(const spw_slice *slices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uintptr_t data = (uintptr_t)spw_slice_data(&slices[i]);
        require(slices[i].offset + slices[i].size <= spw_buffer_size(slices[i].buffer));
        bool follows = i > 0 && slices[i].buffer == slices[i - 1].buffer &&
                       slices[i].offset == slices[i - 1].offset + slices[i - 1].size;
        require(data % SPW_BUFFER_ALIGNMENT == 0 || follows);
        if (i > 0 && slices[i].buffer == slices[i - 1].buffer)
            require(slices[i].offset >= slices[i - 1].offset + slices[i - 1].size);
    }
}

/* A message is whole: is it what was sent? */
static void take(reading *run)
{
    tables all;
    require(read_tables(run, &all));
    uint64_t frames = all.frames;
    spw_payload *payload = spw__message_reader_take(run->reader);
    require(spw_payload_count(payload) == frames);
    const spw_slice *slices = spw_payload_slices(payload);
    check_places(slices, frames);
    const uint8_t *body = all.bodies;
    for (uint64_t i = 0; i < frames; i++) {
        const uint8_t *got = spw_slice_data(&slices[i]);
        uint64_t place = place_of(&all, i);
        require(slices[i].size == number_at(all.lengths + 8 * i));
        run->digest = mix(run->digest, got, slices[i].size);
        if (place == 0) {
            require(memcmp(got, body, (size_t)slices[i].size) == 0);
            body += slices[i].size;
            continue;
        }
        require(slices[i].size > 0);
        for (uint64_t k = 0; k < slices[i].size; k++)
            require(got[k] == remote_byte(place > 1 ? place : 0, k));
        run->remote_bytes += slices[i].size;
    }
    require(body == run->data + run->place);
    require(spw__message_reader_is_idle(run->reader));

    spw_budget_figures figures;
    spw_budget_read(run->budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_IN_FLIGHT] == 0);
    require(figures.used_bytes[SPW_CHARGE_HELD] >=
            spw_payload_bytes(payload) - run->adopted_bytes);
    run->adopted_bytes = 0;
    spw_payload_free(payload);
    spw_budget_read(run->budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_HELD] == 0);
    run->start = run->place;
}

/* The next bytes of a body that does not come in the stream. */
static void step_remote(reading *run)
{
    spw__remote_range range;
    size_t unused;
    require(spw__message_reader_remote(run->reader, &range) && range.size > 0);
    require(spw__message_reader_direct(run->reader, &unused) == NULL && unused == 0);
    bool adopts = run->is_cut && range.may_adopt && next_random(run) % 2 == 0;
    size_t size = (size_t)range.size;
    if (run->is_cut && !adopts && next_random(run) % 2 == 0)
        size = 1 + next_random(run) % size;
    /* Aligned, as a mapping is. */
    uint8_t *to = adopts ? aligned_alloc(64, (size + 63) / 64 * 64) : range.to;
    require(to != NULL);
    uint64_t start = range.address != 0 ? range.address - range.filled : 0;
    for (size_t i = 0; i < size; i++)
        to[i] = remote_byte(start, range.filled + i);
    if (adopts) {
        spw_buffer *buffer;
        require(range.filled == 0);
        require(spw_buffer_wrap(run->context, to, size, true, free, to, &buffer,
                                NULL) == SPW_STATUS_OK);
        run->adopted_bytes += size;
        run->status = spw__message_reader_adopt(run->reader, buffer, NULL);
    } else {
        run->status = spw__message_reader_advance_remote(run->reader, size, NULL);
    }
}

static void step(reading *run)
{
    size_t left = run->size - run->place;
    size_t size = left;
    if (run->is_cut) {
        uint32_t choice = next_random(run);
        size = choice % 8 == 0 ? 1 : 1 + (choice >> 8) % (choice % 8 == 1 ? 5000 : 64);
        size = size < left ? size : left;
    }
    size_t room = 0;
    void *direct = NULL;
    if (run->is_cut && next_random(run) % 2 == 0)
        direct = spw__message_reader_direct(run->reader, &room);
    if (room > 0) {
        size = size < room ? size : room;
        memcpy(direct, run->data + run->place, size);
        run->place += size;
        run->status = spw__message_reader_advance(run->reader, size, NULL);
    } else {
        size_t consumed = size; /* stays so on an error, which ends the run */
        run->status = spw__message_reader_feed(run->reader, run->data + run->place,
                                               size, &consumed, NULL);
        require(run->status != SPW_STATUS_OK || consumed == size ||
                spw__message_reader_is_whole(run->reader) ||
                spw__message_reader_is_held(run->reader) ||
                spw__message_reader_is_remote(run->reader));
        run->place += consumed;
    }
}

/* A message that is held has been given nothing. */
static void step_held(reading *run)
{
    size_t consumed, size;
    spw_budget_figures figures;
    spw_budget_read(run->budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_IN_FLIGHT] == 0);
    require(spw__message_reader_missing(run->reader) >= HOLD_FROM);
    require(spw__message_reader_direct(run->reader, &size) == NULL && size == 0);
    require(spw__message_reader_feed(run->reader, "x", 1, &consumed, NULL) ==
                SPW_STATUS_OK &&
            consumed == 0);
    run->status = spw__message_reader_go_on(run->reader, NULL);
}

static void check_lost(reading *run)
{
    size_t size, consumed = 77;
    require(run->status == SPW_STATUS_PROTOCOL ||
            run->status == SPW_STATUS_LIMIT_EXCEEDED);
    require(spw__message_reader_direct(run->reader, &size) == NULL && size == 0);
    require(spw__message_reader_feed(run->reader, "x", 1, &consumed, NULL) ==
            SPW_STATUS_CLOSED);
    require(consumed == 77 && !spw__message_reader_is_whole(run->reader) &&
            !spw__message_reader_is_idle(run->reader));
}

static void read_all(reading *run)
{
    require(spw_budget_create(0, &run->budget, NULL) == SPW_STATUS_OK);
    spw_context_options options = SPW_CONTEXT_OPTIONS_INIT;
    options.allocator = (spw_allocator){allocate, release, &run->memory};
    options.budget = run->budget;
    options.limits.frames_per_message = FRAMES_LIMIT;
    options.limits.bytes_per_message = BYTES_LIMIT;
    require(spw_context_create(&options, &run->context, NULL) == SPW_STATUS_OK);
    require(spw__message_reader_create(run->context, spw_sink_heap(run->context),
                                       &run->reader, NULL) == SPW_STATUS_OK);
    if (run->allows_references)
        spw__message_reader_allow_references(run->reader);
    if (run->is_cut)
        spw__message_reader_hold_from(run->reader, HOLD_FROM);
    run->memory_before = run->memory.live_bytes;

    while (run->status == SPW_STATUS_OK &&
           (run->place < run->size || spw__message_reader_is_held(run->reader) ||
            spw__message_reader_is_remote(run->reader)) &&
           run->remote_bytes < REMOTE_LIMIT) {
        if (spw__message_reader_is_held(run->reader))
            step_held(run);
        else if (spw__message_reader_is_remote(run->reader))
            step_remote(run);
        else
            step(run);
        check_memory(run);
        if (run->status == SPW_STATUS_OK && spw__message_reader_is_whole(run->reader))
            take(run);
    }
    if (run->status != SPW_STATUS_OK)
        check_lost(run);
    else
        require(spw__message_reader_is_idle(run->reader) == (run->place == run->start));

    spw__message_reader_free(run->reader);
    spw_budget_figures figures;
    spw_budget_read(run->budget, &figures);
    require(figures.used_bytes[SPW_CHARGE_IN_FLIGHT] == 0);
    spw_context_unref(run->context);
    require(run->memory.live_bytes == 0);
    spw_budget_free(run->budget);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reading whole[2], cut[2];
    for (int allows = 0; allows < 2; allows++) {
        whole[allows] =
            (reading){.data = data, .size = size, .allows_references = allows == 1};
        cut[allows] = whole[allows];
        cut[allows].is_cut = true;
        cut[allows].random =
            (uint32_t)mix(UINT64_C(14695981039346656037), data, size) | 1;
        read_all(&whole[allows]);
        read_all(&cut[allows]);
        require(whole[allows].status == cut[allows].status &&
                whole[allows].digest == cut[allows].digest &&
                whole[allows].start == cut[allows].start);
    }
    /* To allow references changes nothing where there are none. */
    require(whole[1].start >= whole[0].start);
    if (whole[0].start == size)
        require(whole[1].start == size && whole[1].digest == whole[0].digest);
    return 0;
}
