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
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from cpython.number cimport PyNumber_Index
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, int64_t, uint8_t
from libc.string cimport memcpy, memset

from millstream._accel.arrow_input cimport (
    MS_ROW_DONE, ms_input, ms_read_row, ms_row, ms_write_row_headers)
from millstream._accel.arrow_reader cimport ArrowChunk, raise_row
from millstream._accel.crc32c cimport checksum
from millstream._accel.wire cimport (
    MS_HEADER_SIZE, ms_bytes_size, ms_record_length, ms_varint_size,
    ms_write_big_endian, ms_write_bytes, ms_write_record)

from collections.abc import Iterable, Mapping

from millstream.errors import MessageTooLarge

cdef extern from *:
    """
    #define ms_swap(flag, value) __atomic_exchange_n(flag, value, __ATOMIC_ACQ_REL)
    #define ms_clear(flag) __atomic_store_n(flag, 0, __ATOMIC_RELEASE)
    #define ms_add(counter, n) __atomic_add_fetch(counter, n, __ATOMIC_ACQ_REL)
    #define ms_sub_overflows(a, b, result) __builtin_sub_overflow(a, b, result)
    """
    int ms_swap(int* flag, int value) nogil
    void ms_clear(int* flag) nogil
    int ms_add(int* counter, int n) nogil
    bint ms_sub_overflows(int64_t a, int64_t b, int64_t* result) nogil

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    # The length counts what comes after it; the checksum covers what comes after it.
    LENGTH_AT = 8
    LENGTH_END = 12
    CRC_AT = 17
    CRC_END = 21
    # A batch of this size takes long enough to copy and sum that other threads gain by running,
    # and so do that many rows.
    RELEASE_GIL_SIZE = 128 * 1024
    RELEASE_GIL_ROWS = 1024
    # Beyond the outcomes of ms_read_row.
    BATCH_FULL = 100
    TOO_LARGE = 101
    TOO_FAR = 102
    TOO_MANY = 103
    NO_MEMORY = 104

cdef uint8_t NOTHING = 0


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
        self._hint = min(max(capacity, 0), INT32_MAX)
        self._has_fixed_base = base_timestamp is not None
        self._fixed_base = base
        self._reset()
        self._leave()

    def __cinit__(self):
        self._reset()

    def __dealloc__(self):
        PyMem_RawFree(self._data)

    cdef void _reset(self) noexcept:
        self._length = 0
        self._record_count = 0
        self._base_timestamp = self._fixed_base if self._has_fixed_base else -1
        self._max_timestamp = -1
        self._last_offset_delta = -1

    # ---- who may touch it ----

    cdef int _enter(self) except -1:
        if ms_swap(&self._busy, 1):
            raise RuntimeError("this batch is in use: one thread, one call at a time")
        return 0

    cdef int _enter_to_change(self) except -1:
        self._enter()
        if self._exports:
            self._leave()
            raise BufferError("the batch cannot change while a view of body() is alive")
        return 0

    cdef void _leave(self) noexcept:
        ms_clear(&self._busy)

    def __getbuffer__(self, Py_buffer* view, int flags):
        self._enter()
        try:
            PyBuffer_FillInfo(
                view, self, self._data if self._length else &NOTHING, self._length, True, flags)
            ms_add(&self._exports, 1)
        finally:
            self._leave()

    def __releasebuffer__(self, Py_buffer* view):
        ms_add(&self._exports, -1)

    # ---- room and bookkeeping ----

    cdef int _grow(self, int64_t needed) noexcept nogil:
        """Room for `needed` bytes in all; 0, or -1 when there is no memory."""
        cdef int64_t capacity = max(needed, self._capacity * 2, self._hint)
        cdef void* data = PyMem_RawRealloc(self._data, <size_t>capacity)
        if data is NULL:
            return -1
        self._data = <uint8_t*>data
        self._capacity = capacity
        return 0

    cdef inline int _reserve(self, int64_t size) except -1:
        cdef int64_t needed = self._length + size
        check_size(needed)
        if needed > self._capacity and self._grow(needed) < 0:
            raise MemoryError
        return 0

    cdef inline void _count(self, int64_t timestamp, int64_t offset_delta) noexcept nogil:
        if self._record_count == 0:
            self._max_timestamp = timestamp
            if not self._has_fixed_base:
                self._base_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._record_count += 1
        self._last_offset_delta = offset_delta

    cdef inline bint _is_too_far(self, int64_t timestamp, int64_t* delta) noexcept nogil:
        """Whether the delta, which is 0 for the record that sets the base, does not fit."""
        delta[0] = 0
        return (self._record_count or self._has_fixed_base) and ms_sub_overflows(
            timestamp, self._base_timestamp, delta)

    cdef inline int64_t _timestamp_delta(self, int64_t timestamp) except? -1:
        cdef int64_t delta
        if self._is_too_far(timestamp, &delta):
            raise OverflowError(
                f"timestamp {timestamp} is too far from the batch's first, "
                f"{self._base_timestamp}")
        return delta

    cdef inline int64_t _next_offset_delta(self) except -1:
        if self._last_offset_delta >= INT32_MAX:
            raise OverflowError(f"offset delta {self._last_offset_delta + 1} does not fit 31 bits")
        return self._last_offset_delta + 1

    cdef int64_t _offset_delta(self, given) except -1:
        if given is None:
            return self._next_offset_delta()
        number = to_integer(given, "offset delta")
        if not 0 <= number <= INT32_MAX:
            raise OverflowError(f"offset delta {number} does not fit 31 bits")
        if number <= self._last_offset_delta:
            raise ValueError(
                f"offset delta {number} must be above the previous, {self._last_offset_delta}")
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
            self._data + self._length, length, timestamp_delta, offset, key, key_length,
            value, value_length, header_count)
        if headers is not None:
            p = write_headers(p, headers)
        self._length = p - self._data
        self._count(timestamp, offset)
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
            return MS_HEADER_SIZE + self._length
        finally:
            self._leave()

    cdef int _append_row(self, row) except -1:
        cdef Py_ssize_t size
        if isinstance(row, list):
            row = tuple(row)
        elif not isinstance(row, tuple):
            raise_not_a_row(type_name(row))
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
            return MS_HEADER_SIZE + self._length
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
                memcpy(self._data + self._length, view.buf, view.len)
                self._length += view.len
            finally:
                PyBuffer_Release(&view)
            self._count(stamp, offset)
            return MS_HEADER_SIZE + self._length
        finally:
            self._leave()

    # ---- Arrow ----

    cdef int _write_row(
        self, const ms_input* input, int64_t index, int64_t size_limit, int64_t* timestamp,
        int64_t* length,
    ) noexcept nogil:
        """Encode one row; an outcome. The numbers that a complaint may need come back."""
        cdef ms_row row
        cdef int64_t delta = 0
        cdef int64_t offset = self._last_offset_delta + 1
        cdef uint8_t* p
        cdef int outcome = ms_read_row(input, index, &row)
        if outcome != MS_ROW_DONE:
            return outcome
        if row.has_timestamp:
            timestamp[0] = row.timestamp
        if self._is_too_far(timestamp[0], &delta):
            return TOO_FAR
        if offset > INT32_MAX:
            return TOO_MANY
        cdef int64_t body = ms_record_length(
            delta, offset, row.key_length, row.value_length, row.header_count, row.headers_size)
        length[0] = self._length + ms_varint_size(body) + body
        if length[0] > INT32_MAX - MS_HEADER_SIZE:
            return TOO_LARGE
        if self._record_count and length[0] > size_limit - MS_HEADER_SIZE:
            return BATCH_FULL
        if length[0] > self._capacity and self._grow(length[0]) < 0:
            return NO_MEMORY
        p = ms_write_record(
            self._data + self._length, body, delta, offset, row.key, row.key_length,
            row.value, row.value_length, row.header_count)
        if row.header_count:
            ms_write_row_headers(p, input, &row)
        self._length = length[0]
        self._count(timestamp[0], offset)
        return MS_ROW_DONE

    cdef int _write_rows(
        self, const ms_input* input, int64_t* index, int64_t stop, int64_t size_limit,
        int64_t default_timestamp, int64_t* timestamp, int64_t* length,
    ) noexcept nogil:
        cdef int outcome
        while index[0] < stop:
            timestamp[0] = default_timestamp
            outcome = self._write_row(input, index[0], size_limit, timestamp, length)
            if outcome != MS_ROW_DONE:
                return outcome
            index[0] += 1
        return MS_ROW_DONE

    cdef int _raise_row(self, int outcome, int64_t row, int64_t stamp, int64_t length) except -1:
        if outcome == NO_MEMORY:
            raise MemoryError
        if outcome == TOO_LARGE:
            check_size(length)
        if outcome == TOO_MANY:
            self._next_offset_delta()
        if outcome == TOO_FAR:
            self._timestamp_delta(stamp)
        return raise_row(outcome, row)

    def extend_arrow(
        self, ArrowChunk chunk not None, int64_t start, int64_t stop, int64_t size_limit,
        int64_t default_timestamp,
    ):
        """Add rows start to stop of a chunk while the size stays in the limit; how many it took.

        An empty batch takes the first whatever its size. If one is wrong, those before it stay.
        """
        cdef int64_t index = start
        cdef int64_t timestamp = 0
        cdef int64_t length = 0
        cdef int outcome
        if start >= stop:
            return 0
        if start < 0 or stop > len(chunk):
            raise IndexError(f"rows {start} to {stop} of {len(chunk)}")
        self._enter_to_change()
        try:
            if stop - start >= RELEASE_GIL_ROWS:
                with nogil:
                    outcome = self._write_rows(
                        &chunk._input, &index, stop, size_limit, default_timestamp,
                        &timestamp, &length)
            else:
                outcome = self._write_rows(
                    &chunk._input, &index, stop, size_limit, default_timestamp,
                    &timestamp, &length)
            if outcome != MS_ROW_DONE and outcome != BATCH_FULL:
                self._raise_row(outcome, index, timestamp, length)
            return index - start
        finally:
            self._leave()

    # ---- the batch ----

    @property
    def size(self):
        """Bytes of the batch so far, its header included."""
        return MS_HEADER_SIZE + self._length

    @property
    def record_count(self):
        """How many records were added."""
        return self._record_count

    @property
    def base_timestamp(self):
        """What timestamps are relative to: as given, or the first record's; -1 without either."""
        return self._base_timestamp

    @property
    def max_timestamp(self):
        """The greatest timestamp, -1 before there is one."""
        return self._max_timestamp

    @property
    def last_offset_delta(self):
        """The last record's offset delta, -1 before there is one."""
        return self._last_offset_delta

    def body(self):
        """A view of the encoded records. While it lives, the batch cannot change."""
        return memoryview(self)

    def clear(self):
        """Forget the records, keep the memory."""
        self._enter_to_change()
        self._reset()
        self._leave()

    def seal(
        self, *, base_offset=0, leader_epoch=-1, attributes=0, last_offset_delta=None,
        base_timestamp=None, max_timestamp=None, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, body=None,
    ):
        """The batch: a header with its CRC, then `body` (compressed records) or the records."""
        cdef uint8_t header[MS_HEADER_SIZE]
        cdef uint8_t* p = &header[0] + CRC_END
        if last_offset_delta is None:
            if not self._record_count:
                raise ValueError("an empty batch has no last offset: pass last_offset_delta")
            last_offset_delta = self._last_offset_delta
        if base_timestamp is None:
            base_timestamp = self._base_timestamp
        if max_timestamp is None:
            max_timestamp = self._max_timestamp
        p = ms_write_big_endian(p, to_int(attributes, "attributes", 16), 2)
        p = ms_write_big_endian(p, to_int(last_offset_delta, "last_offset_delta", 32), 4)
        p = ms_write_big_endian(p, to_int(base_timestamp, "base_timestamp", 64), 8)
        p = ms_write_big_endian(p, to_int(max_timestamp, "max_timestamp", 64), 8)
        p = ms_write_big_endian(p, to_int(producer_id, "producer_id", 64), 8)
        p = ms_write_big_endian(p, to_int(producer_epoch, "producer_epoch", 16), 2)
        p = ms_write_big_endian(p, to_int(base_sequence, "base_sequence", 32), 4)
        ms_write_big_endian(p, self._record_count, 4)
        p = ms_write_big_endian(&header[0], to_int(base_offset, "base_offset", 64), 8)
        p = ms_write_big_endian(p, 0, 4)  # `fill` knows the length,
        p = ms_write_big_endian(p, to_int(leader_epoch, "leader_epoch", 32), 4)
        p = ms_write_big_endian(p, 2, 1)
        ms_write_big_endian(p, 0, 4)  # and the checksum.
        if body is None:
            self._enter()
            try:
                return join(header, self._data, self._length)
            finally:
                self._leave()
        return join_view(header, body)


cdef int raise_not_a_row(str found) except -1:
    raise TypeError(
        "a row must be a tuple of (timestamp, key, value) or (timestamp, key, value, headers), "
        f"not {found}")


cdef inline int check_size(int64_t body_size) except -1:
    if body_size > INT32_MAX - MS_HEADER_SIZE:
        raise MessageTooLarge(
            f"the batch would have {MS_HEADER_SIZE + body_size} bytes, the limit is {INT32_MAX}")
    return 0


cdef uint8_t* write_headers(uint8_t* p, list flat):
    cdef const uint8_t* data = NULL
    cdef int64_t length = 0
    cdef Py_ssize_t i
    for i in range(PyList_GET_SIZE(flat)):
        is_plain(<object>PyList_GET_ITEM(flat, i), &data, &length)
        p = ms_write_bytes(p, data, length)
    return p


cdef void fill(uint8_t* batch, uint8_t* header, const uint8_t* body, int64_t size) noexcept nogil:
    """Header and body in place, with the length and the CRC of both."""
    memcpy(batch, header, MS_HEADER_SIZE)
    if size:
        memcpy(batch + MS_HEADER_SIZE, body, size)
    ms_write_big_endian(batch + LENGTH_AT, MS_HEADER_SIZE + size - LENGTH_END, 4)
    ms_write_big_endian(
        batch + CRC_AT, checksum(0, batch + CRC_END, MS_HEADER_SIZE + size - CRC_END), 4)


cdef bytes join(uint8_t* header, const uint8_t* body, int64_t size):
    check_size(size)
    cdef bytes batch = PyBytes_FromStringAndSize(NULL, MS_HEADER_SIZE + size)
    cdef uint8_t* data = <uint8_t*>PyBytes_AS_STRING(batch)
    if size >= RELEASE_GIL_SIZE:
        with nogil:
            fill(data, header, body, size)
    else:
        fill(data, header, body, size)
    return batch


cdef bytes join_view(uint8_t* header, body):
    cdef Py_buffer view
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        return join(header, <const uint8_t*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
