# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The common shape of Produce, read from the frame and answered without a message.

Nearly every Produce request has one topic and one partition. Whatever has another shape, or is
damaged, is left to the generated decoder, which is the authority on what the bytes mean. Nothing is
read at or behind `end`, whatever the lengths in the frame say.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from millstream._accel.codec.batch_header cimport ATTRIBUTES_AT, TRANSACTIONAL_BIT
from millstream._accel.wire cimport MS_HEADER_SIZE, ms_read_big_endian, ms_write_big_endian

cdef enum:
    LOG_START_SINCE = 5
    RECORD_ERRORS_SINCE = 8
    TOPIC_ID_SIZE = 16


cdef bint is_batch(const uint8_t* p, int64_t start, int64_t stop) noexcept nogil:
    """Whether a header is there and the batch is in no transaction."""
    return stop - start >= MS_HEADER_SIZE and not p[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT


cdef bint read_old(const uint8_t* p, int64_t at, int64_t end, Single* single) noexcept nogil:
    """Versions 3 to 8."""
    cdef int64_t length, size
    if end - at < 14:
        return False
    single.acks = <int16_t>ms_read_big_endian(p + at + 2, 2)
    single.timeout_ms = <int32_t>ms_read_big_endian(p + at + 4, 4)
    length = <int16_t>ms_read_big_endian(p + at + 12, 2)
    if ms_read_big_endian(p + at, 2) != 0xffff or ms_read_big_endian(p + at + 8, 4) != 1:
        return False
    single.topic = at + 12
    single.topic_size = length + 2
    at += 14 + length
    if length <= 0 or end - at < 12:
        return False
    single.partition = <int32_t>ms_read_big_endian(p + at + 4, 4)
    size = <int32_t>ms_read_big_endian(p + at + 8, 4)
    single.start = at + 12
    single.stop = end
    return ms_read_big_endian(p + at, 4) == 1 and size == end - single.start


cdef bint read_flexible(
        const uint8_t* p, int64_t at, int64_t end, bint has_id, Single* single) noexcept nogil:
    """Versions 9 to 13."""
    cdef int64_t size = 0
    cdef int shift = 0
    if end - at < 8 + TOPIC_ID_SIZE:
        return False
    single.acks = <int16_t>ms_read_big_endian(p + at + 1, 2)
    single.timeout_ms = <int32_t>ms_read_big_endian(p + at + 3, 4)
    if p[at] != 0 or p[at + 7] != 2:
        return False
    single.topic = at + 8
    single.topic_size = TOPIC_ID_SIZE if has_id else p[at + 8]
    at += 8 + single.topic_size
    if not 1 < single.topic_size < 0x80 or end - at < 5 + MS_HEADER_SIZE or p[at] != 2:
        return False
    single.partition = <int32_t>ms_read_big_endian(p + at + 1, 4)
    at += 5
    while True:
        if at >= end or shift > 28:
            return False
        size |= <int64_t>(p[at] & 0x7f) << shift
        at += 1
        if p[at - 1] < 0x80:
            break
        shift += 7
    single.start = at
    single.stop = at + size - 1
    return single.stop + 3 == end and ms_read_big_endian(p + single.stop, 3) == 0


cdef bint read_request(
        const uint8_t* p, int64_t at, int64_t end, int version, Single* single) noexcept nogil:
    """Whether `p[at:end]`, a request of version 3 to 13, is of the common shape."""
    cdef bint is_single
    if version < FLEXIBLE_SINCE:
        is_single = read_old(p, at, end, single)
    else:
        is_single = read_flexible(p, at, end, version >= TOPIC_IDS_SINCE, single)
    return is_single and is_batch(p, single.start, single.stop)


cdef uint8_t* write_zeros(uint8_t* p, int count) noexcept nogil:
    return ms_write_big_endian(p, 0, count)


cdef int64_t answer_size(int version, int64_t topic_size) noexcept nogil:
    """How long the frame is that `write_answer` writes."""
    if version >= FLEXIBLE_SINCE:
        return topic_size + 50
    return (
        topic_size + 42 + 8 * (version >= LOG_START_SINCE) + 6 * (version >= RECORD_ERRORS_SINCE)
    )


cdef uint8_t* write_answer(
        uint8_t* p, int version, int64_t correlation_id, const uint8_t* topic,
        int64_t topic_size, int64_t partition, int64_t base_offset, int64_t append_time_ms,
        int64_t log_start) noexcept nogil:
    """Write the whole frame at `p`; where its error code is, which is 0."""
    cdef bint is_flexible = version >= FLEXIBLE_SINCE
    cdef uint8_t* error_at
    p = ms_write_big_endian(p, answer_size(version, topic_size) - 4, 4)
    p = ms_write_big_endian(p, correlation_id, 4)
    p = ms_write_big_endian(p, 2, 2) if is_flexible else ms_write_big_endian(p, 1, 4)
    memcpy(p, topic, topic_size)
    p += topic_size
    p = ms_write_big_endian(p, 2, 1) if is_flexible else ms_write_big_endian(p, 1, 4)
    p = ms_write_big_endian(p, partition, 4)
    error_at = p
    p = write_zeros(p, 2)
    p = ms_write_big_endian(p, base_offset, 8)
    p = ms_write_big_endian(p, append_time_ms, 8)
    if version >= LOG_START_SINCE:
        p = ms_write_big_endian(p, log_start, 8)
    if is_flexible:
        # No record errors, no message, no tags of the partition and of the topic.
        p = write_zeros(ms_write_big_endian(p, 1, 1), 3)
    elif version >= RECORD_ERRORS_SINCE:
        p = ms_write_big_endian(write_zeros(p, 4), -1, 2)
    write_zeros(p, 5 if is_flexible else 4)
    return error_at


cdef void write_error(uint8_t* error_at, int64_t code) noexcept nogil:
    """Take back in an answer that records were accepted."""
    ms_write_big_endian(ms_write_big_endian(error_at, code, 2), -1, 8)
