#include "fake_system.h"

#include <stdatomic.h>

#include "platform/clock.h"
#include "platform/process.h"

static _Atomic uint64_t clock_ms, resident_bytes;

void fake_clock_set(uint64_t ms)
{
    clock_ms = ms;
}

void fake_resident_set(uint64_t bytes)
{
    resident_bytes = bytes;
}

uint64_t __real_spw__clock_ms(void);
uint64_t __wrap_spw__clock_ms(void);
uint64_t __wrap_spw__clock_ms(void)
{
    return clock_ms != 0 ? clock_ms : __real_spw__clock_ms();
}

uint64_t __real_spw__process_resident_bytes(void);
uint64_t __wrap_spw__process_resident_bytes(void);
uint64_t __wrap_spw__process_resident_bytes(void)
{
    return resident_bytes != 0 ? resident_bytes : __real_spw__process_resident_bytes();
}
