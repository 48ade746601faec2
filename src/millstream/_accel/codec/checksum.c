/* CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) by the fastest means this CPU has.

   Four ways to the same number: the crc32 instruction of SSE4.2 and, for inputs of 1 KiB and more,
   carry-less multiplication of AVX-512 (both asked for at run time, so one build serves every
   x86-64), the CRC instructions of ARMv8 (when the compiler targets them) and slicing-by-8 tables.
   The instruction takes three cycles but starts one per cycle, so long inputs run as three lanes
   whose results are joined by "append n zero bytes" tables.

   ms_crc32c_init fills the tables. The extension module calls it once, on import, before any
   other thread can reach the functions; afterwards the tables are only read. */

#include "codec/checksum.h"

#include <string.h>

#define MS_CRC_POLYNOMIAL 0x82f63b78u
#define MS_CRC_LONG_LANE 4096
#define MS_CRC_SHORT_LANE 256

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>
#define MS_CRC_INSTRUCTIONS "sse4.2"
#define MS_CRC_TARGET __attribute__((target("sse4.2")))
#define MS_CRC_BYTE(crc, byte) _mm_crc32_u8((uint32_t)(crc), (byte))
#define MS_CRC_WORD(crc, word) _mm_crc32_u64((crc), (word))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define MS_CRC_INSTRUCTIONS "armv8"
#define MS_CRC_TARGET
#define MS_CRC_BYTE(crc, byte) __crc32cb((uint32_t)(crc), (byte))
#define MS_CRC_WORD(crc, word) __crc32cd((uint32_t)(crc), (word))
#endif

static uint32_t ms_crc_slices[8][256];

static void ms_crc_fill_slices(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? MS_CRC_POLYNOMIAL : 0);
        ms_crc_slices[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = ms_crc_slices[0][byte];
        for (int slice = 1; slice < 8; slice++) {
            crc = ms_crc_slices[0][crc & 0xff] ^ (crc >> 8);
            ms_crc_slices[slice][byte] = crc;
        }
    }
}

/* Bytes are put together by hand: right on either endianness, one load where it is little. */
static inline uint32_t ms_crc_little_endian(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint32_t ms_crc32c_portable(uint32_t seed, const uint8_t *p, size_t size)
{
    uint32_t crc = ~seed;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low = crc ^ ms_crc_little_endian(p);
        uint32_t high = ms_crc_little_endian(p + 4);
        crc = ms_crc_slices[7][low & 0xff] ^ ms_crc_slices[6][(low >> 8) & 0xff]
            ^ ms_crc_slices[5][(low >> 16) & 0xff] ^ ms_crc_slices[4][low >> 24]
            ^ ms_crc_slices[3][high & 0xff] ^ ms_crc_slices[2][(high >> 8) & 0xff]
            ^ ms_crc_slices[1][(high >> 16) & 0xff] ^ ms_crc_slices[0][high >> 24];
    }
    for (; size > 0; size--, p++)
        crc = ms_crc_slices[0][(crc ^ *p) & 0xff] ^ (crc >> 8);
    return ~crc;
}

#ifdef MS_CRC_INSTRUCTIONS

/* ms_crc_zeros_x[k][b]: what byte k of a CRC, if it is b, becomes after a lane of zero bytes. */
static uint32_t ms_crc_zeros_long[4][256];
static uint32_t ms_crc_zeros_short[4][256];

static void ms_crc_fill_zeros(uint32_t table[4][256], size_t lane)
{
    for (int bit = 0; bit < 32; bit++) {
        uint32_t crc = (uint32_t)1 << bit;
        for (size_t i = 0; i < lane; i++)
            crc = ms_crc_slices[0][crc & 0xff] ^ (crc >> 8);
        table[bit / 8][1 << (bit % 8)] = crc;
    }
    /* The step is linear: every other entry is the XOR of the entries of its bits. */
    for (int k = 0; k < 4; k++)
        for (int byte = 1; byte < 256; byte++)
            if (byte & (byte - 1))
                table[k][byte] = table[k][byte & (byte - 1)] ^ table[k][byte & -byte];
}

static inline uint64_t ms_crc_append_zeros(uint32_t table[4][256], uint64_t crc)
{
    return table[0][crc & 0xff] ^ table[1][(crc >> 8) & 0xff] ^ table[2][(crc >> 16) & 0xff]
        ^ table[3][(crc >> 24) & 0xff];
}

static inline uint64_t ms_crc_load(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

#define MS_CRC_LANES(lane, table)                                                              \
    for (; size >= 3 * (lane); size -= 3 * (lane), p += 2 * (lane)) {                          \
        uint64_t second = 0, third = 0;                                                        \
        for (const uint8_t *end = p + (lane); p < end; p += 8) {                               \
            crc = MS_CRC_WORD(crc, ms_crc_load(p));                                            \
            second = MS_CRC_WORD(second, ms_crc_load(p + (lane)));                             \
            third = MS_CRC_WORD(third, ms_crc_load(p + 2 * (lane)));                           \
        }                                                                                      \
        crc = ms_crc_append_zeros(table, crc) ^ second;                                        \
        crc = ms_crc_append_zeros(table, crc) ^ third;                                         \
    }

MS_CRC_TARGET static uint32_t ms_crc32c_instructions(uint32_t seed, const uint8_t *p, size_t size)
{
    uint64_t crc = (uint32_t)~seed;
    MS_CRC_LANES(MS_CRC_LONG_LANE, ms_crc_zeros_long)
    MS_CRC_LANES(MS_CRC_SHORT_LANE, ms_crc_zeros_short)
    for (; size >= 8; size -= 8, p += 8)
        crc = MS_CRC_WORD(crc, ms_crc_load(p));
    for (; size > 0; size--, p++)
        crc = MS_CRC_BYTE(crc, *p);
    return ~(uint32_t)crc;
}

#endif

/* Folding: 256 bytes at a time with carry-less multiplication, four vectors side by side. What is
   left of them is 16 bytes with the same remainder, which the crc32 instruction takes. */
#if defined(__x86_64__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9))
#include <immintrin.h>
#define MS_CRC_FOLDING "vpclmulqdq"
#define MS_CRC_FOLDING_TARGET __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))
#define MS_CRC_FOLDED_SIZE_MIN 1024

/* What a 128-bit lane is multiplied with to stand so many bytes further on: x to the power of its
   bits plus and minus 32, modulo the polynomial. */
static uint64_t ms_crc_fold_256[2], ms_crc_fold_64[2], ms_crc_fold_48[2], ms_crc_fold_32[2],
    ms_crc_fold_16[2];

static uint64_t ms_crc_power(int bits)
{
    uint32_t power = 0x80000000u;
    while (bits-- > 0)
        power = (power >> 1) ^ ((power & 1) ? MS_CRC_POLYNOMIAL : 0);
    return (uint64_t)power << 1;
}

static void ms_crc_fill_fold(uint64_t fold[2], int bytes)
{
    fold[0] = ms_crc_power(8 * bytes + 32);
    fold[1] = ms_crc_power(8 * bytes - 32);
}

#define MS_CRC_FOLD(x, k, more)                                                                \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),                            \
                              _mm512_clmulepi64_epi128(x, k, 0x11), more, 0x96)
#define MS_CRC_LANE(lane, fold)                                                                \
    _mm_xor_si128(_mm_clmulepi64_si128(lane, _mm_loadu_si128((const __m128i *)fold), 0x00),    \
                  _mm_clmulepi64_si128(lane, _mm_loadu_si128((const __m128i *)fold), 0x11))

static void ms_crc_fill_folds(void)
{
    ms_crc_fill_fold(ms_crc_fold_256, 256);
    ms_crc_fill_fold(ms_crc_fold_64, 64);
    ms_crc_fill_fold(ms_crc_fold_48, 48);
    ms_crc_fill_fold(ms_crc_fold_32, 32);
    ms_crc_fill_fold(ms_crc_fold_16, 16);
}

MS_CRC_FOLDING_TARGET static uint32_t ms_crc32c_folding(
    uint32_t seed, const uint8_t *p, size_t size)
{
    if (size < MS_CRC_FOLDED_SIZE_MIN)
        return ms_crc32c_instructions(seed, p, size);
    __m512i k = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)ms_crc_fold_256));
    __m512i a = _mm512_loadu_si512(p), b = _mm512_loadu_si512(p + 64);
    __m512i c = _mm512_loadu_si512(p + 128), d = _mm512_loadu_si512(p + 192);
    a = _mm512_xor_si512(a, _mm512_castsi128_si512(_mm_cvtsi32_si128((int)~seed)));
    for (p += 256, size -= 256; size >= 256; p += 256, size -= 256) {
        a = MS_CRC_FOLD(a, k, _mm512_loadu_si512(p));
        b = MS_CRC_FOLD(b, k, _mm512_loadu_si512(p + 64));
        c = MS_CRC_FOLD(c, k, _mm512_loadu_si512(p + 128));
        d = MS_CRC_FOLD(d, k, _mm512_loadu_si512(p + 192));
    }
    k = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)ms_crc_fold_64));
    d = MS_CRC_FOLD(MS_CRC_FOLD(MS_CRC_FOLD(a, k, b), k, c), k, d);
    __m128i last = _mm512_extracti32x4_epi32(d, 3);
    last = _mm_xor_si128(last, MS_CRC_LANE(_mm512_extracti32x4_epi32(d, 0), ms_crc_fold_48));
    last = _mm_xor_si128(last, MS_CRC_LANE(_mm512_extracti32x4_epi32(d, 1), ms_crc_fold_32));
    last = _mm_xor_si128(last, MS_CRC_LANE(_mm512_extracti32x4_epi32(d, 2), ms_crc_fold_16));
    uint64_t crc = _mm_crc32_u64(0, (uint64_t)_mm_extract_epi64(last, 0));
    crc = _mm_crc32_u64(crc, (uint64_t)_mm_extract_epi64(last, 1));
    return ms_crc32c_instructions(~(uint32_t)crc, p, size);
}

#endif

uint32_t (*ms_crc32c)(uint32_t seed, const uint8_t *p, size_t size);

const char *ms_crc32c_init(void)
{
    ms_crc_fill_slices();
    ms_crc32c = ms_crc32c_portable;
#ifdef MS_CRC_INSTRUCTIONS
#ifdef __x86_64__
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2"))
        return "portable";
#endif
    ms_crc_fill_zeros(ms_crc_zeros_long, MS_CRC_LONG_LANE);
    ms_crc_fill_zeros(ms_crc_zeros_short, MS_CRC_SHORT_LANE);
    ms_crc32c = ms_crc32c_instructions;
#ifdef MS_CRC_FOLDING
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl")) {
        ms_crc_fill_folds();
        ms_crc32c = ms_crc32c_folding;
        return MS_CRC_FOLDING;
    }
#endif
    return MS_CRC_INSTRUCTIONS;
#else
    return "portable";
#endif
}
