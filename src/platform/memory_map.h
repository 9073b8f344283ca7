/* What the library asks of the operating system for memory of its own: whole ranges of
 * address space, private and zeroed. Thread: any. */
#ifndef SPW_PLATFORM_MEMORY_MAP_H
#define SPW_PLATFORM_MEMORY_MAP_H

#include <stddef.h>

/* Where a huge page may begin. A system whose huge pages are larger gives small ones.
 */
#define SPW__HUGE_PAGE_BYTES ((size_t)2 << 20)

typedef enum spw__page_kind {
    SPW__PAGES_SMALL, /* one touched page is one page of memory, on every system */
    SPW__PAGES_HUGE   /* where the system has them; begins on SPW__HUGE_PAGE_BYTES */
} spw__page_kind;

/* A power of two. */
size_t spw__memory_page_bytes(void);
/* Map size bytes, a multiple of the page (> 0). Returns: 0, or a negative errno. */
int spw__memory_map(size_t size, spw__page_kind pages, void **ret_data);
/* Give back any range of whole pages that was mapped, or several that touch. */
void spw__memory_unmap(void *data, size_t size);
/* The kernel has what is mapped in mappings, which it joins and cuts as it likes.
 * Returns: how many of size bytes (> 0), whole pages that are mapped and not touched
 * meanwhile, are of the first one. */
size_t spw__memory_mapping_part(void *data, size_t size);
/* Move the memory of whole pages, of one mapping, to where other pages are mapped,
 * whose memory goes. Of several mappings some may have moved when it fails, and a Linux
 * before 6.17 has then unmapped the other pages, where anybody may map since. The old
 * addresses are mapped no more. Returns: 0, or a negative errno, and nothing has
 * changed. */
int spw__memory_move(void *from, size_t size, void *to);
/* The same, but the old addresses stay mapped, and read as zero. Errors: -EINVAL on a
 * Linux before 5.7. */
int spw__memory_move_pages(void *from, size_t size, void *to);
/* Give the memory under whole pages back and keep the addresses: they read as zero. */
void spw__memory_discard(void *data, size_t size);

#endif
