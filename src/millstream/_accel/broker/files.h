/* Several buffers into a file with as few calls as the system allows. */

#ifndef MILLSTREAM_FILES_H
#define MILLSTREAM_FILES_H

#include <errno.h>
#include <stdint.h>
#include <sys/uio.h>
#include <unistd.h>

#define MS_PARTS_MAX 1024

/* What is left of the parts after `count` bytes; the first one may be cut. */
static inline int ms_skip_parts(struct iovec **parts, int left, int64_t count)
{
    while (left > 0 && count >= (int64_t)(*parts)->iov_len) {
        count -= (int64_t)(*parts)->iov_len;
        (*parts)++;
        left--;
    }
    if (left > 0) {
        (*parts)->iov_base = (char *)(*parts)->iov_base + count;
        (*parts)->iov_len -= (size_t)count;
    }
    return left;
}

/* Write all of it at a position, or give the errno with some prefix written. Changes the parts. */
static inline int ms_write_parts(int descriptor, struct iovec *parts, int count, int64_t position)
{
    while (count > 0) {
        int some = count < MS_PARTS_MAX ? count : MS_PARTS_MAX;
        ssize_t written = some == 1
            ? pwrite(descriptor, parts->iov_base, parts->iov_len, position)
            : pwritev(descriptor, parts, some, position);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return errno;
        if (written == 0)
            return EIO;
        position += written;
        count = ms_skip_parts(&parts, count, written);
    }
    return 0;
}

#endif
