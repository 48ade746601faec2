/* Blocks of a file beyond its end, taken before they are written. */

#ifndef MILLSTREAM_PREALLOCATION_H
#define MILLSTREAM_PREALLOCATION_H

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/magic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Whether so many bytes from a position on have their blocks now; the file keeps its size.

   Only on ext4, which else reserves and accounts for every block of a write: a third of the cost of
   an append. XFS does it by itself, tmpfs would have to find memory. */
static inline int ms_preallocate(int descriptor, int64_t position, int64_t size)
{
    struct statfs system;
    struct stat file;
    if (fstatfs(descriptor, &system) < 0 || system.f_type != EXT4_SUPER_MAGIC)
        return 0;
    if (fallocate(descriptor, FALLOC_FL_KEEP_SIZE, position, size) == 0)
        return 1;
    /* A full disk has given what was left of it, which others need: cutting at the size frees it. */
    if (fstat(descriptor, &file) == 0 && ftruncate(descriptor, file.st_size) < 0)
        return 0;
    return 0;
}

#endif
