/* The CRC-32C of two parts put together, from the CRC of each: for a header that is written after
   its body was summed. */

#ifndef MILLSTREAM_CRC_JOIN_H
#define MILLSTREAM_CRC_JOIN_H

#include <stdint.h>

/* `second_size`: how many bytes the second part has. Takes a microsecond at most, whatever it is. */
uint32_t ms_crc_join(uint32_t first, uint32_t second, uint64_t second_size);

#endif
