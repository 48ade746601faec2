/* Large pieces of memory, in large pages where the system has them: a page that is touched for the
   first time costs more than the records that come into it, and a large one less than its parts. */

#ifndef MILLSTREAM_LARGE_MEMORY_H
#define MILLSTREAM_LARGE_MEMORY_H

#include <stddef.h>

#define MS_LARGE_PAGE ((size_t)2 << 20)

/* To be freed with `free`; NULL without memory. */
void *ms_large_allocate(size_t size);

#endif
