/* mremap as Linux before 6.17 has it, whatever the tests run on: what is several
 * mappings does not move, and what was mapped where it was to go is unmapped by then.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

void *__real_mremap(void *from, size_t size, size_t new_size, int flags, ...);
void *__wrap_mremap(void *from, size_t size, size_t new_size, int flags, ...);

/* Several mappings cannot grow, and that is said before there is looked for room. */
static int is_several(void *from, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (__real_mremap(from, size, size + page, 0) == MAP_FAILED)
        return errno == EFAULT;
    (void)munmap((char *)from + size, page);
    return 0;
}

void *__wrap_mremap(void *from, size_t size, size_t new_size, int flags, ...)
{
    if ((flags & MREMAP_FIXED) == 0)
        return __real_mremap(from, size, new_size, flags);
    va_list arguments;
    va_start(arguments, flags);
    void *to = va_arg(arguments, void *);
    va_end(arguments);
    if (!is_several(from, size))
        return __real_mremap(from, size, new_size, flags, to);
    (void)munmap(to, new_size);
    errno = EFAULT;
    return MAP_FAILED;
}
