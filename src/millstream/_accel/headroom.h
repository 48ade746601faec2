/* Blocks of a file beyond its end, taken before they are written. */

#ifndef MILLSTREAM_HEADROOM_H
#define MILLSTREAM_HEADROOM_H

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/vfs.h>

/* Whether so many bytes from a position on have their blocks now; the file keeps its size.

   Only on ext4, which else reserves and accounts for every block of a write: a third of the cost of
   an append. XFS does it by itself, tmpfs would have to find memory. */
static inline int ms_make_headroom(int descriptor, int64_t position, int64_t size)
{
    struct statfs status;
    return fstatfs(descriptor, &status) == 0
        && status.f_type == EXT4_SUPER_MAGIC
        && fallocate(descriptor, FALLOC_FL_KEEP_SIZE, position, size) == 0;
}

#endif
