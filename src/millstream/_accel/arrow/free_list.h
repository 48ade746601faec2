/* Memory for the buffers of Arrow columns, from a free list of the process or from the allocator. */

#ifndef MILLSTREAM_ARROW_FREE_LIST_H
#define MILLSTREAM_ARROW_FREE_LIST_H

#include <stdint.h>

/* Memory for *capacity bytes, which may become more; NULL without memory. */
void *ms_memory_take(int64_t *capacity);

void ms_memory_free(void *data, int64_t capacity);

#endif
