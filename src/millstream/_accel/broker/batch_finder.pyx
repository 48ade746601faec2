# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Where the batch of an offset is in a segment: its index searched, the heads read that prove it.

`log_span` and `millstream.storage.log.batch_finder` ask, on the thread that owns the log; the plain
version is `LogSegment.find_batch`. It declines whatever is unusual: an old format, a head that
contradicts the index, a file that ends too early. It touches nothing of the log but heads.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t
from posix.types cimport off_t
from posix.unistd cimport pread

from millstream._accel.codec.batch_header cimport LAST_DELTA_AT, MAGIC, MAGIC_AT
from millstream._accel.wire cimport (
    MS_HEADER_SIZE, MS_LENGTH_AT, MS_LENGTH_END, ms_read_big_endian)

cdef enum:
    GLANCE_SIZE = 27
    # About what lies between two entries of an index.
    WINDOW_SIZE = 4096


cdef const uint8_t* entry_at(const Entries* entries, int64_t slot) noexcept nogil:
    if slot < entries.written_count:
        return entries.written + slot * ENTRY_SIZE
    return entries.pending + (slot - entries.written_count) * ENTRY_SIZE


cdef int64_t int32_at(const uint8_t* p) noexcept nogil:
    return <int32_t>ms_read_big_endian(p, 4)


cdef int64_t last_at_most(const Entries* entries, int64_t relative) noexcept nogil:
    """The last slot whose offset is not above, or -1."""
    cdef int64_t low = 0, high = entries.count, middle
    while low < high:
        middle = (low + high) >> 1
        if int32_at(entry_at(entries, middle)) <= relative:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef bint read_head(const uint8_t* p, int64_t position, int64_t end, Head* head) noexcept nogil:
    """Whether an ordinary batch begins here that ends in time."""
    cdef int64_t length = int32_at(p + MS_LENGTH_AT), delta = int32_at(p + LAST_DELTA_AT)
    head.position = position
    head.size = MS_LENGTH_END + length
    head.base_offset = ms_read_big_endian(p, 8)
    head.last_offset = head.base_offset + delta
    return (
        p[MAGIC_AT] == MAGIC and head.size >= MS_HEADER_SIZE and delta >= 0
        and position + head.size <= end)


cdef bint look(
        const Entries* entries, int descriptor, int64_t base_offset, int64_t end, int64_t offset,
        Head* head) noexcept nogil:
    cdef uint8_t window[WINDOW_SIZE]
    cdef int64_t slot = last_at_most(entries, offset - base_offset)
    cdef int64_t before = base_offset, position = 0, after, position_after
    cdef int64_t window_at, filled
    if slot >= 0:
        before = base_offset + int32_at(entry_at(entries, slot))
        position = int32_at(entry_at(entries, slot) + 4)
    if slot + 1 < entries.count and before < offset:
        after = base_offset + int32_at(entry_at(entries, slot + 1))
        position_after = int32_at(entry_at(entries, slot + 1) + 4)
        if position_after - position > WINDOW_SIZE:
            # An entry has the last offset of its batch. Where batches are large each has one.
            filled = pread(descriptor, window, MS_HEADER_SIZE, <off_t>position_after)
            if filled == MS_HEADER_SIZE and read_head(window, position_after, end, head):
                if head.base_offset <= offset <= head.last_offset == after:
                    return True
    cdef bint is_first = slot >= 0 and position > 0
    window_at = position
    filled = 0
    while position < end:
        if position - window_at + GLANCE_SIZE > filled:
            filled = pread(descriptor, window, WINDOW_SIZE, <off_t>position)
            window_at = position
            if filled < GLANCE_SIZE:
                return False
        if not read_head(window + (position - window_at), position, end, head):
            return False
        if is_first and not base_offset <= head.base_offset <= before:
            return False
        is_first = False
        if head.last_offset >= offset:
            return True
        position += head.size
    return False


def find_batch(
        int descriptor, written, Py_ssize_t written_count, pending, int64_t base_offset,
        int64_t end, int64_t offset):
    """Position and size of the first batch of a segment that ends at or after an offset, or None.

    `written` has the entries of the offset index that are in its file, `pending` those after.
    """
    cdef Py_buffer file_view, pending_view
    cdef Entries entries
    cdef Head head
    cdef bint is_found
    PyObject_GetBuffer(written, &file_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(pending, &pending_view, PyBUF_SIMPLE)
        try:
            if file_view.len < written_count * ENTRY_SIZE:
                return None
            entries.written = <const uint8_t*>file_view.buf
            entries.written_count = written_count
            entries.pending = <const uint8_t*>pending_view.buf
            entries.count = written_count + pending_view.len // ENTRY_SIZE
            with nogil:
                is_found = look(&entries, descriptor, base_offset, end, offset, &head)
            return (head.position, head.size) if is_found else None
        finally:
            PyBuffer_Release(&pending_view)
    finally:
        PyBuffer_Release(&file_view)
