# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""An OffsetCommit from its frame, and the answer that nothing of it was refused.

The compiled twin of `millstream.server.commit_frames`. Nothing is read at or behind `end`, whatever
the lengths in the frame say.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from millstream._accel.wire cimport ms_read_big_endian, ms_write_big_endian

cdef enum:
    THROTTLE_TIME_SINCE = 3
    RETENTION_UNTIL = 4
    LEADER_EPOCH_SINCE = 6
    INSTANCE_ID_SINCE = 7
    FLEXIBLE_SINCE = 8
    TOPIC_IDS_SINCE = 10
    TOPIC_ID_SIZE = 16
    NO_LEADER_EPOCH = -1
    # What an answer has in front of its topics is longer than that of a request, by less than this.
    ANSWER_HEAD_MAX = 32

cdef struct Reader:
    const uint8_t* at
    const uint8_t* end
    uint8_t* answer
    int version
    bint is_flexible
    bint is_bad


cdef int64_t read_integer(Reader* reader, int size) noexcept nogil:
    """As an unsigned number; 0 if the bytes are not there."""
    cdef int64_t value
    if reader.end - reader.at < size:
        reader.is_bad = True
        return 0
    value = ms_read_big_endian(reader.at, size)
    reader.at += size
    return value


cdef int64_t read_length(Reader* reader, int size) noexcept nogil:
    """A length or a count, -1 for null; in old versions it has so many bytes."""
    cdef int64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    if not reader.is_flexible:
        value = read_integer(reader, size)
        value = <int64_t><int16_t>value if size == 2 else <int64_t><int32_t>value
        reader.is_bad |= value < -1
        return value
    while reader.at < reader.end and shift <= 28:
        byte = reader.at[0]
        reader.at += 1
        value |= <int64_t>(byte & 0x7f) << shift
        if byte < 0x80:
            return value - 1
        shift += 7
    reader.is_bad = True
    return 0


cdef void read_no_tags(Reader* reader) noexcept nogil:
    if reader.is_flexible and read_integer(reader, 1) != 0:
        reader.is_bad = True


cdef str read_text(Reader* reader, bint is_nullable):
    """A text; None if it is null, which is bad where it may not be."""
    cdef int64_t length = read_length(reader, 2)
    cdef const uint8_t* start = reader.at
    if length < 0 or reader.is_bad or reader.end - reader.at < length:
        reader.is_bad |= length >= 0 or not is_nullable
        return None
    reader.at += length
    if length == 0:
        return ""
    return PyUnicode_DecodeUTF8(<const char*>start, length, NULL)


cdef void write(Reader* reader, int64_t value, int size) noexcept nogil:
    reader.answer = ms_write_big_endian(reader.answer, value, size)


cdef void repeat(Reader* reader, const uint8_t* start) noexcept nogil:
    """Answer with what was read since `start`."""
    memcpy(reader.answer, start, reader.at - start)
    reader.answer += reader.at - start


cdef tuple read_partition(Reader* reader):
    cdef const uint8_t* start = reader.at
    cdef int64_t index = <int32_t>read_integer(reader, 4)
    if not reader.is_bad:
        repeat(reader, start)
    cdef int64_t offset = read_integer(reader, 8)
    cdef int64_t leader_epoch = NO_LEADER_EPOCH
    if reader.version >= LEADER_EPOCH_SINCE:
        leader_epoch = <int32_t>read_integer(reader, 4)
    cdef str metadata = read_text(reader, True)
    read_no_tags(reader)
    if not reader.is_bad:
        write(reader, 0, 3 if reader.is_flexible else 2)
    return (index, offset, leader_epoch, metadata)


cdef tuple read_topic(Reader* reader):
    cdef const uint8_t* start = reader.at
    cdef object topic
    cdef list partitions = []
    if reader.version < TOPIC_IDS_SINCE:
        topic = read_text(reader, False)
    elif reader.end - reader.at >= TOPIC_ID_SIZE:
        topic = PyBytes_FromStringAndSize(<const char*>start, TOPIC_ID_SIZE)
        reader.at += TOPIC_ID_SIZE
    else:
        reader.is_bad = True
        return None
    cdef int64_t count = read_length(reader, 4)
    reader.is_bad |= count < 0
    if reader.is_bad:
        return None
    repeat(reader, start)
    while count > 0 and not reader.is_bad:
        partitions.append(read_partition(reader))
        count -= 1
    read_no_tags(reader)
    if not reader.is_bad and reader.is_flexible:
        write(reader, 0, 1)
    return (topic, partitions)


cdef list read_topics(Reader* reader):
    cdef const uint8_t* start = reader.at
    cdef list topics = []
    cdef int64_t count = read_length(reader, 4)
    reader.is_bad |= count < 0
    if not reader.is_bad:
        repeat(reader, start)
    while count > 0 and not reader.is_bad:
        topics.append(read_topic(reader))
        count -= 1
    read_no_tags(reader)
    if not reader.is_bad and reader.is_flexible:
        write(reader, 0, 1)
    return topics


cdef tuple read_all(Reader* reader):
    cdef str group_id = read_text(reader, False)
    cdef int64_t generation = <int32_t>read_integer(reader, 4)
    cdef str member_id = read_text(reader, False)
    cdef str instance_id = None
    cdef int64_t retention_ms = -1
    if reader.version >= INSTANCE_ID_SINCE:
        instance_id = read_text(reader, True)
    if reader.version <= RETENTION_UNTIL:
        retention_ms = read_integer(reader, 8)
    if reader.is_bad:
        return None
    cdef list topics = read_topics(reader)
    if reader.is_bad or reader.at != reader.end:
        return None
    return (group_id, generation, member_id, instance_id, topics, retention_ms)


def read_commit(buffer, Py_ssize_t at, Py_ssize_t end, int version, int64_t correlation_id):
    """The request in `buffer[at:end]` of version 2 to 10, and the answer if nothing is refused."""
    cdef Py_buffer view
    cdef Reader reader
    cdef bytes answer
    cdef uint8_t* start
    cdef tuple commit
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            return None
        # No answer is longer than its request but for its head.
        answer = PyBytes_FromStringAndSize(NULL, end - at + ANSWER_HEAD_MAX)
        start = <uint8_t*>PyBytes_AS_STRING(answer)
        reader.at = <const uint8_t*>view.buf + at
        reader.end = <const uint8_t*>view.buf + end
        reader.answer = ms_write_big_endian(start + 4, correlation_id, 4)
        reader.version = version
        reader.is_flexible = version >= FLEXIBLE_SINCE
        reader.is_bad = False
        write(&reader, 0, 1 if reader.is_flexible else 0)
        write(&reader, 0, 4 if version >= THROTTLE_TIME_SINCE else 0)
        try:
            commit = read_all(&reader)
        except UnicodeDecodeError:
            return None
        if commit is None:
            return None
        ms_write_big_endian(start, reader.answer - start - 4, 4)
        return commit, answer[:reader.answer - start]
    finally:
        PyBuffer_Release(&view)
