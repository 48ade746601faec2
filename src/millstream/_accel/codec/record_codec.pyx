# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Bytes to records, and the writer of batches, compiled.

`records` reads every batch with it. The bytes may come from anybody: wire.h checks each of them,
and an error names the record and the byte. It reads the records section only: it never
decompresses and never checks a CRC. `BatchWriter` lives in `batch_writer`.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from millstream._accel.codec.records_check cimport (
    MS_NAMED_MAX, ms_check_records, ms_records_check)
from millstream._accel.wire cimport (
    ms_fault, ms_header, ms_read_header, ms_read_record, ms_record)

from millstream._accel.codec import faults
from millstream._accel.codec.batch_writer import BatchWriter

__all__ = [
    "BatchWriter", "Record", "decode_records", "find_since", "inspect_records", "scan_records",
]

# Below this the work is done before another thread could make use of the GIL.
cdef enum:
    RELEASE_GIL_SIZE = 64 * 1024


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class Record:
    """One record as it was read. Values only: nothing in it can refer back to it."""

    __match_args__ = ("offset", "timestamp", "key", "value", "headers")

    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers

    def __init__(self, int64_t offset, int64_t timestamp, key, value, headers=()):
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def _fields(self):
        return self.offset, self.timestamp, self.key, self.value, self.headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        return Record, self._fields()


cdef inline object bytes_or_none(const uint8_t* data, int32_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char*>data, length)


cdef tuple read_headers(ms_record* record):
    """The headers of a record that ms_read_record has found sound."""
    cdef tuple headers = PyTuple_New(record.header_count)
    cdef const uint8_t* p = record.headers
    cdef ms_header header
    cdef ms_fault fault
    cdef tuple pair
    cdef int32_t i
    for i in range(record.header_count):
        p = ms_read_header(p, record.end, &header, &fault)
        if p is NULL:  # It was sound a moment ago: somebody writes to the buffer we read.
            raise RuntimeError("the bytes changed while they were read")
        pair = (
            PyUnicode_DecodeUTF8(<const char*>header.key, header.key_length, "surrogateescape"),
            bytes_or_none(header.value, header.value_length),
        )
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, i, pair)
    return headers


cdef inline Record to_record(ms_record* read):
    cdef Record record = Record.__new__(Record)
    record.offset = read.offset
    record.timestamp = read.timestamp
    if read.key_length >= 0:
        record.key = PyBytes_FromStringAndSize(<const char*>read.key, read.key_length)
    if read.value_length >= 0:
        record.value = PyBytes_FromStringAndSize(<const char*>read.value, read.value_length)
    record.headers = read_headers(read) if read.header_count else ()
    return record


cdef int raise_fault(ms_fault* fault, int64_t index, const uint8_t* body) except -1:
    raise faults.bad_record(
        index, fault.position - body, fault.kind, fault.field, fault.value, fault.left)


cdef int check_count(int64_t count) except -1:
    if count < 0:
        raise faults.negative_count(count)
    return 0


cdef int check_end(
    const uint8_t* p, const uint8_t* body, Py_ssize_t size, int64_t count
) except -1:
    if p != body + size:
        raise faults.bytes_left_over(p - body, body + size - p, count)
    return 0


cdef list read_body(
    const uint8_t* body, Py_ssize_t size, int64_t count, int64_t base_offset,
    int64_t base_timestamp, object append_timestamp, int64_t from_offset, int64_t to_offset,
):
    cdef list records = []
    cdef const uint8_t* p = body
    cdef bint is_stamped = append_timestamp is not None
    cdef int64_t stamp = append_timestamp if is_stamped else 0
    cdef ms_record record
    cdef ms_fault fault
    cdef int64_t i
    check_count(count)
    if is_stamped:
        base_timestamp = 0  # The deltas count for nothing, so their sum cannot overflow.
    for i in range(count):
        p = ms_read_record(p, body + size, base_offset, base_timestamp, &record, &fault)
        if p is NULL:
            raise_fault(&fault, i, body)
        if is_stamped:
            record.timestamp = stamp
        if from_offset <= record.offset < to_offset:
            records.append(to_record(&record))
    check_end(p, body, size, count)
    return records


def decode_records(
    body, int64_t count, int64_t base_offset, int64_t base_timestamp,
    append_timestamp=None, int64_t from_offset=0, int64_t to_offset=INT64_MAX,
):
    """The records of an uncompressed body whose offset is in [from_offset, to_offset).

    With `append_timestamp` (LogAppendTime) every record has that timestamp. Anything wrong, in
    records left out as well, raises CorruptMessage with the record's index and the byte.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return read_body(
            <const uint8_t*>view.buf, view.len, count, base_offset, base_timestamp,
            append_timestamp, from_offset, to_offset)
    finally:
        PyBuffer_Release(&view)


cdef list scan_body(const uint8_t* body, Py_ssize_t size, int64_t count):
    cdef list found = []
    cdef const uint8_t* p = body
    cdef const uint8_t* start
    cdef ms_record record
    cdef ms_fault fault
    cdef int64_t i
    check_count(count)
    for i in range(count):
        start = p
        p = ms_read_record(p, body + size, 0, 0, &record, &fault)
        if p is NULL:
            raise_fault(&fault, i, body)
        found.append((
            record.offset, record.timestamp, bytes_or_none(record.key, record.key_length),
            record.value_length >= 0, start - body, p - body))
    check_end(p, body, size, count)
    return found


def scan_records(body, int64_t count):
    """(offset delta, timestamp delta, key, has a value, start, end) of each record's bytes.

    For the cleaner, which decides by key and copies the bytes of what stays.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return scan_body(<const uint8_t*>view.buf, view.len, count)
    finally:
        PyBuffer_Release(&view)


cdef list first_of(const int64_t* numbers, int64_t count):
    cdef int64_t i
    return [numbers[i] for i in range(min(count, MS_NAMED_MAX))]


cdef tuple inspect_body(
    const uint8_t* body, Py_ssize_t size, int64_t count, ms_records_check* check
):
    cdef const uint8_t* p
    cdef ms_fault fault
    check_count(count)
    if size >= RELEASE_GIL_SIZE:
        with nogil:
            p = ms_check_records(body, body + size, count, check, &fault)
    else:
        p = ms_check_records(body, body + size, count, check, &fault)
    if p is NULL:
        raise_fault(&fault, check.faulty, body)
    check_end(p, body, size, count)
    return (
        check.largest_timestamp, check.is_in_order,
        check.keyless_count, first_of(check.keyless, check.keyless_count),
        check.untimely_count, list(zip(
            first_of(check.untimely, check.untimely_count),
            first_of(check.untimely_at, check.untimely_count))))


def inspect_records(
    body, int64_t count, int64_t base_timestamp, int64_t oldest, int64_t newest
):
    """What a leader has to know of a client's records; CorruptMessage if one cannot be read.

    (largest timestamp, whether offsets count from 0 without holes, how many records have no key,
    the first of them, how many have a timestamp outside [oldest, newest] that is not -1, the first
    of them with their timestamps). At most 100 are named of each kind.
    """
    cdef Py_buffer view
    cdef ms_records_check check
    check.base_timestamp, check.oldest, check.newest = base_timestamp, oldest, newest
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return inspect_body(<const uint8_t*>view.buf, view.len, count, &check)
    finally:
        PyBuffer_Release(&view)


cdef const uint8_t* seek_since(
    const uint8_t* p, const uint8_t* end, int64_t count, int64_t base_timestamp,
    int64_t timestamp, int64_t from_delta, ms_record* record, ms_fault* fault, int64_t* index
) noexcept nogil:
    """The byte after the record, which `index` tells; NULL if none is or one cannot be read."""
    for index[0] in range(count):
        p = ms_read_record(p, end, 0, base_timestamp, record, fault)
        if p is NULL or (record.offset >= from_delta and record.timestamp >= timestamp):
            return p
    index[0] = count
    return NULL


def find_since(
    body, int64_t count, int64_t base_timestamp, int64_t timestamp, int64_t from_delta
):
    """(offset delta, timestamp) of the first record from an offset delta on that is not earlier.

    None if there is none.
    """
    cdef Py_buffer view
    cdef ms_record record
    cdef ms_fault fault
    cdef const uint8_t* start
    cdef const uint8_t* p
    cdef int64_t index = 0
    check_count(count)
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        start = <const uint8_t*>view.buf
        with nogil:
            p = seek_since(
                start, start + view.len, count, base_timestamp, timestamp, from_delta, &record,
                &fault, &index)
        if p is not NULL:
            return record.offset, record.timestamp
        if index < count:
            raise_fault(&fault, index, start)
        return None
    finally:
        PyBuffer_Release(&view)
