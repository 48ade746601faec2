# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The way of a record into a batch, in one compiled call; the fast half of the accumulator.

`client.producer.native_accumulator` joins it with the plain `RecordAccumulator`: here a record goes
into a batch that is open and has room, which is all there is to do for nearly every record. What
happens once per batch (begin one, grow, close, wait for memory or metadata, refuse) is the plain
one's. Relies on the GIL, where there is one: `client.producer.kernel` does not choose it elsewhere.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t

from millstream._accel.batch cimport ms_batch, ms_batch_count, ms_batch_is_too_far
from millstream._accel.murmur2 cimport hash_bytes
from millstream._accel.wire cimport (
    MS_HEADER_SIZE, ms_record_length, ms_varint_size, ms_write_record)

import threading
from collections import deque

from millstream.errors import OperationTimeout

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    ANY_PARTITION = -1
    # As the plain twin's: the varints of a record at their longest.
    RECORD_OVERHEAD_MAX = 36


cdef class AccumulatorLock:
    """In the place of a `threading.Lock`: keeps the fast way shut while it is held."""

    def __cinit__(self):
        ms_gate_init(&self.gate)
        self._threads = threading.Lock()

    def __dealloc__(self):
        ms_gate_end(&self.gate)

    def __enter__(self):
        self._threads.acquire()
        ms_gate_lock(&self.gate)
        self.gate.is_held = True
        ms_gate_unlock(&self.gate)

    def __exit__(self, *failure):
        ms_gate_lock(&self.gate)
        self.gate.is_held = False
        ms_gate_unlock(&self.gate)
        self._threads.release()


cdef class TopicQueues:
    """The queues of one topic, and its sticky partition."""

    def __init__(self, name):
        self.name = name
        self.partitions = []
        self.available = ()
        self.sticky = ANY_PARTITION


cdef class PartitionQueue:
    """The batches of one partition that wait to be taken, oldest first; the last may be open."""

    def __init__(self, TopicQueues topic not None, int64_t index, int64_t expected_size):
        self.topic = topic
        self.index = index
        self.expected_size = expected_size
        self.batches = deque()

    def add(self, batch):
        """Begin a new batch, which takes the next records."""
        self.batches.append(batch)
        self.open = batch

    def take_first(self):
        """The oldest batch, which is not open, goes its way."""
        self.batches.popleft()

    def remove(self, batch):
        """Take a certain batch out, which is not open."""
        self.batches.remove(batch)

    @property
    def open(self):
        """The batch that takes the next record; None if it would be a new one."""
        return self._open

    @open.setter
    def open(self, batch):
        self._writer = None
        self._open = batch
        if batch is not None:
            self._callbacks = batch._callbacks
            self._writer = batch.writer


cdef object until_done = None
cdef object RecordMetadata = None


def bind_results(wait, metadata):
    """How a `Delivery` waits in an event loop, and what it gives: parts of the layer above."""
    global until_done, RecordMetadata
    until_done = wait
    RecordMetadata = metadata


@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Delivery:
    """What becomes of one record. Looking at it is optional: `flush()` raises for what is lost."""

    def __init__(self, batch not None, int64_t index, int64_t timestamp):
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def __repr__(self):
        state = "pending"
        if self.done():
            batch, index = self._batch.locate(self._index)
            error = batch.error_of(index)
            state = f"offset {self._metadata().offset}" if error is None else f"lost: {error!r}"
        return f"<Delivery to {self.topic}-{self.partition}, {state}>"

    def __reduce__(self):
        raise TypeError("a Delivery belongs to the producer that sent the record")

    @property
    def topic(self):
        """Where it goes."""
        return self._batch.topic

    @property
    def partition(self):
        """Which partition was chosen."""
        return self._batch.partition

    def done(self):
        """Whether it is known what became of the record."""
        return self._batch.locate(self._index)[0].is_done

    def result(self, timeout=None):
        """Wait up to `timeout` seconds and give the record's place, or raise why it was lost."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout=None):
        """Wait up to `timeout` seconds and give the reason if the record was lost."""
        self._batch.look(self._index)
        if not self.done() and not self._batch.wait(timeout):
            self._batch.look_away(self._index)
            raise OperationTimeout(
                f"the record to {self.topic}-{self.partition} is not acknowledged after "
                f"{timeout} s; it is still being sent")
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index)

    def add_done_callback(self, callback):
        """Call `callback(delivery)` on the producer's dispatcher thread once it is done."""
        self._batch.call_back(callback, self)

    def mark_seen(self):
        """Somebody is being told: a loss is no longer one that nobody has looked at."""
        self._batch.look(self._index)

    def __await__(self):
        if not self.done():
            self._batch.look(self._index)
            try:
                yield from until_done(self._batch)
            except BaseException:
                self._batch.look_away(self._index)
                raise
        return self.result(0)

    def _metadata(self):
        batch, index = self._batch.locate(self._index)
        offset = -1 if batch.base_offset < 0 else batch.base_offset + index
        timestamp = self._timestamp if batch.log_append_time < 0 else batch.log_append_time
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)


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
    const uint8_t* value, int64_t value_length, int64_t size_max,
) noexcept nogil:
    """Add a record that is not the first, if there is room and the batch is not full with it."""
    cdef int64_t delta = 0
    cdef int64_t offset = batch.last_offset_delta + 1
    if batch.record_count == 0 or offset > INT32_MAX:
        return False
    if ms_batch_is_too_far(batch, timestamp, &delta):
        return False
    cdef int64_t length = ms_record_length(delta, offset, key_length, value_length, 0, 0)
    cdef int64_t total = batch.length + ms_varint_size(length) + length
    if total > batch.capacity or total + MS_HEADER_SIZE >= size_max:
        return False
    ms_write_record(
        batch.data + batch.length, length, delta, offset, key, key_length, value, value_length, 0)
    batch.length = total
    ms_batch_count(batch, timestamp, offset)
    return True


cdef class RecordAppender:
    """The fast way; everything else goes to the functions it was bound to."""

    def bind(
        self, dict topics not None, AccumulatorLock lock not None, append, *, int64_t batch_size,
        int64_t record_size_max, bint ignores_keys,
    ):
        """`append` is the plain way of a record. Until then, nothing can be appended."""
        self._gate = lock
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
        cdef int overflow = 0
        cdef PyObject* found
        cdef PartitionQueue queue
        cdef BatchWriter writer
        cdef ms_batch* batch
        cdef bint is_written
        if self._known is None or not PyUnicode_CheckExact(topic):
            return None
        if headers is not None and not (type(headers) is tuple and len(<tuple>headers) == 0):
            return None
        if not (point_at(key, &key_data, &key_length)
                and point_at(value, &value_data, &value_length)):
            return None
        record_bytes = RECORD_OVERHEAD_MAX + max(key_length, 0) + max(value_length, 0)
        found = PyDict_GetItem(self._known, topic)
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
        writer = queue._writer
        if writer is None:
            return None
        cdef Delivery delivery = Delivery.__new__(Delivery)
        batch = &writer._batch
        ms_gate_lock(&self._gate.gate)
        is_written = not self._gate.gate.is_held and write_record(
            batch, stamp, key_data, key_length, value_data, value_length, self._batch_bytes)
        delivery._index = batch.last_offset_delta
        ms_gate_unlock(&self._gate.gate)
        if not is_written:
            return None
        if partition < 0:
            queues.sticky_bytes += record_bytes
        delivery._batch = queue._open
        delivery._timestamp = stamp
        if on_delivery is not None:
            queue._callbacks.append((on_delivery, delivery))
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
