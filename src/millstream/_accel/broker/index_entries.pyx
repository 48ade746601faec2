# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""New entries of a segment's sparse indexes; the short way of `SegmentIndexes._add_entries`.

`express_lane` asks for them, as a large batch gets an entry of its own. What is not ordinary (an
index not used yet, nearly full, damaged, or with entries enough to go to its file) is left to
Python before anything was changed. All state stays in the objects of `millstream.storage`.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport INT32_MAX, int64_t, uint8_t

from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset, ms_slot_set
from millstream._accel.wire cimport ms_write_big_endian

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    # Python sees to the last entries: to the kept slot, and to what becomes full.
    KEPT_ENTRIES = 3

cdef struct Slots:
    Py_ssize_t offsets
    Py_ssize_t times
    Py_ssize_t largest_timestamp
    Py_ssize_t largest_offset
    Py_ssize_t pending
    Py_ssize_t last
    Py_ssize_t entry_count
    Py_ssize_t entry_count_max
    Py_ssize_t base_offset

cdef Slots slots
cdef int64_t pending_bytes_max = 0


def bind(indexes, index, int64_t bytes_max):
    """Learn where the classes of `millstream.storage` keep what is used here."""
    global pending_bytes_max
    slots.offsets = ms_slot_offset(indexes, "offsets")
    slots.times = ms_slot_offset(indexes, "times")
    slots.largest_timestamp = ms_slot_offset(indexes, "largest_timestamp")
    slots.largest_offset = ms_slot_offset(indexes, "largest_offset")
    slots.pending = ms_slot_offset(index, "_pending")
    slots.last = ms_slot_offset(index, "_last")
    slots.entry_count = ms_slot_offset(index, "_entry_count")
    slots.entry_count_max = ms_slot_offset(index, "entry_count_max")
    slots.base_offset = ms_slot_offset(index, "base_offset")
    pending_bytes_max = bytes_max


cdef inline object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef inline int64_t number_in(object owner, Py_ssize_t offset) except? -1:
    return <int64_t>slot(owner, offset)


cdef int add_entries(object indexes, int64_t last_offset, int64_t position) except -1:
    """A batch was written at a position: the entries that are due."""
    cdef object offsets = slot(indexes, slots.offsets), times = slot(indexes, slots.times)
    cdef int64_t timestamp = number_in(indexes, slots.largest_timestamp)
    cdef int64_t offset = number_in(indexes, slots.largest_offset)
    cdef bint is_later
    if (not has_room(offsets, last_offset, OFFSET_ENTRY_BYTES)
            or last_offset <= <int64_t>(<tuple>slot(offsets, slots.last))[0]
            or position > INT32_MAX
            or not has_room(times, offset, TIME_ENTRY_BYTES)
            or offset < <int64_t>(<tuple>slot(times, slots.last))[1]):
        indexes._add_entries(last_offset, position)
        return 0
    is_later = timestamp > <int64_t>(<tuple>slot(times, slots.last))[0]
    append(offsets, last_offset - number_in(offsets, slots.base_offset), 4, position, 4)
    ms_slot_set(offsets, slots.last, (last_offset, position))
    if is_later:
        append(times, timestamp, 8, offset - number_in(times, slots.base_offset), 4)
        ms_slot_set(times, slots.last, (timestamp, offset))
    return 0


cdef bint has_room(object index, int64_t offset, int64_t entry_bytes) except -1:
    """Whether an index that is in use takes one more entry for an offset, in memory."""
    cdef int64_t relative = offset - number_in(index, slots.base_offset)
    return (
        slot(index, slots.last) is not None
        and 0 <= relative <= INT32_MAX
        and 0 < number_in(index, slots.entry_count)
        < number_in(index, slots.entry_count_max) - KEPT_ENTRIES
        and PyByteArray_GET_SIZE(slot(index, slots.pending)) + entry_bytes < pending_bytes_max
    )


cdef int append(
        object index, int64_t first, int first_bytes, int64_t second, int second_bytes) except -1:
    """Two big-endian numbers behind the entries that wait in memory."""
    cdef bytearray pending = <bytearray>slot(index, slots.pending)
    cdef int64_t size = PyByteArray_GET_SIZE(pending)
    cdef uint8_t* at
    PyByteArray_Resize(pending, size + first_bytes + second_bytes)
    at = <uint8_t*>PyByteArray_AS_STRING(pending) + size
    ms_write_big_endian(at, first, first_bytes)
    ms_write_big_endian(at + first_bytes, second, second_bytes)
    ms_slot_set(index, slots.entry_count, number_in(index, slots.entry_count) + 1)
    return 0
