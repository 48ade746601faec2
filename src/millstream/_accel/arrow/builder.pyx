# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Records to Arrow, without pyarrow; half of the counterpart of `millstream.records.plain.arrow`.

`records.arrow` feeds it the bodies of batches; whatever speaks the Arrow PyCapsule interface takes
the result without a copy. The bytes read may come from anybody, as in `record_codec`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memset

from millstream._accel.arrow.abi cimport ArrowArray, ArrowArrayStream, ArrowSchema
from millstream._accel.atomics cimport ms_give_back, ms_take
from millstream._accel.codec import faults
from millstream._accel.arrow.schema import COLUMNS, columns_by_number
from millstream.errors import InvalidArgument

cdef extern from "arrow/columns.h" nogil:
    enum:
        MS_DONE
        MS_CORRUPT
        MS_BEHIND_LAST
        MS_NO_MEMORY
        MS_BAD_CHECKSUM

    int ms_append(ms_columns* columns, ms_append_job* job)
    void ms_free_columns(ms_columns* columns)

cdef extern from "arrow/export.h" nogil:
    ctypedef struct ms_shared_columns:
        ms_columns columns

    ctypedef struct ms_selection:
        int count
        int columns[6]
        bint has_views

    ms_shared_columns* ms_share(ms_columns* columns)
    ms_shared_columns* ms_retain(ms_shared_columns* shared)
    void ms_let_go(ms_shared_columns* shared)
    bint ms_export_schema(ArrowSchema* schema, const ms_selection* selection)
    bint ms_export_array(
        ArrowArray* array, ms_shared_columns* shared, const ms_selection* selection)

cdef enum:
    # A body of this size takes long enough that other threads gain by running meanwhile.
    RELEASE_GIL_SIZE = 64 * 1024

# In the order of `enum ms_column`.
cdef tuple LIMITED_COLUMNS = ("key", "value", "headers", "header key", "header value")


cdef class ArrowRecordsBuilder:
    """Collects the records of batches as Arrow columns.

    One thread at a time: a second one that calls while a call is under way gets a RuntimeError.
    """

    def __init__(self, columns=None):
        """`columns` are those that are wanted, in their order: others are passed over."""
        numbers = range(len(COLUMNS)) if columns is None else columns_by_number(columns)
        self._numbers = tuple(numbers)
        self._columns.left_out = 0
        for number in range(len(COLUMNS)):
            if number not in self._numbers:
                self._columns.left_out |= 1 << number

    def __dealloc__(self):
        ms_free_columns(&self._columns)

    cdef int _enter(self) except -1:
        if ms_take(&self._busy):
            raise RuntimeError("this builder is in use: one thread, one call at a time")
        return 0

    def append(
        self, body, int64_t count, int64_t base_offset, int64_t base_timestamp,
        append_timestamp=None, int32_t partition=0, int64_t from_offset=0,
        int64_t to_offset=INT64_MAX,
    ):
        """Add the records of an uncompressed body, as `decode_records` reads them; the rows added.

        On an error nothing is added.
        """
        cdef ms_append_job job
        cdef Py_buffer view
        memset(&job, 0, sizeof(job))
        if count < 0:
            raise faults.negative_count(count)
        job.count = count
        job.base_offset = base_offset
        job.base_timestamp = base_timestamp
        job.has_append_timestamp = append_timestamp is not None
        job.append_timestamp = 0 if append_timestamp is None else append_timestamp
        job.partition = partition
        job.from_offset = from_offset
        job.to_offset = to_offset
        PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
        try:
            job.body = <const uint8_t*>view.buf
            job.size = view.len
            return self.add(&job)
        finally:
            PyBuffer_Release(&view)

    cdef int64_t add(self, ms_append_job* job) except -1:
        """Do a job; the rows added."""
        cdef int64_t rows_before
        self._enter()
        try:
            rows_before = self._columns.row_count
            self._run(job)
            return self._columns.row_count - rows_before
        finally:
            ms_give_back(&self._busy)

    cdef int _run(self, ms_append_job* job) except -1:
        cdef int outcome
        if job.size >= RELEASE_GIL_SIZE:
            with nogil:
                outcome = ms_append(&self._columns, job)
        else:
            outcome = ms_append(&self._columns, job)
        return 0 if outcome == MS_DONE else raise_outcome(outcome, job)

    @property
    def row_count(self):
        """Rows so far."""
        return self._columns.row_count

    @property
    def byte_count(self):
        """Bytes of keys, values and headers so far."""
        return self.bytes_so_far()

    cdef int64_t bytes_so_far(self) noexcept:
        return (
            self._columns.key.bytes.size + self._columns.value.bytes.size
            + self._columns.header_key.bytes.size + self._columns.header_value.bytes.size)

    def expect(self, int64_t size):
        """About how many bytes of batches the next rows come from: room is made for them at once.

        Without it, the next rows are expected to be as many as the last.
        """
        self._columns.expected = max(0, size)

    def finish(self):
        """The rows as an Arrow object. The builder is empty again."""
        cdef ArrowRecords records = ArrowRecords.__new__(ArrowRecords)
        self._enter()
        records._shared = ms_share(&self._columns)
        ms_give_back(&self._busy)
        if records._shared is NULL:
            raise MemoryError
        records._select(self._numbers)
        return records


cdef int raise_outcome(int outcome, ms_append_job* job) except -1:
    cdef int64_t position = job.fault.position - job.body
    if outcome == MS_NO_MEMORY:
        raise MemoryError
    if outcome == MS_BEHIND_LAST:
        raise faults.bytes_left_over(position, job.size - position, job.count)
    if outcome == MS_CORRUPT:
        raise faults.bad_record(
            job.fault_index, position, job.fault.kind, job.fault.field, job.fault.value,
            job.fault.left)
    if outcome == MS_BAD_CHECKSUM:
        raise faults.bad_checksum(job.base_offset, job.crc_stored, job.crc)
    raise OverflowError(
        f"column {LIMITED_COLUMNS[job.full_column]} would pass 2147483647 bytes: "
        "call finish() and go on with the next")


cdef int check_there(ms_shared_columns* shared, numbers) except -1:
    for number in numbers:
        if shared.columns.left_out >> <int>number & 1:
            name = COLUMNS[number]
            raise InvalidArgument(f"column {name!r} was left out when the rows were read")
    return 0


cdef class ArrowRecords:
    """Records as one Arrow struct array, to be taken through the PyCapsule interface.

    Columns: key, value, headers, timestamp, offset, partition, or those that were selected. It may
    be taken more than once; the takers share the buffers.
    """

    cdef ms_shared_columns* _shared
    cdef ms_selection _selection

    def __init__(self):
        raise TypeError("ArrowRecords come from ArrowRecordsBuilder.finish()")

    def __dealloc__(self):
        ms_let_go(self._shared)

    cdef ms_shared_columns* _get(self) except NULL:
        """The columns. `__new__` called by hand leaves none."""
        if self._shared is NULL:
            raise TypeError("ArrowRecords come from ArrowRecordsBuilder.finish()")
        return self._shared

    cdef int _select(self, numbers) except -1:
        check_there(self._get(), numbers)
        self._selection.count = len(numbers)
        for index, number in enumerate(numbers):
            self._selection.columns[index] = number
        return 0

    def __len__(self):
        return self._get().columns.row_count

    def select(self, columns):
        """The same rows with these columns, in this order; nothing is copied."""
        cdef ArrowRecords selected = ArrowRecords.__new__(ArrowRecords)
        numbers = columns_by_number(columns)
        selected._shared = ms_retain(self._get())
        selected._selection.has_views = self._selection.has_views
        selected._select(numbers)
        return selected

    def with_views(self):
        """The same rows with keys and values as views, for those who would make views of them."""
        cdef ArrowRecords viewed = ArrowRecords.__new__(ArrowRecords)
        viewed._shared = ms_retain(self._get())
        viewed._selection = self._selection
        viewed._selection.has_views = True
        return viewed

    def __arrow_c_schema__(self):
        """The schema as an "arrow_schema" capsule."""
        cdef ArrowSchema* schema = <ArrowSchema*>allocate(sizeof(ArrowSchema))
        if not ms_export_schema(schema, &self._selection):
            PyMem_RawFree(schema)
            raise MemoryError
        return PyCapsule_New(schema, "arrow_schema", &drop_schema)

    def __arrow_c_array__(self, requested_schema=None):
        """The schema and the rows as capsules. A request for other types is ignored."""
        cdef ms_shared_columns* shared = self._get()
        schema_capsule = self.__arrow_c_schema__()
        cdef ArrowArray* array = <ArrowArray*>allocate(sizeof(ArrowArray))
        if not ms_export_array(array, shared, &self._selection):
            PyMem_RawFree(array)
            raise MemoryError
        return schema_capsule, PyCapsule_New(array, "arrow_array", &drop_array)

    def __arrow_c_stream__(self, requested_schema=None):
        """The rows as an "arrow_array_stream" capsule of one array."""
        cdef ArrowStream stream = ArrowStream([self])
        self._get()
        stream._selection = self._selection
        return stream.__arrow_c_stream__()


cdef void* allocate(size_t size) except NULL:
    cdef void* memory = PyMem_RawCalloc(1, size)
    if memory is NULL:
        raise MemoryError
    return memory


# A capsule frees its structure, and releases what is in it unless a consumer took that.

cdef void drop_schema(object capsule) noexcept:
    cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(capsule, "arrow_schema")
    if schema.release is not NULL:
        schema.release(schema)
    PyMem_RawFree(schema)


cdef void drop_array(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release is not NULL:
        array.release(array)
    PyMem_RawFree(array)


cdef void drop_stream(object capsule) noexcept:
    cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(
        capsule, "arrow_array_stream")
    if stream.release is not NULL:
        stream.release(stream)
    PyMem_RawFree(stream)


# A stream whose arrays are made as they are asked for, by whoever reads it and in its thread.

cdef class ArrowStream:
    """An "arrow_array_stream" of all ArrowRecords that an iterator gives; it can be taken once.

    What the iterator raises ends the stream with an error in words, and is kept in `error`.
    """

    cdef object _records
    cdef ms_selection _selection
    cdef bytes _message
    cdef readonly object error

    def __init__(self, records, columns=None, bint with_views=False):
        numbers = range(len(COLUMNS)) if columns is None else columns_by_number(columns)
        self._records = iter(records)
        self._selection.count = len(numbers)
        for index, number in enumerate(numbers):
            self._selection.columns[index] = number
        self._selection.has_views = with_views

    def __arrow_c_stream__(self, requested_schema=None):
        """The stream. A request for other types is ignored."""
        cdef ArrowArrayStream* stream = <ArrowArrayStream*>allocate(sizeof(ArrowArrayStream))
        stream.get_schema = pulled_schema
        stream.get_next = pulled_next
        stream.get_last_error = pulled_error
        stream.release = release_pulled
        stream.private_data = <void*>self
        Py_INCREF(self)
        return PyCapsule_New(stream, "arrow_array_stream", &drop_stream)

    cdef int _next(self, ArrowArray* out) except -1:
        cdef ArrowRecords records = next(self._records, None)
        cdef int i
        if records is not None:
            check_there(
                records._get(), [self._selection.columns[i] for i in range(self._selection.count)])
        if records is not None and not ms_export_array(out, records._get(), &self._selection):
            raise MemoryError
        return 0

    cdef int _fail(self, error):
        self.error = error
        self._message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        return EIO


cdef int pulled_schema(ArrowArrayStream* stream, ArrowSchema* out) noexcept with gil:
    cdef ArrowStream source = <ArrowStream>stream.private_data
    return 0 if ms_export_schema(out, &source._selection) else ENOMEM


cdef int pulled_next(ArrowArrayStream* stream, ArrowArray* out) noexcept with gil:
    cdef ArrowStream source = <ArrowStream>stream.private_data
    memset(out, 0, sizeof(ArrowArray))
    try:
        return source._next(out)
    except BaseException as error:
        return source._fail(error)


cdef const char* pulled_error(ArrowArrayStream* stream) noexcept with gil:
    cdef ArrowStream source = <ArrowStream>stream.private_data
    if source._message is None:
        return NULL
    return <const char*>source._message


cdef void release_pulled(ArrowArrayStream* stream) noexcept with gil:
    Py_DECREF(<object>stream.private_data)
    stream.release = NULL
