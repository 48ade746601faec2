# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Where the records of a consumer's read are in the files: for `fast_fetch`, as `LogReader` does.

It looks only into files and indexes that are open already, and opens and changes nothing: whatever
is unusual gets None, and `UnifiedLog.read` is asked. The thread that owns the log calls it, under
the GIL.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.batch_finder cimport ENTRY_SIZE, Entries, Head, look
from millstream._accel.broker.log_state cimport FileState, IndexState, SegmentState
from millstream._accel.broker.log_tail cimport LogTail


cdef int64_t read_bounds(LogTail tail, bint is_committed, Span* span) except -2:
    """The first offset that a consumer may not read; -1 if the log is closed."""
    if tail.is_closed:
        return -1
    span.high_watermark = tail.high_watermark
    span.last_stable_offset = tail.last_stable()
    span.log_start_offset = tail.log_start_offset
    return span.last_stable_offset if is_committed else span.high_watermark


cdef object find_span(
        LogTail tail, int64_t offset, int64_t bytes_max, bint is_committed, Span* span):
    """The file with what `UnifiedLog.read` would give; None if that has to be asked."""
    cdef Head head, end
    cdef SegmentState segment
    cdef int64_t bound = read_bounds(tail, is_committed, span)
    if bound < 0 or not span.log_start_offset <= offset < bound:
        return None
    if is_committed and tail.has_aborted:
        return None
    segment = tail.segments.floor_segment(offset)
    if segment is None or not find_batch(segment, offset, &head):
        return None
    span.position = head.position
    span.length = segment.size - head.position
    if bound < tail.log_end_offset:
        # Where the bound is in a later segment the whole rest of this one is before it.
        if tail.segments.floor_segment(bound) is segment:
            if not find_batch(segment, bound, &end):
                return None
            span.length = end.position - head.position
    if span.length > bytes_max:
        span.length = min(span.length, max(bytes_max, head.size))
    if span.length <= 0:
        return None
    span.descriptor = (<FileState>segment.file).descriptor
    return segment.file


cdef bint find_batch(SegmentState segment, int64_t offset, Head* head) except -1:
    """The first batch that ends at or after an offset, if file and index are open to look."""
    cdef IndexState index = segment.indexes.offsets
    cdef Py_buffer view
    cdef Entries entries
    cdef int descriptor
    cdef bint is_found
    if not isinstance(segment.file, FileState) or not segment.is_ready:
        return False
    descriptor = (<FileState>segment.file).descriptor
    entries.count = index.known_count
    entries.pending = <const uint8_t*>PyByteArray_AS_STRING(index.pending)
    entries.written_count = entries.count - PyByteArray_GET_SIZE(index.pending) // ENTRY_SIZE
    entries.written = NULL
    if descriptor < 0 or entries.written_count < 0:
        return False
    if entries.written_count:
        if index.mapped is None:
            return False
        PyObject_GetBuffer(index.mapped, &view, PyBUF_SIMPLE)
        entries.written = <const uint8_t*>view.buf
        if view.len < entries.written_count * ENTRY_SIZE:
            PyBuffer_Release(&view)
            return False
    is_found = look(&entries, descriptor, segment.base_offset, segment.size, offset, head)
    if entries.written_count:
        PyBuffer_Release(&view)
    return is_found
