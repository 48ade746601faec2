/* Large pieces of memory, in large pages where the system has them: a page that is touched for the
   first time costs more than the records that come into it, and a large one less than its parts. */

#ifndef MILLSTREAM_LARGE_MEMORY_H
#define MILLSTREAM_LARGE_MEMORY_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#ifndef _WIN32
#include <sys/mman.h>
#endif

#define MS_LARGE_PAGE ((size_t)2 << 20)

/* To be freed with `free`; NULL without memory. */
static inline void *ms_large_allocate(size_t size)
{
#ifdef MADV_HUGEPAGE
    void *memory = NULL;
    if (posix_memalign(&memory, MS_LARGE_PAGE, size))
        return NULL;
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a wish only */
    return memory;
#else
    return malloc(size);
#endif
}

#endif
