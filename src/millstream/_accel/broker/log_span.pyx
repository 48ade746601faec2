# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Where the records of a consumer's read are in the files: for `fast_fetch`, as `LogReader` does.

It looks only into files and indexes that are open already, and opens and changes nothing: whatever
is unusual gets None, and `UnifiedLog.read` is asked.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from millstream._accel.broker.batch_finder cimport ENTRY_SIZE, Entries, Head, look
from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset

cdef struct LogSlots:
    Py_ssize_t is_closed
    Py_ssize_t high_watermark
    Py_ssize_t log_start_offset
    Py_ssize_t local
    Py_ssize_t producers
    Py_ssize_t reader
    Py_ssize_t ongoing
    Py_ssize_t completed
    Py_ssize_t aborted_bases
    Py_ssize_t log_end_offset
    Py_ssize_t segments
    Py_ssize_t segment_list
    Py_ssize_t base_offsets

cdef struct SegmentSlots:
    Py_ssize_t size
    Py_ssize_t base_offset
    Py_ssize_t is_ready
    Py_ssize_t file
    Py_ssize_t indexes
    Py_ssize_t offsets
    Py_ssize_t entry_count
    Py_ssize_t pending
    Py_ssize_t map
    Py_ssize_t buffer
    Py_ssize_t descriptor

cdef LogSlots log_slots
cdef SegmentSlots segment_slots
cdef object unified_log = None
cdef object disk_file = None
cdef object disk_map = None


def bind_logs(log, local, producers, reader, segments):
    """Learn where the logs of `millstream.storage` keep what is used here."""
    global unified_log
    log_slots.is_closed = ms_slot_offset(log, "_is_closed")
    log_slots.high_watermark = ms_slot_offset(log, "_high_watermark")
    log_slots.log_start_offset = ms_slot_offset(log, "_log_start_offset")
    log_slots.local = ms_slot_offset(log, "_local")
    log_slots.producers = ms_slot_offset(log, "producers")
    log_slots.reader = ms_slot_offset(log, "_reader")
    log_slots.ongoing = ms_slot_offset(producers, "_ongoing")
    log_slots.completed = ms_slot_offset(producers, "_completed")
    log_slots.aborted_bases = ms_slot_offset(reader, "_aborted_bases")
    log_slots.log_end_offset = ms_slot_offset(local, "log_end_offset")
    log_slots.segments = ms_slot_offset(local, "segments")
    log_slots.segment_list = ms_slot_offset(segments, "_segments")
    log_slots.base_offsets = ms_slot_offset(segments, "_base_offsets")
    unified_log = log


def bind_segments(segment, indexes, offset_index, file, file_map):
    """The same for their segments and files."""
    global disk_file, disk_map
    segment_slots.size = ms_slot_offset(segment, "size")
    segment_slots.base_offset = ms_slot_offset(segment, "base_offset")
    segment_slots.is_ready = ms_slot_offset(segment, "_is_ready")
    segment_slots.file = ms_slot_offset(segment, "_file")
    segment_slots.indexes = ms_slot_offset(segment, "indexes")
    segment_slots.offsets = ms_slot_offset(indexes, "offsets")
    segment_slots.entry_count = ms_slot_offset(offset_index, "_entry_count")
    segment_slots.pending = ms_slot_offset(offset_index, "_pending")
    segment_slots.map = ms_slot_offset(offset_index, "_map")
    segment_slots.buffer = ms_slot_offset(file_map, "buffer")
    segment_slots.descriptor = ms_slot_offset(file, "_descriptor")
    disk_file = file
    disk_map = file_map


cdef inline object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef inline int64_t number_in(object owner, Py_ssize_t offset) except? -1:
    return <int64_t>slot(owner, offset)


cdef int64_t read_bounds(log, bint is_committed, Span* span) except -2:
    """The first offset that a consumer may not read; -1 if the log cannot be read here."""
    if type(log) is not unified_log or slot(log, log_slots.is_closed) is not False:
        return -1
    cdef object producers = slot(log, log_slots.producers)
    span.high_watermark = number_in(log, log_slots.high_watermark)
    span.last_stable_offset = span.high_watermark
    span.log_start_offset = number_in(log, log_slots.log_start_offset)
    if slot(producers, log_slots.ongoing) or slot(producers, log_slots.completed):
        span.last_stable_offset = log.last_stable_offset
    return span.last_stable_offset if is_committed else span.high_watermark


cdef object find_span(log, int64_t offset, int64_t bytes_max, bint is_committed, Span* span):
    """The file with what `UnifiedLog.read` would give; None if that has to be asked."""
    cdef Head head, end
    cdef int64_t bound = read_bounds(log, is_committed, span)
    if bound < 0 or not span.log_start_offset <= offset < bound:
        return None
    cdef object local = slot(log, log_slots.local)
    if is_committed and slot(slot(log, log_slots.reader), log_slots.aborted_bases):
        return None
    segment = floor_segment(slot(local, log_slots.segments), offset)
    if segment is None or not find_batch(segment, offset, &head):
        return None
    span.position = head.position
    span.length = number_in(segment, segment_slots.size) - head.position
    if bound < number_in(local, log_slots.log_end_offset):
        # Where the bound is in a later segment the whole rest of this one is before it.
        later = floor_segment(slot(local, log_slots.segments), bound)
        if later is segment:
            if not find_batch(segment, bound, &end):
                return None
            span.length = end.position - head.position
    if span.length > bytes_max:
        span.length = min(span.length, max(bytes_max, head.size))
    if span.length <= 0:
        return None
    file = slot(segment, segment_slots.file)
    span.descriptor = number_in(file, segment_slots.descriptor)
    return file


cdef object floor_segment(segments, int64_t offset):
    """The last segment that begins at or before an offset."""
    cdef list bases = <list>slot(segments, log_slots.base_offsets)
    cdef Py_ssize_t low = 0, high = len(bases), middle
    while low < high:
        middle = (low + high) >> 1
        if <int64_t>bases[middle] <= offset:
            low = middle + 1
        else:
            high = middle
    return (<list>slot(segments, log_slots.segment_list))[low - 1] if low else None


cdef bint find_batch(segment, int64_t offset, Head* head) except -1:
    """The first batch that ends at or after an offset, if file and index are open to look."""
    cdef Py_buffer view
    cdef Entries entries
    cdef bint is_found
    file = slot(segment, segment_slots.file)
    index = slot(slot(segment, segment_slots.indexes), segment_slots.offsets)
    pending = slot(index, segment_slots.pending)
    if (type(file) is not disk_file or number_in(file, segment_slots.descriptor) < 0
            or slot(segment, segment_slots.is_ready) is not True):
        return False
    entries.count = number_in(index, segment_slots.entry_count)
    entries.pending = <const uint8_t*>PyByteArray_AS_STRING(pending)
    entries.written_count = entries.count - PyByteArray_GET_SIZE(pending) // ENTRY_SIZE
    entries.written = NULL
    if entries.written_count < 0:
        return False
    mapped = slot(index, segment_slots.map) if entries.written_count else None
    if entries.written_count:
        if type(mapped) is not disk_map:
            return False
        PyObject_GetBuffer(slot(mapped, segment_slots.buffer), &view, PyBUF_SIMPLE)
        entries.written = <const uint8_t*>view.buf
        if view.len < entries.written_count * ENTRY_SIZE:
            PyBuffer_Release(&view)
            return False
    is_found = look(
        &entries, number_in(file, segment_slots.descriptor),
        number_in(segment, segment_slots.base_offset), number_in(segment, segment_slots.size),
        offset, head)
    if entries.written_count:
        PyBuffer_Release(&view)
    return is_found
