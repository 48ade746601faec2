# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Records to bytes: the writer of one batch, from Python values or from Arrow columns.

`record_codec` exports it. It encodes records as they come and seals them with a header and its
CRC; it never compresses.
"""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE)
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.mem cimport PyMem_RawFree
from cpython.number cimport PyNumber_Index
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from millstream._accel.arrow.input cimport MS_ROW_DONE
from millstream._accel.arrow.reader cimport ArrowChunk, raise_row
from millstream._accel.atomics cimport ms_add, ms_give_back, ms_take
from millstream._accel.codec.batch cimport (
    MS_BATCH_FULL, MS_BATCH_NO_MEMORY, MS_BATCH_NO_ROW, MS_BATCH_TOO_FAR, MS_BATCH_TOO_LARGE,
    MS_BATCH_TOO_MANY, MS_BODY_SIZE_MAX, ms_batch_add_rows, ms_batch_count, ms_batch_is_too_far,
    ms_batch_reserve, ms_batch_reset, ms_rows_job)
from millstream._accel.codec.crc32c cimport checksum
from millstream._accel.wire cimport (
    MS_CRC_AT, MS_CRC_END, MS_HEADER_SIZE, MS_LENGTH_AT, MS_LENGTH_END, ms_bytes_size,
    ms_record_length, ms_varint_size, ms_write_big_endian, ms_write_bytes, ms_write_record)

from collections.abc import Iterable, Mapping

from millstream.errors import MessageTooLarge

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    # That many rows take long enough that other threads gain by running meanwhile,
    RELEASE_GIL_ROWS = 1024
    # as does a batch of this size to be copied and summed.
    RELEASE_GIL_SIZE = 128 * 1024

cdef uint8_t NOTHING = 0

# ---- what callers give, checked and made fit for C; the plain version has the same errors ----


cdef str type_name(value):
    return type(value).__name__


cdef object to_integer(value, str name):
    """Any object that stands for an integer, as one."""
    try:
        return PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {type_name(value)}") from None


cdef int64_t to_int(value, str name, int bits) except? -1:
    """`value` as a signed integer of `bits` bits, or an error that says which one is wrong."""
    cdef int overflow = 0
    if not PyLong_CheckExact(value):
        value = to_integer(value, name)
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or (bits < 64 and (number >> (bits - 1)) not in (0, -1)):
        raise OverflowError(f"{name} {value} does not fit {bits} bits")
    return number


cdef int check_field(field, str name) except -1:
    if field is not None and not isinstance(field, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"{name} must be bytes, bytearray, memoryview or None, not {type_name(field)}")
    return 0


cdef int get_view(field, Py_buffer* view) except -1:
    """A field that passed `check_field` as a view; None has length -1 and no object."""
    if field is None:
        view.buf = NULL
        view.len = -1
        return 0
    if isinstance(field, memoryview) and not field.c_contiguous:
        field = bytes(field)
    return PyObject_GetBuffer(field, view, PyBUF_SIMPLE)


cdef list flat_headers(headers, int64_t* size):
    """[key, value, key, value, ...] as bytes or None, and the bytes they will take."""
    cdef list flat = []
    cdef bytes encoded
    if isinstance(headers, Mapping):
        headers = headers.items()
    elif not isinstance(headers, Iterable):
        raise TypeError(
            "headers must be a mapping or an iterable of (key, value) pairs, "
            f"not {type_name(headers)}")
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"a header must be a (key, value) pair, not {type_name(pair)}")
        key, value = pair
        if not isinstance(key, str):
            raise TypeError(f"header key must be str, not {type_name(key)}")
        encoded = (<str>key).encode("utf-8", "surrogateescape")
        if value is not None and not PyBytes_CheckExact(value):
            check_field(value, "header value")
            value = bytes(value)
        flat.append(encoded)
        flat.append(value)
        size[0] += ms_bytes_size(PyBytes_GET_SIZE(encoded))
        size[0] += ms_bytes_size(-1 if value is None else PyBytes_GET_SIZE(value))
    return flat


cdef int raise_not_a_row(str found) except -1:
    raise TypeError(
        "a row must be a tuple of (timestamp, key, value) or (timestamp, key, value, headers), "
        f"not {found}")


# ---- the last step: header and body in one piece, with the length and the checksum ----


cdef int raise_too_large(int64_t body_size) except -1:
    raise MessageTooLarge(
        f"the batch would have {MS_HEADER_SIZE + body_size} bytes, the limit is {INT32_MAX}")


cdef void fill(uint8_t* batch, uint8_t* header, const uint8_t* body, int64_t size) noexcept nogil:
    """Header and body in place, with the length and the CRC of both."""
    memcpy(batch, header, MS_HEADER_SIZE)
    if size:
        memcpy(batch + MS_HEADER_SIZE, body, size)
    ms_write_big_endian(batch + MS_LENGTH_AT, MS_HEADER_SIZE + size - MS_LENGTH_END, 4)
    ms_write_big_endian(
        batch + MS_CRC_AT, checksum(0, batch + MS_CRC_END, MS_HEADER_SIZE + size - MS_CRC_END), 4)


cdef bytes seal_bytes(uint8_t* header, const uint8_t* body, int64_t size):
    if size > INT32_MAX - MS_HEADER_SIZE:
        raise_too_large(size)
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, MS_HEADER_SIZE + size)
    cdef uint8_t* data = <uint8_t*>PyBytes_AS_STRING(batch)
    if size >= RELEASE_GIL_SIZE:
        with nogil:
            fill(data, header, body, size)
    else:
        fill(data, header, body, size)
    return batch


cdef bytes seal_view(uint8_t* header, body):
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return seal_bytes(header, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


# ---- the writer ----


cdef inline bint is_plain(field, const uint8_t** data, int64_t* length):
    """Point at the bytes of the common kinds, which need no release; False for the others."""
    if PyBytes_CheckExact(field):
        data[0] = <const uint8_t*>PyBytes_AS_STRING(field)
        length[0] = PyBytes_GET_SIZE(field)
        return True
    if field is None:
        data[0] = NULL
        length[0] = -1
        return True
    return False


cdef inline bint has_headers(headers):
    return headers is not None and not (type(headers) is tuple and len(<tuple>headers) == 0)


cdef class BatchWriter:
    """The records of one batch, encoded as they come, and the header that seals them.

    One thread at a time: a second one that calls while a call is under way gets a RuntimeError.
    While a view of `body()` is alive the batch cannot change, which is a BufferError.
    """

    def __init__(self, int64_t capacity=16 * 1024, base_timestamp=None):
        """`capacity`: the bytes to make room for at first, a hint only.

        Timestamps are written relative to `base_timestamp`, else to the first record's.
        """
        cdef int64_t base = 0
        if base_timestamp is not None:
            base = to_int(base_timestamp, "timestamp", 64)
        self._enter_to_change()
        self._batch.hint = min(max(capacity, 0), INT32_MAX)
        self._batch.has_fixed_base = base_timestamp is not None
        self._batch.fixed_base = base
        ms_batch_reset(&self._batch)
        self._leave()

    def __cinit__(self):
        ms_batch_reset(&self._batch)

    def __dealloc__(self):
        PyMem_RawFree(self._batch.data)

    # ---- who may touch it ----

    cdef int _enter(self) except -1:
        if ms_take(&self._busy):
            raise RuntimeError("this batch is in use: one thread, one call at a time")
        return 0

    cdef int _enter_to_change(self) except -1:
        self._enter()
        if self._exports:
            self._leave()
            raise BufferError("the batch cannot change while a view of body() is alive")
        return 0

    cdef void _leave(self) noexcept:
        ms_give_back(&self._busy)

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef uint8_t* data
        self._enter()
        try:
            data = self._batch.data if self._batch.length else &NOTHING
            PyBuffer_FillInfo(view, self, data, self._batch.length, True, flags)
            ms_add(&self._exports, 1)
        finally:
            self._leave()

    def __releasebuffer__(self, Py_buffer* view):
        ms_add(&self._exports, -1)

    # ---- room and bookkeeping ----

    cdef int _reserve(self, int64_t size) except -1:
        check_size(self._batch.length + size)
        if not ms_batch_reserve(&self._batch, self._batch.length + size):
            raise MemoryError
        return 0

    cdef int64_t _timestamp_delta(self, int64_t timestamp) except? -1:
        cdef int64_t delta
        if ms_batch_is_too_far(&self._batch, timestamp, &delta):
            raise OverflowError(
                f"timestamp {timestamp} is too far from the batch's first, "
                f"{self._batch.base_timestamp}")
        return delta

    cdef int64_t _next_offset_delta(self) except -1:
        if self._batch.last_offset_delta >= INT32_MAX:
            raise OverflowError(
                f"offset delta {self._batch.last_offset_delta + 1} does not fit 31 bits")
        return self._batch.last_offset_delta + 1

    cdef int64_t _offset_delta(self, given) except -1:
        if given is None:
            return self._next_offset_delta()
        number = to_integer(given, "offset delta")
        if not 0 <= number <= INT32_MAX:
            raise OverflowError(f"offset delta {number} does not fit 31 bits")
        if number <= self._batch.last_offset_delta:
            raise ValueError(
                f"offset delta {number} must be above the previous, "
                f"{self._batch.last_offset_delta}")
        return number

    # ---- one record ----

    cdef int _write(
        self, int64_t timestamp, int64_t timestamp_delta, object offset_delta,
        const uint8_t* key, int64_t key_length, const uint8_t* value, int64_t value_length,
        list headers, int64_t headers_size,
    ) except -1:
        """Encode one record. Nothing has changed if this raises."""
        cdef int64_t header_count = PyList_GET_SIZE(headers) // 2 if headers is not None else 0
        cdef int64_t offset = self._offset_delta(offset_delta)
        cdef int64_t length = ms_record_length(
            timestamp_delta, offset, key_length, value_length, header_count, headers_size)
        self._reserve(ms_varint_size(length) + length)
        cdef uint8_t* p = ms_write_record(
            self._batch.data + self._batch.length, length, timestamp_delta, offset, key, key_length,
            value, value_length, header_count)
        if headers is not None:
            p = write_headers(p, headers)
        self._batch.length = p - self._batch.data
        ms_batch_count(&self._batch, timestamp, offset)
        return 0

    cdef int _write_views(
        self, int64_t timestamp, int64_t timestamp_delta, object offset_delta, key, value,
        list headers, int64_t headers_size,
    ) except -1:
        """As `_write`, for keys and values that lend their bytes for a while."""
        cdef Py_buffer key_view, value_view
        memset(&key_view, 0, sizeof(key_view))  # A view without an object is safe to release.
        memset(&value_view, 0, sizeof(value_view))
        try:
            get_view(key, &key_view)
            get_view(value, &value_view)
            return self._write(
                timestamp, timestamp_delta, offset_delta,
                <const uint8_t*>key_view.buf, key_view.len,
                <const uint8_t*>value_view.buf, value_view.len, headers, headers_size)
        finally:
            PyBuffer_Release(&key_view)
            PyBuffer_Release(&value_view)

    cdef int _append(self, timestamp, key, value, headers, offset_delta) except -1:
        cdef const uint8_t* key_data = NULL
        cdef const uint8_t* value_data = NULL
        cdef int64_t key_length = -1
        cdef int64_t value_length = -1
        cdef int64_t headers_size = 0
        cdef list flat = None
        cdef int64_t stamp = to_int(timestamp, "timestamp", 64)
        cdef int64_t delta = self._timestamp_delta(stamp)
        cdef bint are_plain = (
            is_plain(key, &key_data, &key_length) and is_plain(value, &value_data, &value_length))
        if not are_plain:
            check_field(key, "key")
            check_field(value, "value")
        if has_headers(headers):
            flat = flat_headers(headers, &headers_size)
        if are_plain:
            return self._write(
                stamp, delta, offset_delta, key_data, key_length, value_data, value_length,
                flat, headers_size)
        return self._write_views(stamp, delta, offset_delta, key, value, flat, headers_size)

    def append(self, timestamp, key, value, headers=(), offset_delta=None):
        """Add one record; the size of the batch so far. If it raises, nothing was added."""
        self._enter_to_change()
        try:
            self._append(timestamp, key, value, headers, offset_delta)
            return MS_HEADER_SIZE + self._batch.length
        finally:
            self._leave()

    cdef int _append_row(self, row) except -1:
        cdef Py_ssize_t size
        if isinstance(row, list):
            row = tuple(row)
        elif not isinstance(row, tuple):
            raise_not_a_row(type(row).__name__)
        size = PyTuple_GET_SIZE(row)
        if size != 3 and size != 4:
            raise_not_a_row(f"{size} items")
        return self._append(
            <object>PyTuple_GET_ITEM(row, 0), <object>PyTuple_GET_ITEM(row, 1),
            <object>PyTuple_GET_ITEM(row, 2),
            <object>PyTuple_GET_ITEM(row, 3) if size == 4 else None, None)

    def extend(self, records):
        """Add (timestamp, key, value) or (timestamp, key, value, headers) rows; the size so far.

        If one is wrong, those before it stay.
        """
        self._enter_to_change()
        try:
            for row in records:
                self._append_row(row)
            return MS_HEADER_SIZE + self._batch.length
        finally:
            self._leave()

    def append_raw(self, record_bytes, offset_delta, timestamp):
        """Add a record as `scan_records` found it, its length included; the size so far.

        Its deltas stay as they are, so `seal` wants the base_timestamp of the batch it came from.
        """
        cdef int64_t stamp, offset
        cdef Py_buffer view
        self._enter_to_change()
        try:
            stamp = to_int(timestamp, "timestamp", 64)
            offset = self._offset_delta(offset_delta)
            PyObject_GetBuffer(record_bytes, &view, PyBUF_SIMPLE)
            try:
                self._reserve(view.len)
                if view.len:  # There may be no memory yet, and memcpy takes no null.
                    memcpy(self._batch.data + self._batch.length, view.buf, view.len)
                self._batch.length += view.len
            finally:
                PyBuffer_Release(&view)
            ms_batch_count(&self._batch, stamp, offset)
            return MS_HEADER_SIZE + self._batch.length
        finally:
            self._leave()

    # ---- Arrow ----

    cdef int _raise_row(self, int outcome, ms_rows_job* job, int64_t row) except -1:
        if outcome == MS_BATCH_NO_MEMORY:
            raise MemoryError
        if outcome == MS_BATCH_NO_ROW:
            raise IndexError(f"there is no row {row}")
        if outcome == MS_BATCH_TOO_LARGE:
            check_size(job.length)
        if outcome == MS_BATCH_TOO_MANY:
            self._next_offset_delta()
        if outcome == MS_BATCH_TOO_FAR:
            self._timestamp_delta(job.timestamp)
        return raise_row(outcome, row)

    def extend_arrow(
        self, ArrowChunk chunk not None, int64_t start, int64_t stop, int64_t size_limit,
        int64_t default_timestamp,
    ):
        """Add rows start to stop of a chunk while the size stays in the limit; how many it took.

        An empty batch takes the first whatever its size. If one is wrong, those before it stay.
        """
        cdef ms_rows_job job = ms_rows_job(start, stop, size_limit, default_timestamp, 0, 0)
        if start >= stop:
            return 0
        if start < 0 or stop > len(chunk):
            raise IndexError(f"rows {start} to {stop} of {len(chunk)}")
        return self._extend_arrow(chunk, &job, NULL)

    def extend_arrow_rows(
        self, ArrowChunk chunk not None, const int32_t[::1] picked, int64_t start, int64_t stop,
        int64_t size_limit, int64_t default_timestamp,
    ):
        """As `extend_arrow`, for the rows whose numbers are in `picked`, from start to stop."""
        cdef ms_rows_job job = ms_rows_job(start, stop, size_limit, default_timestamp, 0, 0)
        if start >= stop:
            return 0
        if start < 0 or stop > picked.shape[0]:
            raise IndexError(f"places {start} to {stop} of {picked.shape[0]}")
        return self._extend_arrow(chunk, &job, &picked[0])

    cdef object _extend_arrow(self, ArrowChunk chunk, ms_rows_job* job, const int32_t* picked):
        cdef int64_t start = job.row
        cdef int outcome
        self._enter_to_change()
        try:
            if job.stop - start >= RELEASE_GIL_ROWS:
                with nogil:
                    outcome = ms_batch_add_rows(&self._batch, &chunk._input, job, picked)
            else:
                outcome = ms_batch_add_rows(&self._batch, &chunk._input, job, picked)
            if outcome != MS_ROW_DONE and outcome != MS_BATCH_FULL:
                self._raise_row(outcome, job, picked[job.row] if picked else job.row)
            return job.row - start
        finally:
            self._leave()

    # ---- the batch ----

    @property
    def size(self):
        """Bytes of the batch so far, its header included."""
        return MS_HEADER_SIZE + self._batch.length

    @property
    def record_count(self):
        """How many records were added."""
        return self._batch.record_count

    @property
    def base_timestamp(self):
        """What timestamps are relative to: as given, or the first record's; -1 without either."""
        return self._batch.base_timestamp

    @property
    def max_timestamp(self):
        """The greatest timestamp, -1 before there is one."""
        return self._batch.max_timestamp

    @property
    def last_offset_delta(self):
        """The last record's offset delta, -1 before there is one."""
        return self._batch.last_offset_delta

    def body(self):
        """A view of the encoded records. While it lives, the batch cannot change."""
        return memoryview(self)

    def clear(self):
        """Forget the records, keep the memory."""
        self._enter_to_change()
        ms_batch_reset(&self._batch)
        self._leave()

    def seal(
        self, *, base_offset=0, leader_epoch=-1, attributes=0, last_offset_delta=None,
        base_timestamp=None, max_timestamp=None, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, body=None,
    ):
        """The batch: a header with its CRC, then `body` (compressed records) or the records."""
        cdef uint8_t header[MS_HEADER_SIZE]
        cdef uint8_t* p = &header[0] + MS_CRC_END
        if last_offset_delta is None:
            if not self._batch.record_count:
                raise ValueError("an empty batch has no last offset: pass last_offset_delta")
            last_offset_delta = self._batch.last_offset_delta
        if base_timestamp is None:
            base_timestamp = self._batch.base_timestamp
        if max_timestamp is None:
            max_timestamp = self._batch.max_timestamp
        p = ms_write_big_endian(p, to_int(attributes, "attributes", 16), 2)
        p = ms_write_big_endian(p, to_int(last_offset_delta, "last_offset_delta", 32), 4)
        p = ms_write_big_endian(p, to_int(base_timestamp, "base_timestamp", 64), 8)
        p = ms_write_big_endian(p, to_int(max_timestamp, "max_timestamp", 64), 8)
        p = ms_write_big_endian(p, to_int(producer_id, "producer_id", 64), 8)
        p = ms_write_big_endian(p, to_int(producer_epoch, "producer_epoch", 16), 2)
        p = ms_write_big_endian(p, to_int(base_sequence, "base_sequence", 32), 4)
        ms_write_big_endian(p, self._batch.record_count, 4)
        p = ms_write_big_endian(&header[0], to_int(base_offset, "base_offset", 64), 8)
        p = ms_write_big_endian(p, 0, 4)  # `seal_bytes` knows the length,
        p = ms_write_big_endian(p, to_int(leader_epoch, "leader_epoch", 32), 4)
        p = ms_write_big_endian(p, 2, 1)
        ms_write_big_endian(p, 0, 4)  # and the checksum.
        if body is None:
            self._enter()
            try:
                return seal_bytes(header, self._batch.data, self._batch.length)
            finally:
                self._leave()
        return seal_view(header, body)


cdef inline int check_size(int64_t body_size) except -1:
    return 0 if body_size <= MS_BODY_SIZE_MAX else raise_too_large(body_size)


cdef uint8_t* write_headers(uint8_t* p, list flat):
    cdef const uint8_t* data = NULL
    cdef int64_t length = 0
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(flat)):
        is_plain(<object>PyList_GET_ITEM(flat, i), &data, &length)
        p = ms_write_bytes(p, data, length)
    return p
