#define _DEFAULT_SOURCE /* for madvise */
#include <sys/mman.h>

#include "product.h"

void prefer_large_pages(void *memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
    const uintptr_t page = 4096;
    uintptr_t first = ((uintptr_t)memory + page - 1) / page * page, end = ((uintptr_t)memory + (uintptr_t)bytes) / page * page;
    if (end > first) madvise((void *)first, end - first, MADV_HUGEPAGE);
#else
    (void)memory, (void)bytes;
#endif
}
