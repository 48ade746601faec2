/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) by the fastest means this CPU has. */

#ifndef MILLSTREAM_CHECKSUM_H
#define MILLSTREAM_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Fill the tables and choose; the name of the way that was chosen. The extension module `crc32c`
   calls it once, on import, before another thread can reach the functions. */
const char *ms_crc32c_init(void);

/* The CRC of `size` bytes at `p`, continuing from `seed`. */
extern uint32_t (*ms_crc32c)(uint32_t seed, const uint8_t *p, size_t size);

/* The same by tables alone: what runs on a CPU without the instructions. */
uint32_t ms_crc32c_portable(uint32_t seed, const uint8_t *p, size_t size);

#endif
