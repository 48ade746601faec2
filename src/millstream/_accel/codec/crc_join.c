/* The CRC-32C of two parts put together. Any thread, no GIL: it has no state. */

#include "codec/crc_join.h"

#define MS_CRC_REFLECTED 0x82f63b78u

/* The product of two polynomials modulo that of the CRC; the highest bit stands for 1. */
static uint32_t ms_crc_multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        if (a & UINT32_C(0x80000000))
            product ^= b;
        b = (b >> 1) ^ ((b & 1) ? MS_CRC_REFLECTED : 0);
    }
    return product;
}

uint32_t ms_crc_join(uint32_t first, uint32_t second, uint64_t second_size)
{
    uint32_t factor = UINT32_C(0x80000000);
    uint32_t power = UINT32_C(0x80000000) >> 8; /* one byte further */
    for (; second_size; second_size >>= 1) {
        if (second_size & 1)
            factor = ms_crc_multiply(factor, power);
        power = ms_crc_multiply(power, power);
    }
    return ms_crc_multiply(factor, first) ^ second;
}
