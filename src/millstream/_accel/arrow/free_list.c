/* A free list of the buffers of Arrow columns: fresh memory costs as much to touch as the rows that
   come into it. One list for the whole process; any thread, no GIL.

   A thread that finds the lock taken goes without the list, so that a forked child cannot wait for
   ever. */

#include "arrow/free_list.h"

#include <Python.h>
#include <stdint.h>

#include "atomics.h"
#include "large_memory.h"

#define MS_FREE_SIZE_MIN ((int64_t)64 << 10) /* less comes from the allocator as quickly */
#define MS_FREE_SIZE_MAX ((int64_t)8 << 20)
#define MS_FREE_BYTES_MAX ((int64_t)16 << 20)
#define MS_FREE_COUNT_MAX 32

static struct {
    int is_taken;
    int count;
    int64_t bytes;
    struct {
        void *data;
        int64_t capacity;
    } buffers[MS_FREE_COUNT_MAX];
} ms_free_list;

/* Memory is asked for, and freed, by its size. The small part comes from Python's raw allocator,
   which needs no GIL. */
static inline int ms_is_large(int64_t capacity) { return capacity >= (int64_t)MS_LARGE_PAGE; }

/* The smallest buffer for `size` bytes that is not more than twice as large; *capacity tells how
   large it is. NULL if there is none. */
static void *ms_free_take(int64_t size, int64_t *capacity)
{
    void *data = NULL;
    int best = -1;
    if (size < MS_FREE_SIZE_MIN || ms_take(&ms_free_list.is_taken))
        return NULL;
    for (int i = 0; i < ms_free_list.count; i++) {
        int64_t found = ms_free_list.buffers[i].capacity;
        if (found >= size && found <= 2 * size
            && (best < 0 || found < ms_free_list.buffers[best].capacity))
            best = i;
    }
    if (best >= 0) {
        data = ms_free_list.buffers[best].data;
        *capacity = ms_free_list.buffers[best].capacity;
        ms_free_list.bytes -= *capacity;
        ms_free_list.buffers[best] = ms_free_list.buffers[--ms_free_list.count];
    }
    ms_give_back(&ms_free_list.is_taken);
    return data;
}

static int ms_free_keep(void *data, int64_t capacity)
{
    int is_kept = 0;
    if (capacity >= MS_FREE_SIZE_MIN && capacity <= MS_FREE_SIZE_MAX
        && !ms_take(&ms_free_list.is_taken)) {
        is_kept = ms_free_list.count < MS_FREE_COUNT_MAX
            && ms_free_list.bytes + capacity <= MS_FREE_BYTES_MAX;
        if (is_kept) {
            ms_free_list.bytes += capacity;
            ms_free_list.buffers[ms_free_list.count].data = data;
            ms_free_list.buffers[ms_free_list.count++].capacity = capacity;
        }
        ms_give_back(&ms_free_list.is_taken);
    }
    return is_kept;
}

void *ms_memory_take(int64_t *capacity)
{
    void *data = ms_free_take(*capacity, capacity);
    if (data)
        return data;
    return ms_is_large(*capacity) ? ms_large_allocate((size_t)*capacity)
                                  : PyMem_RawMalloc((size_t)*capacity);
}

void ms_memory_free(void *data, int64_t capacity)
{
    if (!data || ms_free_keep(data, capacity))
        return;
    if (ms_is_large(capacity))
        free(data);
    else
        PyMem_RawFree(data);
}
