/* xxHash is compiled in by its header, which is all that it takes: a library at run
 * time would cost a call and bring nothing. */
#include "memory/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#if XXH_VERSION_NUMBER < 800
#error "before xxHash 0.8.0 XXH3 could still change"
#endif

uint64_t spw__checksum(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

_Static_assert(sizeof(XXH3_state_t) <= sizeof(spw__checksum_state), "room for it");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(spw__checksum_state), "its boundary");

void spw__checksum_begin(spw__checksum_state *state)
{
    (void)XXH3_64bits_reset((XXH3_state_t *)state->inside);
}

void spw__checksum_add(spw__checksum_state *state, const void *data, size_t size)
{
    (void)XXH3_64bits_update((XXH3_state_t *)state->inside, data, size);
}

uint64_t spw__checksum_end(const spw__checksum_state *state)
{
    return XXH3_64bits_digest((const XXH3_state_t *)state->inside);
}
