# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""What the fast path wants of a client's batch: that it is ordinary, and intact.

An ordinary batch is one that `storage.log.validator` takes as it is, whatever the topic's settings;
so each of its records is read, as there. All others are left to it: it knows all rules and gives
all errors. What the walk over the records costs is in docs/internals/decisions/produce-path.md.
"""

from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t

from millstream._accel.codec.batch_header cimport (
    ATTRIBUTES_AT, BASE_SEQUENCE_AT, BASE_TIMESTAMP_AT, COUNT_AT, EPOCH_AT, LAST_DELTA_AT, MAGIC,
    MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_EPOCH_AT, PRODUCER_ID_AT, batch_size)
from millstream._accel.codec.crc32c cimport checksum
from millstream._accel.codec.records_check cimport ms_check_records, ms_records_check
from millstream._accel.wire cimport (
    MS_CRC_AT, MS_CRC_END, MS_HEADER_SIZE, ms_fault, ms_read_big_endian, ms_write_big_endian)

cdef enum:
    CODEC_MAX = 4


cdef bint is_ordinary(const uint8_t* batch, int64_t size, int64_t timestamp_max) noexcept nogil:
    """Everything of the header but the checksum."""
    cdef int64_t record_count = <int32_t>ms_read_big_endian(batch + COUNT_AT, 4)
    cdef int64_t producer_id = ms_read_big_endian(batch + PRODUCER_ID_AT, 8)
    cdef int64_t max_timestamp = ms_read_big_endian(batch + MAX_TIMESTAMP_AT, 8)
    return (
        ms_read_big_endian(batch, 8) == 0
        and batch_size(batch) == size
        and batch[MAGIC_AT] == MAGIC
        and batch[ATTRIBUTES_AT] == 0
        and batch[ATTRIBUTES_AT + 1] <= CODEC_MAX
        and record_count > 0
        and record_count == <int64_t><int32_t>ms_read_big_endian(batch + LAST_DELTA_AT, 4) + 1
        and ms_read_big_endian(batch + BASE_TIMESTAMP_AT, 8) <= max_timestamp <= timestamp_max
        and producer_id >= NO_PRODUCER_ID
        and (producer_id == NO_PRODUCER_ID
             or <int32_t>ms_read_big_endian(batch + BASE_SEQUENCE_AT, 4) >= 0)
    )


cdef bint is_intact(const uint8_t* batch, int64_t size) noexcept nogil:
    """Whether an ordinary batch has the right checksum and, where they can be read, records."""
    cdef uint32_t expected = <uint32_t>ms_read_big_endian(batch + MS_CRC_AT, 4)
    return expected == checksum(0, batch + MS_CRC_END, size - MS_CRC_END) and (
        batch[ATTRIBUTES_AT + 1] != 0 or has_sound_records(batch, size))


cdef bint has_sound_records(const uint8_t* batch, int64_t size) noexcept nogil:
    """Whether the records are as many as the header says, in order, and as new as it says."""
    cdef ms_records_check check
    cdef ms_fault fault
    check.base_timestamp = ms_read_big_endian(batch + BASE_TIMESTAMP_AT, 8)
    check.oldest, check.newest = INT64_MIN, INT64_MAX
    return (
        ms_check_records(
            batch + MS_HEADER_SIZE, batch + size,
            ms_read_big_endian(batch + COUNT_AT, 4), &check, &fault) == batch + size
        and check.is_in_order
        and check.untimely_count == 0
        and check.largest_timestamp == ms_read_big_endian(batch + MAX_TIMESTAMP_AT, 8)
    )


cdef bint inspect(
        const uint8_t* batch, int64_t size, int64_t size_max, int64_t timestamp_max,
        BatchFields* fields) noexcept:
    """Whether this is one intact batch that any topic may take; then its fields are there."""
    cdef bint is_right = False
    if MS_HEADER_SIZE <= size <= size_max and is_ordinary(batch, size, timestamp_max):
        if size >= RELEASE_GIL_SIZE:
            with nogil:
                is_right = is_intact(batch, size)
        else:
            is_right = is_intact(batch, size)
    if is_right:
        fields.is_compressed = batch[ATTRIBUTES_AT + 1] != 0
        fields.last_offset_delta = <int32_t>ms_read_big_endian(batch + LAST_DELTA_AT, 4)
        fields.max_timestamp = ms_read_big_endian(batch + MAX_TIMESTAMP_AT, 8)
        fields.producer_id = ms_read_big_endian(batch + PRODUCER_ID_AT, 8)
        fields.producer_epoch = <int16_t>ms_read_big_endian(batch + PRODUCER_EPOCH_AT, 2)
        fields.base_sequence = <int32_t>ms_read_big_endian(batch + BASE_SEQUENCE_AT, 4)
    return is_right


cdef void number(uint8_t* batch, int64_t base_offset, int64_t leader_epoch) noexcept nogil:
    """Give a batch its place in a log."""
    ms_write_big_endian(batch, base_offset, 8)
    ms_write_big_endian(batch + EPOCH_AT, leader_epoch, 4)
