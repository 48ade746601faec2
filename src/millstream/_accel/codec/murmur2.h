/* The hash by which Kafka's clients spread keys, for loops that have many of them. */

#ifndef MILLSTREAM_MURMUR2_H
#define MILLSTREAM_MURMUR2_H

#include <stddef.h>
#include <stdint.h>

#define MS_MURMUR2_SEED UINT32_C(0x9747b28c)
#define MS_MURMUR2_MULTIPLIER UINT32_C(0x5bd1e995)

static inline uint32_t ms_murmur2(const uint8_t *p, size_t size)
{
    uint32_t h = MS_MURMUR2_SEED ^ (uint32_t)size;
    for (; size >= 4; size -= 4, p += 4) {
        /* Put together by hand: right on either endianness, one load where it is little. */
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
            | (uint32_t)p[3] << 24;
        k *= MS_MURMUR2_MULTIPLIER;
        k ^= k >> 24;
        h = (h * MS_MURMUR2_MULTIPLIER) ^ (k * MS_MURMUR2_MULTIPLIER);
    }
    if (size >= 3)
        h ^= (uint32_t)p[2] << 16;
    if (size >= 2)
        h ^= (uint32_t)p[1] << 8;
    if (size >= 1)
        h = (h ^ p[0]) * MS_MURMUR2_MULTIPLIER;
    h = (h ^ h >> 13) * MS_MURMUR2_MULTIPLIER;
    return h ^ h >> 15;
}

#endif
