/* Messages for tests, byte by byte: the format of Dask's messages written a second
 * time, from docs/wire_format.md, independently of the code under test. */
#ifndef TEST_WIRE_BYTES_H
#define TEST_WIRE_BYTES_H

#include <stddef.h>
#include <stdint.h>

/* Bytes that grow. Starts all zero. */
typedef struct wire_bytes {
    uint8_t *bytes;
    size_t size, room;
} wire_bytes;

void wire_clear(wire_bytes *wire);
void wire_put(wire_bytes *wire, const void *data, size_t size);
void wire_put_u64(wire_bytes *wire, uint64_t value);
/* The number that wire_put_u64 has put there. */
uint64_t wire_number_at(const uint8_t *data);
/* size bytes that follow from seed. */
void wire_put_noise(wire_bytes *wire, size_t size, unsigned seed);
/* A file of the corpus: tests/fuzz/corpus/<path>. */
void wire_put_corpus(wire_bytes *wire, const char *path);

/* msgpack. */
void wire_put_map(wire_bytes *wire, size_t pairs);
void wire_put_array(wire_bytes *wire, size_t items);
void wire_put_unsigned(wire_bytes *wire, uint64_t value);
void wire_put_string(wire_bytes *wire, const char *text);
void wire_put_nil(wire_bytes *wire);

/* A sub-header as stock writes it. */
typedef struct wire_value {
    const size_t *shards; /* of each buffer; NULL: no split keys */
    size_t buffers;
    const char *const *compression; /* one name or NULL a sub-frame; NULL: no key */
    size_t sub_frames;
} wire_value;
void wire_put_sub_header(wire_bytes *wire, const wire_value *value);

/* Begin anew, with the head of a message. */
void wire_begin(wire_bytes *wire, uint64_t first_segment, uint64_t frames);
/* A message of frames, of which the first segment holds first_frames. */
void wire_put_message(wire_bytes *wire, const wire_bytes *frames, size_t count,
                      size_t first_frames);
/* The same with a place for each frame: those that have one other than 0 are left out.
 */
void wire_put_referenced(wire_bytes *wire, const wire_bytes *frames, size_t count,
                         const uint64_t *places);

#endif
