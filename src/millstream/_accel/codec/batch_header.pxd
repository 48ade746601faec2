"""The header of a batch in place, for all who read or number batches. See records/layout.py."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from millstream._accel.wire cimport MS_LENGTH_AT, MS_LENGTH_END, ms_read_big_endian

cdef enum:
    EPOCH_AT = 12
    MAGIC_AT = 16
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    COUNT_AT = 57
    MAGIC = 2
    LENGTH_MIN = 49
    CODEC_BITS = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20


cdef inline int64_t batch_size(const uint8_t* batch) noexcept nogil:
    return MS_LENGTH_END + <int32_t>ms_read_big_endian(batch + MS_LENGTH_AT, 4)


cdef inline int16_t attributes_of(const uint8_t* batch) noexcept nogil:
    return <int16_t>ms_read_big_endian(batch + ATTRIBUTES_AT, 2)


cdef inline int64_t next_offset_of(const uint8_t* batch) noexcept nogil:
    """The first offset behind a batch. A message of an old format carries its last offset."""
    cdef int64_t base = ms_read_big_endian(batch, 8)
    if batch[MAGIC_AT] < MAGIC:
        return base + 1
    return base + <int32_t>ms_read_big_endian(batch + LAST_DELTA_AT, 4) + 1


cdef inline int32_t epoch_of(const uint8_t* batch) noexcept nogil:
    return -1 if batch[MAGIC_AT] < MAGIC else <int32_t>ms_read_big_endian(batch + EPOCH_AT, 4)
