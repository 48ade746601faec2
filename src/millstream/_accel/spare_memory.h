/* Large buffers of columns that were let go, kept for the next ones: fresh memory costs as much to
   touch as the rows that come into it. A few for the whole process; any thread, no GIL.

   Who finds the lock taken goes without, so that a forked child cannot wait for ever. */

#ifndef MILLSTREAM_SPARE_MEMORY_H
#define MILLSTREAM_SPARE_MEMORY_H

#include <Python.h>
#include <stdint.h>

#include "atomics.h"

#define MS_SPARE_SIZE_MIN (1 << 20)
#define MS_SPARE_SIZE_MAX (8 << 20)
#define MS_SPARES_MAX 2

static struct {
    int is_taken;
    int count;
    struct {
        void *data;
        int64_t capacity;
    } spares[MS_SPARES_MAX];
} ms_spare_memory;

/* Memory for `size` bytes that is not more than twice as large, and how much it is; or NULL. */
static inline void *ms_spare_take(int64_t size, int64_t *capacity)
{
    void *data = NULL;
    if (size < MS_SPARE_SIZE_MIN || ms_take(&ms_spare_memory.is_taken))
        return NULL;
    for (int i = 0; i < ms_spare_memory.count && !data; i++) {
        int64_t found = ms_spare_memory.spares[i].capacity;
        if (found < size || found > 2 * size)
            continue;
        data = ms_spare_memory.spares[i].data;
        *capacity = found;
        ms_spare_memory.spares[i] = ms_spare_memory.spares[--ms_spare_memory.count];
    }
    ms_give_back(&ms_spare_memory.is_taken);
    return data;
}

/* Keep memory of PyMem_RawMalloc, or free it. */
static inline void ms_spare_keep(void *data, int64_t capacity)
{
    int is_kept = 0;
    if (capacity >= MS_SPARE_SIZE_MIN && capacity <= MS_SPARE_SIZE_MAX
        && !ms_take(&ms_spare_memory.is_taken)) {
        is_kept = ms_spare_memory.count < MS_SPARES_MAX;
        if (is_kept) {
            ms_spare_memory.spares[ms_spare_memory.count].data = data;
            ms_spare_memory.spares[ms_spare_memory.count++].capacity = capacity;
        }
        ms_give_back(&ms_spare_memory.is_taken);
    }
    if (!is_kept)
        PyMem_RawFree(data);
}

#endif
