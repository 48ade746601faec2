# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The way of a record into a batch, in one compiled call; the fast half of the accumulator.

`client.producer.compiled_accumulator` joins it with the plain `RecordAccumulator`: here a record
goes into a batch that is open and has room, which is all there is to do for nearly every one. What
happens once per batch (begin one, grow, close, wait for memory or metadata, refuse) is the plain
one's. Relies on the GIL, where there is one: `client.producer.kernel` does not choose it elsewhere.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

from millstream._accel.arrow.input cimport ms_input
from millstream._accel.arrow.reader cimport ArrowChunk
from millstream._accel.codec.batch cimport ms_batch, ms_batch_count, ms_batch_is_too_far
from millstream._accel.codec.crc32c cimport checksum
from millstream._accel.client.delivery cimport BatchOutcome, Delivery
from millstream._accel.codec.murmur2 cimport hash_bytes
from millstream._accel.client.produce_sink cimport (
    PartitionQueue, ProduceSink, TopicQueues, ms_sink, ms_sink_lock, ms_sink_unlock, ms_wall_ms)
from millstream._accel.wire cimport (
    MS_HEADER_SIZE, ms_bytes_size, ms_record_length, ms_varint_size, ms_write_bytes,
    ms_write_record)

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef extern from "client/scatter.h" nogil:
    ctypedef struct ms_target:
        ms_batch* batch

    ctypedef struct ms_scatter:
        const ms_input* input
        ms_target* targets
        uint32_t count
        int64_t row
        int64_t stop
        int64_t size_limit
        int64_t timestamp
        int64_t partition
        uint32_t (*checksum)(uint32_t, const uint8_t*, size_t) noexcept nogil

    bint ms_can_scatter(const ms_input* input)
    void ms_target_begin(ms_target* target, ms_batch* batch, const ms_scatter* scatter)
    int64_t ms_target_end(ms_target* target, int64_t timestamp)
    void ms_scatter_rows(ms_scatter* scatter)

cdef enum:
    ANY_PARTITION = -1
    # As the plain version's: the varints of a record, and of a header, at their longest.
    RECORD_OVERHEAD_MAX = 36
    HEADER_OVERHEAD_MAX = 10
    HEADERS_MAX = 16

cdef struct Field:
    const uint8_t* data
    int64_t length

cdef struct HeaderFields:
    # Of the common kinds only, and not many: keys and values in turn.
    Field fields[2 * HEADERS_MAX]
    int64_t count
    int64_t size
    int64_t size_bound


cdef inline bint point_at(field, const uint8_t** data, int64_t* length) except -1:
    """Where the bytes of a field are, if it is one of the common kinds; False if it is not."""
    cdef Py_ssize_t size = -1
    if PyBytes_CheckExact(field):
        data[0] = <const uint8_t*>PyBytes_AS_STRING(field)
        size = PyBytes_GET_SIZE(field)
    elif PyUnicode_CheckExact(field):
        data[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(field, &size)
    elif field is not None:
        return False
    length[0] = size
    return True


cdef bint add_header(HeaderFields* out, key, value) except -1:
    """One more header; False if it is not a plain one."""
    cdef Field* fields = &out.fields[2 * out.count]
    if out.count == HEADERS_MAX or not PyUnicode_CheckExact(key) or PyUnicode_CheckExact(value):
        return False
    try:
        if not (point_at(key, &fields[0].data, &fields[0].length)
                and point_at(value, &fields[1].data, &fields[1].length)):
            return False
    except UnicodeEncodeError:
        return False  # The plain way has an answer to names that are no text.
    out.count += 1
    out.size += ms_bytes_size(fields[0].length) + ms_bytes_size(fields[1].length)
    out.size_bound += 4 * len(<str>key) + max(fields[1].length, 0) + HEADER_OVERHEAD_MAX
    return True


cdef bint point_at_headers(headers, HeaderFields* out) except -1:
    """Where the bytes of all headers are; False if the plain way has to look at them."""
    out.count = 0
    out.size = 0
    out.size_bound = 0
    if headers is None:
        return True
    if type(headers) is dict:
        for key, value in (<dict>headers).items():
            if not add_header(out, key, value):
                return False
        return True
    if type(headers) is not tuple and type(headers) is not list:
        return False
    for pair in headers:
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return False
        if not add_header(out, (<tuple>pair)[0], (<tuple>pair)[1]):
            return False
    return True


cdef inline int choose(
    TopicQueues topic, int64_t partition, const uint8_t* key, int64_t key_length,
    bint spreads_keys, int64_t batch_bytes,
) noexcept:
    """The partition for a record; -1 if it takes more to choose one."""
    if partition >= 0:
        return <int>partition if partition < topic.count else -1
    if key_length >= 0 and spreads_keys:
        if topic.count < 1:
            return -1
        return (hash_bytes(key, key_length) & <uint32_t>0x7fffffff) % <uint32_t>topic.count
    # Only a long stay changes it in the middle of a batch.
    return <int>topic.sticky if topic.sticky_bytes < 2 * batch_bytes else -1


cdef inline bint write_record(
    ms_batch* batch, int64_t timestamp, const uint8_t* key, int64_t key_length,
    const uint8_t* value, int64_t value_length, const HeaderFields* headers,
    int64_t record_bytes, int64_t size_max,
) noexcept nogil:
    """Add a record that is not the first and takes `record_bytes` at most, if there is room."""
    cdef int64_t delta = 0
    cdef int64_t offset = batch.last_offset_delta + 1
    if batch.record_count == 0 or offset > INT32_MAX:
        return False
    if (batch.length + record_bytes > batch.capacity
            or MS_HEADER_SIZE + batch.length + record_bytes > size_max
            or ms_batch_is_too_far(batch, timestamp, &delta)):
        return False
    cdef int64_t i
    cdef int64_t length = ms_record_length(
        delta, offset, key_length, value_length, headers.count, headers.size)
    cdef uint8_t* p = ms_write_record(
        batch.data + batch.length, length, delta, offset, key, key_length, value, value_length,
        headers.count)
    for i in range(2 * headers.count):
        p = ms_write_bytes(p, headers.fields[i].data, headers.fields[i].length)
    batch.length += ms_varint_size(length) + length
    ms_batch_count(batch, timestamp, offset)
    return True


cdef class RecordAppender:
    """The fast way; everything else goes to the functions it was bound to."""

    def bind(
        self, dict topics not None, ProduceSink sink not None, append, *, int64_t batch_size,
        int64_t record_size_max, bint ignores_keys,
    ):
        """`append` is the plain way of a record. Until then, nothing can be appended."""
        self._sink = sink.state
        self._batch_bytes = batch_size
        self._record_bytes_max = record_size_max
        self._spreads_keys = not ignores_keys
        self._append_slowly = append
        self._known = topics

    cdef Delivery _try(
        self, topic, int64_t partition, key, value, headers, timestamp, on_delivery,
    ):
        """The handle of a record that is in; None if it must go the other way."""
        cdef const uint8_t* key_data = NULL
        cdef const uint8_t* value_data = NULL
        cdef int64_t key_length = -1
        cdef int64_t value_length = -1
        cdef int64_t stamp, record_bytes
        cdef HeaderFields fields
        cdef int overflow = 0
        cdef PyObject* found
        cdef PartitionQueue queue
        cdef ms_sink* sink
        cdef ms_batch* batch
        cdef bint is_written
        if self._known is None or not PyUnicode_CheckExact(topic):
            return None
        if not (point_at(key, &key_data, &key_length)
                and point_at(value, &value_data, &value_length)
                and point_at_headers(headers, &fields)):
            return None
        record_bytes = (
            RECORD_OVERHEAD_MAX + max(key_length, 0) + max(value_length, 0) + fields.size_bound)
        found = PyDict_GetItemWithError(self._known, topic)
        if found is NULL or record_bytes > self._record_bytes_max:
            return None
        if timestamp is None:
            stamp = ms_wall_ms()
        elif PyLong_CheckExact(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
            if overflow or stamp < 0:
                return None
        else:
            return None
        cdef TopicQueues queues = <TopicQueues>found
        cdef int index = choose(
            queues, partition, key_data, key_length, self._spreads_keys, self._batch_bytes)
        if index < 0 or index >= PyList_GET_SIZE(queues.partitions):
            return None
        queue = <PartitionQueue>PyList_GET_ITEM(queues.partitions, index)
        if queue._open is None:
            return None
        cdef Delivery delivery = Delivery.__new__(Delivery)
        sink = &self._sink.sink
        ms_sink_lock(sink)
        batch = queue.partition.open
        is_written = batch is not NULL and not sink.is_held and write_record(
            batch, stamp, key_data, key_length, value_data, value_length, &fields,
            record_bytes, self._batch_bytes)
        if is_written:
            delivery._index = batch.last_offset_delta
        ms_sink_unlock(sink)
        if not is_written:
            return None
        if partition < 0:
            queues.sticky_bytes += record_bytes
        delivery._batch = <BatchOutcome>queue._open
        delivery._timestamp = stamp
        if on_delivery is not None:
            queue.told.append(on_delivery)
            queue.told.append(delivery)
        return delivery

    def append(
        self, topic, int64_t partition, key, value, headers=(), timestamp=None, reservation=None,
    ):
        """As `RecordAccumulator.append`."""
        cdef Delivery delivery = None
        if reservation is None:
            delivery = self._try(topic, partition, key, value, headers, timestamp, None)
        if delivery is not None:
            return delivery
        return self._append_slowly(
            self, topic, partition, key, value, headers, timestamp, reservation)

    def scatter(
        self, topic, ArrowChunk chunk not None, int64_t start, int64_t stop, int64_t timestamp,
        int64_t size_limit,
    ):
        """Rows of a table into the open batches of their keys' partitions, with the lock held.

        Gives the row it stopped at; the partition whose batch has no room for it, -1 if all is in
        or the row is wrong; and what came into which batch: the batch, the index of the first
        record there, and how many. Batches end at `size_limit` bytes. None if the chunk is not of
        the plainest kind, or the topic is not known.
        """
        cdef ms_scatter scatter
        cdef TopicQueues queues
        cdef PartitionQueue queue
        cdef ms_target* target
        cdef int64_t count, first
        cdef uint32_t i
        cdef list ranges = []
        queues = self._known.get(topic)
        if queues is None or queues.count < 1 or not ms_can_scatter(&chunk._input):
            return None
        if not 0 <= start <= stop <= chunk._input.row_count:
            raise IndexError(f"rows {start} to {stop} of {chunk._input.row_count}")
        scatter.input = &chunk._input
        scatter.count = <uint32_t>queues.count
        scatter.row, scatter.stop = start, stop
        scatter.size_limit, scatter.timestamp = size_limit, timestamp
        scatter.checksum = checksum
        scatter.targets = <ms_target*>malloc(scatter.count * sizeof(ms_target))
        if scatter.targets is NULL:
            raise MemoryError
        for i in range(scatter.count):
            queue = <PartitionQueue>queues.partitions[i]
            ms_target_begin(&scatter.targets[i], queue.partition.open, &scatter)
        with nogil:
            ms_scatter_rows(&scatter)
        try:
            for i in range(scatter.count):
                target = &scatter.targets[i]
                first = 0 if target.batch is NULL else target.batch.record_count
                count = ms_target_end(target, timestamp)
                if count:
                    queue = <PartitionQueue>queues.partitions[i]
                    ranges.append((queue._open, first, count))
        finally:
            free(scatter.targets)
        return scatter.row, scatter.partition, ranges


cdef class RecordSender:
    """The `send` of a producer: one compiled call for a record whose batch is open and has room.

    Every other record goes to `_send` of the class that derives from this one.
    """

    def send_through(self, RecordAppender appender not None):
        """Have ordinary records appended here without `_send`."""
        self._appender = appender

    def send(
        self, topic, value=None, *, key=None, partition=None, timestamp=None, headers=None,
        on_delivery=None,
    ):
        """Send one record; its handle tells what becomes of it.

        Waits up to `max_block` seconds for metadata or memory. `on_delivery(delivery)` is called
        on another thread when it is known.
        """
        cdef RecordAppender appender = self._appender
        cdef Delivery delivery = None
        if appender is None:
            pass
        elif partition is None:
            delivery = appender._try(
                topic, ANY_PARTITION, key, value, headers, timestamp, on_delivery)
        elif PyLong_CheckExact(partition) and 0 <= partition <= INT32_MAX:
            delivery = appender._try(topic, partition, key, value, headers, timestamp, on_delivery)
        if delivery is not None:
            return delivery
        return self._send(topic, value, key, partition, timestamp, headers, on_delivery)
