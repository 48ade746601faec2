/* Memory in large pages. Any thread, no GIL. */

#include "large_memory.h"

#include <stdlib.h>
#include <sys/mman.h>

void *ms_large_allocate(size_t size)
{
#ifdef MADV_HUGEPAGE
    void *memory = NULL;
    if (posix_memalign(&memory, MS_LARGE_PAGE, size))
        return NULL;
    (void)madvise(memory, size, MADV_HUGEPAGE); /* a hint only */
    return memory;
#else
    return malloc(size);
#endif
}
