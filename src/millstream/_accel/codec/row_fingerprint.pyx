# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""What rows are, in any order, as two numbers, compiled.

There it says what the numbers are for and how they are made: both must agree to the last bit,
because one of them is stored and compared years later.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from millstream._accel.arrow.input cimport (
    MS_ROW_DONE, ms_input, ms_partition_at, ms_read_row, ms_row, ms_string_at)
from millstream._accel.arrow.reader cimport ArrowChunk, raise_row

cdef uint64_t SPREADING = <uint64_t>0x9e3779b97f4a7c15
cdef uint64_t ENDING = <uint64_t>0xbf58476d1ce4e5b9


cdef struct ms_sums:
    uint64_t keys
    uint64_t content


cdef inline uint64_t absorb(uint64_t state, uint64_t word) noexcept nogil:
    state = (state ^ word) * SPREADING
    return state ^ state >> 32


cdef inline uint64_t ended(uint64_t state) noexcept nogil:
    state = (state ^ state >> 29) * ENDING
    return state ^ state >> 32


cdef inline uint64_t word_at(const uint8_t* p, size_t size) noexcept nogil:
    """Up to eight bytes, little-endian on every machine."""
    cdef uint64_t word = 0
    cdef size_t i
    for i in range(size):
        word |= <uint64_t>p[i] << 8 * i
    return word


cdef inline uint64_t absorb_bytes(
    uint64_t state, const uint8_t* p, int64_t length,
) noexcept nogil:
    """Bytes with their length before them; a negative length is null."""
    if length < 0:
        return absorb(state, 0)
    state = absorb(state, <uint64_t>length + 1)
    while length >= 8:
        state = absorb(state, word_at(p, 8))
        p += 8
        length -= 8
    return absorb(state, word_at(p, <size_t>length)) if length else state


cdef int fold(
    const ms_input* input, int64_t row, uint64_t seed, ms_sums* sums,
) noexcept nogil:
    """Add one row to the sums; what `ms_read_row` found."""
    cdef ms_row fields
    cdef const uint8_t* data = NULL
    cdef int64_t i, length
    cdef int is_null = 0
    cdef int outcome = ms_read_row(input, row, &fields)
    if outcome != MS_ROW_DONE:
        return outcome
    cdef int64_t partition = ms_partition_at(input, row, &is_null)
    cdef uint64_t state = absorb(seed, 0 if is_null else <uint64_t>partition + 1)
    state = absorb_bytes(state, fields.key, fields.key_length)
    sums.keys += ended(state)
    state = absorb_bytes(state, fields.value, fields.value_length)
    state = absorb(state, fields.has_timestamp)
    if fields.has_timestamp:
        state = absorb(state, <uint64_t>fields.timestamp)
    state = absorb(state, <uint64_t>fields.header_count)
    for i in range(fields.first_header, fields.first_header + fields.header_count):
        length = ms_string_at(&input.header_key, i, &data)
        state = absorb_bytes(state, data, length)
        length = ms_string_at(&input.header_value, i, &data)
        state = absorb_bytes(state, data, length)
    sums.content += ended(state)
    return outcome


def fold_rows(ArrowChunk chunk, bytes topic):
    """(sum over the keys, sum over the whole rows) of a chunk that goes to `topic`, modulo 2**64.
    """
    cdef ms_sums sums
    cdef int64_t row = 0
    cdef int outcome = MS_ROW_DONE
    cdef uint64_t seed = absorb_bytes(
        0, <const uint8_t*>PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
    sums.keys = sums.content = 0
    with nogil:
        while row < chunk._input.row_count:
            outcome = fold(&chunk._input, row, seed, &sums)
            if outcome != MS_ROW_DONE:
                break
            row += 1
    if outcome != MS_ROW_DONE:
        raise_row(outcome, row)
    return sums.keys, sums.content
