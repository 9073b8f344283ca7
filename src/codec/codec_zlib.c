/* zlib: one zlib stream (RFC 1950), what Python's zlib.compress writes. It never says
 * how much it holds. */
#define ZLIB_CONST
#include <limits.h>
#include <zlib.h>

#include "codec/codec_ops.h"
#include "context/error.h"

/* Deflate (RFC 1951): 258 bytes from a one-bit length code and a one-bit distance code;
 * the limit that zlib's own technical notes give. */
#define HIGHEST_RATIO 1032

/* Invariant: the stream's next_in and avail_in are followed by rest more bytes, since
 * zlib counts its input in unsigned int. */
typedef struct inflate_state {
    z_stream stream;
    size_t rest;
} inflate_state;

static uInt piece_of(size_t size)
{
    return size < UINT_MAX ? (uInt)size : UINT_MAX;
}

static spw_status inflate_failed(const inflate_state *state, int code, spw_error *error)
{
    if (code == Z_MEM_ERROR)
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a zlib decompressor");
    const char *text =
        code == Z_NEED_DICT ? "it needs a preset dictionary" : state->stream.msg;
    return spw__error_set(error, SPW_STATUS_CORRUPT, 0, "a zlib frame is damaged: %s",
                          text != NULL ? text : zError(code));
}

static spw_status start(inflate_state *state, const void *data, size_t size,
                        spw_error *error)
{
    state->stream = (z_stream){.next_in = data, .avail_in = piece_of(size)};
    state->rest = size - state->stream.avail_in;
    int code = inflateInit(&state->stream);
    return code == Z_OK ? SPW_STATUS_OK : inflate_failed(state, code, error);
}

/* Decompress until out is full or the stream has ended. A stream that ends with the
 * last byte of out is seen to end; one whose input ends while out has room is CORRUPT.
 */
static spw_status fill(inflate_state *state, void *out, size_t out_size,
                       size_t *ret_written, bool *ret_is_end, spw_error *error)
{
    z_stream *stream = &state->stream;
    size_t written = 0;
    for (;;) {
        if (stream->avail_in == 0) {
            stream->avail_in = piece_of(state->rest);
            state->rest -= stream->avail_in;
        }
        uInt room = piece_of(out_size - written);
        stream->next_out = (Bytef *)out + written;
        stream->avail_out = room;
        int code = inflate(stream, Z_NO_FLUSH);
        written += room - stream->avail_out;
        if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
            return inflate_failed(state, code, error);
        bool is_end = code == Z_STREAM_END;
        bool is_input_gone = stream->avail_in == 0 && state->rest == 0;
        if (is_end && !is_input_gone)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "a zlib frame is followed by other bytes");
        if (!is_end && is_input_gone && stream->avail_out > 0)
            return spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                  "a zlib frame is truncated");
        /* With input left and no room, the end of the stream may still be ahead: only
         * when all input was offered is a full output the answer. */
        bool is_full = written == out_size && (stream->avail_in > 0 || is_input_gone);
        if (is_end || is_full) {
            *ret_written = written;
            *ret_is_end = is_end;
            return SPW_STATUS_OK;
        }
    }
}

static spw_status decompress(const void *data, size_t size, void *out, size_t out_size,
                             spw_error *error)
{
    inflate_state state;
    spw_status status = start(&state, data, size, error);
    if (status != SPW_STATUS_OK)
        return status;
    size_t written = 0;
    bool is_end = false;
    status = fill(&state, out, out_size, &written, &is_end, error);
    if (status == SPW_STATUS_OK && (!is_end || written != out_size))
        status = spw__error_set(error, SPW_STATUS_CORRUPT, 0,
                                "a zlib frame does not end at the %zu bytes expected",
                                out_size);
    inflateEnd(&state.stream);
    return status;
}

static spw_status expand(const void *data, size_t size, spw__plain_output *output,
                         spw_error *error)
{
    inflate_state state;
    spw_status status = start(&state, data, size, error);
    if (status != SPW_STATUS_OK)
        return status;
    bool is_end = false;
    while (status == SPW_STATUS_OK && !is_end) {
        void *place;
        size_t room, written;
        status = spw__plain_output_room(output, &place, &room, error);
        if (status == SPW_STATUS_OK)
            status = fill(&state, place, room, &written, &is_end, error);
        if (status == SPW_STATUS_OK)
            spw__plain_output_advance(output, written);
    }
    inflateEnd(&state.stream);
    return status;
}

static size_t bound(size_t size)
{
    size_t most = compressBound(size);
    return most > size ? most : 0; /* it has wrapped */
}

static spw_status compress_frame(const void *data, size_t size, void *out,
                                 size_t out_size, size_t *ret_size, spw_error *error)
{
    uLongf written = out_size;
    switch (compress2(out, &written, data, size, Z_DEFAULT_COMPRESSION)) {
    case Z_OK:
        *ret_size = written;
        return SPW_STATUS_OK;
    case Z_MEM_ERROR:
        return spw__error_set(error, SPW_STATUS_NO_MEMORY, 0,
                              "no memory for a zlib compressor");
    default:
        return spw__error_set(error, SPW_STATUS_LIMIT_EXCEEDED, 0,
                              "%zu bytes do not compress to a zlib frame of %zu", size,
                              out_size);
    }
}

const spw__codec_ops spw__codec_zlib = {
    .id = SPW_CODEC_ZLIB,
    .name = "zlib",
    .highest_ratio = HIGHEST_RATIO,
    .decompress = decompress,
    .expand = expand,
    .bound = bound,
    .compress = compress_frame,
};
