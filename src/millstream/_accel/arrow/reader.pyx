# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Arrow to records, without pyarrow; plain version `millstream.records.plain.arrow_reader`.

`records.arrow` reads any Arrow data with it, chunk by chunk, and `BatchWriter.extend_arrow` takes
the rows from the chunks, in place. Which columns fit is decided in `arrow_schema`.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from millstream._accel.arrow.abi cimport ArrowArray, ArrowArrayStream, ArrowSchema
from millstream._accel.arrow.input cimport *
from millstream._accel.atomics cimport ms_give_back, ms_take
from millstream._accel.codec.murmur2 cimport hash_bytes


cdef object rules():
    """`arrow_schema`, imported by the first reader: a process without Arrow does not load it."""
    from millstream._accel.arrow import schema as arrow_schema

    return arrow_schema


cdef object describe(const ArrowSchema* schema):
    """The schema as `arrow_schema.Node`s."""
    cdef int64_t i
    if schema is NULL or schema.format is NULL or (schema.n_children > 0 and not schema.children):
        raise rules().unsound_schema()
    return rules().Node(
        schema.name.decode("utf-8", "replace") if schema.name is not NULL else "",
        schema.format.decode("utf-8", "replace"),
        schema.dictionary is not NULL,
        tuple([describe(schema.children[i]) for i in range(schema.n_children)]),
    )


cdef ms_place to_place(column):
    cdef ms_place place
    place.child, place.layout, place.width = column
    return place


cdef int make_plan(ms_plan* plan, const ArrowSchema* schema) except -1:
    columns = rules().plan_records(describe(schema))
    plan.key = to_place(columns.key)
    plan.value = to_place(columns.value)
    plan.partition = to_place(columns.partition)
    plan.timestamp = to_place((columns.timestamp.child, columns.timestamp.layout, 8))
    plan.timestamp_multiplier = columns.timestamp.multiplier
    plan.timestamp_divisor = columns.timestamp.divisor
    plan.headers = to_place((columns.headers.child, columns.headers.layout, 0))
    plan.header_key = to_place(columns.headers.key)
    plan.header_value = to_place(columns.headers.value)
    return 0


cdef int raise_row(int outcome, int64_t row) except -1:
    """The error for what `ms_read_row` found."""
    if outcome == MS_ROW_NULL_HEADER:
        raise rules().null_header(row)
    if outcome == MS_ROW_NULL_HEADER_KEY:
        raise rules().null_header_key(row)
    raise rules().timestamp_overflow(row)


cdef object bytes_or_none(const uint8_t* data, int64_t length):
    return None if length < 0 else PyBytes_FromStringAndSize(<const char*>data, length)


cdef struct ms_spread:
    int64_t start
    int64_t stop
    int32_t partition_count
    bint uses_keys
    int32_t* numbers
    int32_t* chosen
    int64_t* ends


cdef int64_t choose_partitions(const ms_input* input, ms_spread* spread) noexcept nogil:
    """Note and count each row's partition; the row that has none that can be, or -1."""
    cdef const uint8_t* key = NULL
    cdef int64_t row, partition, length
    cdef int is_null = 0
    for row in range(spread.start, spread.stop):
        partition = ms_partition_at(input, row, &is_null)
        if not is_null:
            if not 0 <= partition < spread.partition_count:
                return row
        elif spread.uses_keys:
            length = ms_string_at(&input.key, row, &key)
            if length != MS_NULL:
                partition = (
                    (hash_bytes(key, length) & <uint32_t>0x7fffffff)
                    % <uint32_t>spread.partition_count)
        spread.chosen[row - spread.start] = <int32_t>partition
        spread.ends[partition + 1] += 1
    return -1


cdef int64_t spread_rows(const ms_input* input, ms_spread* spread) noexcept nogil:
    """Sort the rows by partition, by counting; `ends` says where each partition's end."""
    cdef int64_t i, count, first = 0
    cdef int64_t bad_row = choose_partitions(input, spread)
    if bad_row >= 0:
        return bad_row
    for i in range(<int64_t>spread.partition_count + 1):
        count = spread.ends[i]
        spread.ends[i] = first
        first += count
    for i in range(spread.stop - spread.start):
        count = spread.chosen[i] + 1
        spread.numbers[spread.ends[count]] = <int32_t>(spread.start + i)
        spread.ends[count] += 1
    return -1


cdef class ArrowChunk:
    """Some rows of Arrow data, to be written to a batch. It owns the array it stands for."""

    def __init__(self):
        raise TypeError("ArrowChunks come from an ArrowRecordsReader")

    def __dealloc__(self):
        if self._array.release is not NULL:
            self._array.release(&self._array)

    cdef int _bind(self, ms_plan* plan) except -1:
        cdef int64_t row, bad = 0
        cdef const uint8_t* validity
        cdef int outcome = ms_bind_input(&self._input, plan, &self._array, &bad)
        if outcome == MS_BAD_SHAPE:
            raise rules().unsound_array()
        if outcome != MS_BOUND:
            raise rules().unsound_value(rules().STRING_COLUMNS[outcome - MS_BAD_KEY], bad)
        if self._array.null_count != 0 and self._array.n_buffers > 0:
            validity = <const uint8_t*>self._array.buffers[0]
            for row in range(self._array.length):
                if ms_is_null(validity, self._array.offset + row):
                    raise rules().null_row(row)
        return 0

    def __len__(self):
        return self._input.row_count

    @property
    def has_key(self):
        """Whether there is a key column."""
        return self._input.key.layout != MS_ABSENT

    @property
    def has_headers(self):
        """Whether there is a headers column."""
        return self._input.headers.layout != MS_ABSENT

    @property
    def has_timestamp(self):
        """Whether there is a timestamp column."""
        return self._input.timestamp.layout != MS_ABSENT

    @property
    def has_partition(self):
        """Whether there is a partition column."""
        return self._input.partition.layout != MS_ABSENT

    def partitions(self):
        """The partition of each row, -1 where it is null; None without such a column."""
        cdef int64_t row, partition
        cdef int is_null = 0
        cdef bytes numbers
        cdef int32_t* out
        if self._input.partition.layout == MS_ABSENT:
            return None
        numbers = PyBytes_FromStringAndSize(NULL, 4 * self._input.row_count)
        out = <int32_t*>PyBytes_AS_STRING(numbers)
        for row in range(self._input.row_count):
            partition = ms_partition_at(&self._input, row, &is_null)
            if not is_null and not 0 <= partition <= INT32_MAX:
                raise rules().bad_partition(row, partition)
            out[row] = <int32_t>partition
        return memoryview(numbers).cast("i")

    def spread(self, int64_t start, int64_t stop, int32_t partition_count, bint uses_keys):
        """Rows start to stop by partition: their numbers, sorted, and how many each partition has.

        A row goes where its partition column says, else where the hash of its key does, else to
        partition -1: that is the caller's choice. Gives a view of the numbers and, by ascending
        partition, (partition, first place, place after the last) in it. Order within a partition
        is kept.
        """
        if not 0 <= start <= stop <= self._input.row_count:
            raise IndexError(f"rows {start} to {stop} of {self._input.row_count}")
        if partition_count < 1:
            raise ValueError(f"partition count must be at least 1, not {partition_count}")
        if stop > INT32_MAX:
            raise IndexError(f"row {stop}: a chunk is spread up to row {INT32_MAX}")
        cdef ms_spread spread
        cdef int is_null = 0
        cdef bytearray numbers = bytearray(4 * (stop - start))
        cdef bytearray chosen = bytearray(4 * (stop - start))
        cdef bytearray ends = bytearray(8 * (<int64_t>partition_count + 1))
        spread.start, spread.stop = start, stop
        spread.partition_count, spread.uses_keys = partition_count, uses_keys
        spread.numbers = <int32_t*>PyByteArray_AS_STRING(numbers)
        spread.chosen = <int32_t*>PyByteArray_AS_STRING(chosen)
        spread.ends = <int64_t*>PyByteArray_AS_STRING(ends)
        with nogil:
            row = spread_rows(&self._input, &spread)
        if row >= 0:
            partition = ms_partition_at(&self._input, row, &is_null)
            raise rules().no_such_partition(row, partition, partition_count)
        places = []
        first = 0
        for i in range(<int64_t>partition_count + 1):
            if spread.ends[i] > first:
                places.append((i - 1, first, spread.ends[i]))
                first = spread.ends[i]
        return memoryview(numbers).cast("i"), places

    def row(self, int64_t index):
        """(timestamp or None, key, value, headers) of one row."""
        cdef ms_row row
        cdef const uint8_t* data = NULL
        cdef int64_t i, length
        if not 0 <= index < self._input.row_count:
            raise IndexError(f"row {index} of {self._input.row_count}")
        cdef int outcome = ms_read_row(&self._input, index, &row)
        if outcome != MS_ROW_DONE:
            raise_row(outcome, index)
        headers = []
        for i in range(row.first_header, row.first_header + row.header_count):
            length = ms_string_at(&self._input.header_key, i, &data)
            key = bytes_or_none(data, length).decode("utf-8", "surrogateescape")
            length = ms_string_at(&self._input.header_value, i, &data)
            headers.append((key, bytes_or_none(data, length)))
        return (
            row.timestamp if row.has_timestamp else None,
            bytes_or_none(row.key, row.key_length),
            bytes_or_none(row.value, row.value_length),
            tuple(headers),
        )


cdef class ArrowRecordsReader:
    """Any Arrow data as chunks of rows, in order and once.

    One thread at a time: a second one that asks while a chunk is on its way gets a RuntimeError.
    """

    cdef ArrowArrayStream _stream
    cdef ArrowArray _array
    cdef ms_plan _plan
    cdef int _busy

    def __cinit__(self, data):
        if hasattr(data, "__arrow_c_stream__"):
            self._take_stream(data.__arrow_c_stream__())
        elif hasattr(data, "__arrow_c_array__"):
            schema, array = data.__arrow_c_array__()
            self._take_array(schema, array)
        else:
            raise rules().not_arrow(data)

    def __dealloc__(self):
        if self._stream.release is not NULL:
            self._stream.release(&self._stream)
        if self._array.release is not NULL:
            self._array.release(&self._array)

    cdef int _take_stream(self, capsule) except -1:
        cdef ArrowArrayStream* stream = <ArrowArrayStream*>PyCapsule_GetPointer(
            capsule, "arrow_array_stream")
        cdef ArrowSchema schema
        cdef int code
        if stream.release is NULL:
            raise rules().already_taken()
        self._stream = stream[0]
        stream.release = NULL  # Moved: ours to release now.
        memset(&schema, 0, sizeof(schema))
        with nogil:
            code = self._stream.get_schema(&self._stream, &schema)
        if code:
            self._raise_failure(code)
        if schema.release is NULL:
            raise rules().unsound_schema()
        try:
            make_plan(&self._plan, &schema)
        finally:
            schema.release(&schema)
        return 0

    cdef int _take_array(self, schema_capsule, array_capsule) except -1:
        cdef ArrowSchema* schema = <ArrowSchema*>PyCapsule_GetPointer(
            schema_capsule, "arrow_schema")
        cdef ArrowArray* array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, "arrow_array")
        if schema.release is NULL or array.release is NULL:
            raise rules().already_taken()
        make_plan(&self._plan, schema)
        self._array = array[0]
        array.release = NULL
        return 0

    cdef int _raise_failure(self, int code) except -1:
        cdef const char* problem = self._stream.get_last_error(&self._stream)
        text = "" if problem is NULL else problem.decode("utf-8", "replace")
        raise rules().stream_failure(code, text)

    cdef int _next_array(self, ArrowArray* array) except -1:
        """The next array of the stream, or the only one; none is left when it has no release."""
        cdef int code
        if self._stream.release is NULL:
            array[0] = self._array
            self._array.release = NULL
            return 0
        # The producer may compute, wait, or take the GIL in a thread of its own.
        with nogil:
            code = self._stream.get_next(&self._stream, array)
        if code:
            array.release = NULL
            self._raise_failure(code)
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef ArrowChunk chunk = ArrowChunk.__new__(ArrowChunk)
        if ms_take(&self._busy):
            raise RuntimeError("this reader is in use: one thread, one call at a time")
        try:
            self._next_array(&chunk._array)
        finally:
            ms_give_back(&self._busy)
        if chunk._array.release is NULL:
            raise StopIteration
        chunk._bind(&self._plan)
        return chunk
