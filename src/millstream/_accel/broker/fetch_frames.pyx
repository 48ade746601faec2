# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The common shape of Fetch; twin of the functions in `millstream.server.fetch_frames`.

Nothing is read at or behind `end`, whatever the lengths in the frame say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE)
from libc.errno cimport EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy
from posix.types cimport off_t
from posix.unistd cimport pread

from millstream._accel.wire cimport ms_read_big_endian, ms_write_big_endian

cdef enum:
    REPLICA_STATE_SINCE = 15
    # Wait, bytes at least and at most, isolation, session and its epoch, number of topics.
    HEAD_SIZE = 22
    # The topic's id, then number of partitions, partition, leader epoch, offset, last epoch, start
    # of the log, bytes at most, no tagged fields of the partition and of the topic.
    PARTITION_SIZE = TOPIC_ID_SIZE + 35
    # No forgotten topics, no rack, no tagged fields.
    END_SIZE = 3


cdef int64_t int32_at(const uint8_t* p) noexcept nogil:
    return <int32_t>ms_read_big_endian(p, 4)


cdef bint read_request(
        const uint8_t* p, int64_t size, int version, FetchSingle* single) noexcept nogil:
    """Whether a request of version 13 to 18 is of the common shape: a partition or none."""
    if version < REPLICA_STATE_SINCE:
        if size < 4 or int32_at(p) != -1:
            return False
        p += 4
        size -= 4
    if size < HEAD_SIZE + END_SIZE or ms_read_big_endian(p + size - END_SIZE, 3) != 0x010100:
        return False
    single.max_wait_ms = int32_at(p)
    single.min_bytes = int32_at(p + 4)
    single.max_bytes = int32_at(p + 8)
    single.isolation_level = <signed char>p[12]
    single.session_id = int32_at(p + 13)
    single.session_epoch = int32_at(p + 17)
    single.topic_id = NULL
    if p[HEAD_SIZE - 1] == 1:
        return size == HEAD_SIZE + END_SIZE
    if p[HEAD_SIZE - 1] != 2 or size != HEAD_SIZE + PARTITION_SIZE + END_SIZE:
        return False
    if p[HEAD_SIZE + TOPIC_ID_SIZE] != 2 or p[HEAD_SIZE + 49] or p[HEAD_SIZE + 50]:
        return False
    single.topic_id = p + HEAD_SIZE
    single.index = int32_at(p + 39)
    single.leader_epoch = int32_at(p + 43)
    single.offset = ms_read_big_endian(p + 47, 8)
    single.last_epoch = int32_at(p + 55)
    single.log_start_offset = ms_read_big_endian(p + 59, 8)
    single.partition_bytes_max = int32_at(p + 67)
    return True


def read_single(buffer, Py_ssize_t at, Py_ssize_t end, int version):
    """The request in `buffer[at:end]` of version 13 to 18, if it is of the common shape."""
    cdef Py_buffer view
    cdef FetchSingle single
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            return None
        if not read_request(<const uint8_t*>view.buf + at, end - at, version, &single):
            return None
        if single.topic_id == NULL:
            return (
                single.max_wait_ms, single.min_bytes, single.max_bytes, single.isolation_level,
                single.session_id, single.session_epoch, None, 0, 0, 0, 0, 0, 0,
            )
        return (
            single.max_wait_ms, single.min_bytes, single.max_bytes, single.isolation_level,
            single.session_id, single.session_epoch,
            PyBytes_FromStringAndSize(<const char*>single.topic_id, TOPIC_ID_SIZE),
            single.index, single.leader_epoch, single.offset, single.last_epoch,
            single.log_start_offset, single.partition_bytes_max,
        )
    finally:
        PyBuffer_Release(&view)


cdef uint8_t* write_uvarint(uint8_t* p, int64_t value) noexcept nogil:
    while value >= 0x80:
        p[0] = <uint8_t>(value & 0x7f | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


cdef const uint8_t* topic_bytes(topic_id) except NULL:
    """The bytes of a `Uuid`, which is a kind of bytes."""
    if not PyBytes_Check(topic_id) or PyBytes_GET_SIZE(topic_id) != TOPIC_ID_SIZE:
        raise ValueError("a topic id has 16 bytes")
    return <const uint8_t*>PyBytes_AS_STRING(topic_id)


cdef int64_t write_head(
        uint8_t* start, const FetchAnswer* answer, const uint8_t* topic_id) noexcept nogil:
    """Everything before the records; how many bytes."""
    cdef uint8_t* p = ms_write_big_endian(start + 4, answer.correlation_id, 4)
    # No tags of the header, no throttle time, no error.
    p = ms_write_big_endian(p, 0, 7)
    p = ms_write_big_endian(p, answer.session_id, 4)
    p = ms_write_big_endian(p, 2, 1)
    memcpy(p, topic_id, TOPIC_ID_SIZE)
    p = ms_write_big_endian(p + TOPIC_ID_SIZE, 2, 1)
    p = ms_write_big_endian(p, answer.index, 4)
    p = ms_write_big_endian(p, 0, 2)
    p = ms_write_big_endian(p, answer.high_watermark, 8)
    p = ms_write_big_endian(p, answer.last_stable_offset, 8)
    p = ms_write_big_endian(p, answer.log_start_offset, 8)
    # No aborted transactions: null, or empty for who wants to know; no preferred replica.
    p = ms_write_big_endian(p, answer.has_aborted, 1)
    p = ms_write_big_endian(p, -1, 4)
    p = write_uvarint(p, answer.length + 1)
    ms_write_big_endian(start, p - start - 4 + answer.length + ANSWER_END_SIZE, 4)
    return p - start


def write_single(
        int64_t correlation_id, int64_t session_id, topic_id, int64_t index,
        int64_t high_watermark, int64_t last_stable_offset, int64_t log_start_offset,
        bint has_aborted, int64_t length):
    """The answer up to its records; `SINGLE_END` follows them."""
    cdef uint8_t head[ANSWER_HEAD_SIZE_MAX]
    cdef FetchAnswer answer = FetchAnswer(
        correlation_id, session_id, index, high_watermark, last_stable_offset, log_start_offset,
        has_aborted, length)
    cdef int64_t size = write_head(head, &answer, topic_bytes(topic_id))
    return PyBytes_FromStringAndSize(<const char*>head, size)


cdef int64_t read_fully(
        int descriptor, uint8_t* p, int64_t length, int64_t position) noexcept nogil:
    """How many bytes there were, or -1."""
    cdef int64_t got = 0
    cdef ssize_t count
    while got < length:
        count = pread(descriptor, p + got, length - got, <off_t>(position + got))
        if count == 0:
            break
        if count < 0:
            if errno == EINTR:
                continue
            return -1
        got += count
    return got


def read_answer(
        int descriptor, int64_t position, int64_t length, int64_t correlation_id,
        int64_t session_id, topic_id, int64_t index, int64_t high_watermark,
        int64_t last_stable_offset, int64_t log_start_offset, bint has_aborted):
    """The whole answer, its records read from a file; None if the file does not give them all."""
    cdef uint8_t head[ANSWER_HEAD_SIZE_MAX]
    cdef FetchAnswer answer = FetchAnswer(
        correlation_id, session_id, index, high_watermark, last_stable_offset, log_start_offset,
        has_aborted, length)
    if length < 0:
        raise ValueError("records have a length")
    cdef int64_t size = write_head(head, &answer, topic_bytes(topic_id))
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, size + length + ANSWER_END_SIZE)
    cdef uint8_t* p = <uint8_t*>PyBytes_AS_STRING(frame)
    cdef int64_t got
    memcpy(p, head, size)
    ms_write_big_endian(p + size + length, 0, ANSWER_END_SIZE)
    with nogil:
        got = read_fully(descriptor, p + size, length, position)
    return frame if got == length else None
