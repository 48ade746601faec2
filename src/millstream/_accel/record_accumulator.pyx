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
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from millstream._accel.batch cimport ms_batch, ms_batch_count, ms_batch_is_too_far
from millstream._accel.batch_writer cimport BatchWriter
from millstream._accel.client_selector cimport SelectorCore, ms_set_driver, process_number
from millstream._accel.crc32c cimport checksum
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
    CORRELATION_ID_END_IN_HEAD = 8
    # As the plain twin's: the varints of a record at their longest.
    RECORD_OVERHEAD_MAX = 36


cdef void let_go(ms_slot* slot) noexcept:
    """One holder less, under no lock; the last one frees it. With the GIL."""
    Py_XDECREF(slot.batch)
    Py_XDECREF(slot.writer)
    free(slot)


cdef void release_kept(ms_driver* driver, void* kept, int count) noexcept:
    """A frame needs its batches no longer. With the GIL."""
    cdef ms_lanes* lanes = <ms_lanes*>driver
    cdef ms_slot** slots = <ms_slot**>kept
    cdef bint is_last
    cdef int i
    for i in range(count):
        ms_gate_lock(&lanes.gate)
        ms_slot_unpin(slots[i])
        is_last = slots[i].holders == 0
        ms_gate_unlock(&lanes.gate)
        if is_last:
            let_go(slots[i])


cdef class AccumulatorLock:
    """In the place of a `threading.Lock`: keeps the fast ways shut while it is held.

    Whoever gets it also learns, before anything else, which batches the sockets' thread took.
    """

    def __cinit__(self):
        ms_lanes_init(&self.lanes, checksum)
        self.lanes.driver.release = release_kept
        self.process = process_number()
        self._threads = threading.Lock()
        self._express = {}
        self.dispatched = {}

    def __dealloc__(self):
        cdef ms_flight* flight = self.lanes.sent
        while flight is not NULL:
            self.lanes.sent = flight.next
            drop_flight(&self.lanes, flight)
            flight = self.lanes.sent
        ms_gate_end(&self.lanes.gate)

    def __enter__(self):
        cdef ms_flight* flights
        self._threads.acquire()
        ms_gate_lock(&self.lanes.gate)
        self.lanes.gate.is_held = True
        flights = ms_lanes_take_sent(&self.lanes)
        ms_gate_unlock(&self.lanes.gate)
        if flights is not NULL:
            self._note(flights)

    def __exit__(self, *failure):
        cdef bint is_awaited, hurries = False
        if self._loop is not None and self._hurries is not None:
            hurries = self._hurries()
        ms_gate_lock(&self.lanes.gate)
        if hurries and not self.lanes.hurries:
            self._has_news = True
            self._has_alarm = True
        self.lanes.hurries = hurries
        self.lanes.gate.is_held = False
        is_awaited = self.lanes.gate.is_awaited
        self.lanes.gate.is_awaited = False
        ms_gate_unlock(&self.lanes.gate)
        is_awaited = is_awaited or self._has_news
        self._has_news = False
        self._threads.release()
        if is_awaited:
            ms_lanes_kick(&self.lanes)

    cdef int _note(self, ms_flight* flights) except -1:
        """Bring the queues up to date: these batches have left them."""
        cdef ms_flight* flight
        cdef PartitionQueue queue
        cdef list batches
        cdef int i
        while flights is not NULL:
            flight = flights
            flights = flight.next
            batches = []
            for i in range(flight.slot_count):
                queue = <PartitionQueue>flight.slots[i].queue
                batch = <object>flight.slots[i].batch
                queue._forget(batch)
                batches.append((queue, batch, flight.slots[i].sequence))
            self.dispatched[flight.correlation_id] = (flight.version, batches)
            drop_flight(&self.lanes, flight)
        return 0

    def take_alarm(self):
        """Whether something changed, since the last call, that is not for the sockets' thread."""
        cdef bint has_alarm = self._has_alarm
        self._has_alarm = False
        return has_alarm or self._loop is None

    # ---- lanes; with the lock held ----

    def attach(
        self, SelectorCore selector not None, hurries, *, int64_t linger_ms,
        int64_t request_size_max, int64_t max_in_flight,
    ):
        """Have a selector's thread send what is due; False if it works for another already."""
        if self._loop is not None:
            raise ValueError("there is a selector already")
        self.lanes.linger_ms = linger_ms
        self.lanes.request_bytes_max = request_size_max
        self.lanes.in_flight_max = <int>max(1, min(max_in_flight, MS_EXPRESS_MAX))
        self.lanes.selector = selector._loop.state
        if not ms_set_driver(selector._loop.state, &self.lanes.driver):
            self.lanes.selector = NULL
            return False
        self._hurries = hurries
        self._loop = selector._loop
        self._loop.driver_owner = self
        return True

    def open_lane(
        self, PartitionQueue queue not None, int64_t connection_id, int version, int64_t topic,
        bytes head not None, *, int64_t producer_id, int64_t producer_epoch, int64_t sequence,
    ):
        """Let the sockets' thread take the batches of a partition; False if it cannot.

        `head`: a request from its API key to its only topic; a number of partitions comes next.
        `topic`: partitions of the same number may share a request.
        """
        cdef ms_part* part = &queue.part
        cdef uint8_t* copy
        if self._loop is None or queue.topic.lock is not self:
            return False
        if len(head) < CORRELATION_ID_END_IN_HEAD:
            raise ValueError(f"a request does not begin with {len(head)} bytes")
        if not ms_lanes_unshut(&self.lanes, connection_id):
            return False
        copy = <uint8_t*>malloc(len(head))
        if copy is NULL:
            raise MemoryError
        memcpy(copy, <const char*>head, len(head))
        ms_gate_lock(&self.lanes.gate)
        free(part.lane.head)
        part.lane.head = copy
        part.lane.head_size = len(head)
        part.lane.connection_id = connection_id
        part.lane.version = version
        part.lane.topic = topic
        part.lane.producer_id = producer_id
        part.lane.producer_epoch = producer_epoch
        part.lane.sequence = sequence
        part.is_express = True
        ms_part_activate(&self.lanes, part)
        ms_gate_unlock(&self.lanes.gate)
        self._express[queue] = None
        self._has_news = True
        return True

    def close_lane(self, PartitionQueue queue not None):
        """Take a partition back; the sequence that its next batch has to have."""
        cdef ms_part* part = &queue.part
        ms_gate_lock(&self.lanes.gate)
        part.is_express = False
        ms_part_deactivate(&self.lanes, part)
        sequence = part.lane.sequence
        ms_gate_unlock(&self.lanes.gate)
        self._express.pop(queue, None)
        self._has_alarm = True
        return sequence


cdef void drop_flight(ms_lanes* lanes, ms_flight* flight) noexcept:
    """What a flight holds; with the GIL."""
    cdef int i
    cdef bint is_last
    for i in range(flight.slot_count):
        ms_gate_lock(&lanes.gate)
        flight.slots[i].holders -= 1
        is_last = flight.slots[i].holders == 0
        ms_gate_unlock(&lanes.gate)
        if is_last:
            let_go(flight.slots[i])
    free(flight)


cdef class TopicQueues:
    """The queues of one topic, and its sticky partition."""

    def __init__(self, name, AccumulatorLock lock=None):
        """With `lock`, the fast ways are open to its partitions."""
        self.name = name
        self.lock = lock
        self.partitions = []
        self.available = ()
        self.sticky = ANY_PARTITION


cdef class PartitionQueue:
    """The batches of one partition that wait to be taken, oldest first; the last may be open."""

    def __cinit__(self):
        ms_part_init(&self.part, 0)

    def __init__(self, TopicQueues topic not None, int64_t index, int64_t expected_size):
        self.topic = topic
        self.index = index
        self.part.index = <int32_t>index
        self.expected_size = expected_size
        self.batches = deque()

    def __dealloc__(self):
        cdef ms_slot* slot = self.part.first
        while slot is not NULL:
            self.part.first = slot.next
            let_go(slot)
            slot = self.part.first
        free(self.part.lane.head)

    cdef ms_lanes* _enter(self) noexcept:
        """The gate, locked; NULL if nobody else can look: there is no fast way here."""
        cdef AccumulatorLock lock = self.topic.lock
        if lock is None or lock.process != process_number():
            return NULL
        ms_gate_lock(&lock.lanes.gate)
        return &lock.lanes

    cdef void _leave(self, ms_lanes* lanes) noexcept:
        """Unlock the gate; who has to act on the change will be told."""
        cdef AccumulatorLock lock = self.topic.lock
        if lanes is NULL:
            return
        if self.part.is_express:
            ms_part_activate(lanes, &self.part)
            lock._has_news = True
        else:
            lock._has_alarm = True
        ms_gate_unlock(&lanes.gate)

    def add(self, batch):
        """Begin a new batch, which takes the next records."""
        cdef BatchWriter writer = batch.writer
        cdef int64_t created_ms = batch.created_ms
        cdef ms_lanes* lanes
        cdef ms_slot* slot = <ms_slot*>calloc(1, sizeof(ms_slot))
        if slot is NULL:
            raise MemoryError
        slot.records = &writer._batch
        slot.exports = &writer._exports
        slot.created_ms = created_ms
        slot.holders = 1
        slot.queue = <PyObject*>self
        slot.batch = <PyObject*>batch
        slot.writer = <PyObject*>writer
        Py_INCREF(batch)
        Py_INCREF(writer)
        self.batches.append(batch)
        self._open = batch
        self._callbacks = batch._callbacks
        lanes = self._enter()
        ms_part_add(&self.part, slot)
        self._leave(lanes)

    cdef int _remove(self, batch) except -1:
        cdef ms_lanes* lanes = self._enter()
        cdef ms_slot* slot = ms_part_remove(&self.part, <PyObject*>batch)
        self._leave(lanes)
        if slot is not NULL:
            let_go(slot)
        return 0

    cdef int _forget(self, batch) except -1:
        """The sockets' thread took a batch."""
        if self._open is batch:
            self._open = None
        self.batches.remove(batch)
        batch.end_of_records()
        self.expected_size = batch.size
        return 0

    def take_first(self):
        """The oldest batch, which is not open, goes its way."""
        self._remove(self.batches.popleft())

    def remove(self, batch):
        """Take a certain batch out, which is not open."""
        self.batches.remove(batch)
        self._remove(batch)

    @property
    def is_express(self):
        """Whether the sockets' thread takes its batches."""
        cdef AccumulatorLock lock = self.topic.lock
        return lock is not None and self in lock._express

    @property
    def open(self):
        """The batch that takes the next record; None if it would be a new one."""
        return self._open

    @open.setter
    def open(self, batch):
        if batch is not None:
            raise ValueError("a batch is opened with `add`")
        cdef ms_lanes* lanes = self._enter()
        ms_part_close(&self.part)
        self._leave(lanes)
        self._open = None


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
        self._batch.look(self._index)
        self._batch.call_back(callback, self)

    def observe(self, callback):
        """As `add_done_callback`, for who only watches: a loss stays one that nobody has seen."""
        self._batch.call_back(callback, self)

    def outcome(self):
        """What became of it, once it is done, without counting as having looked."""
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index) or self._metadata()

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
        cdef ms_gate* gate
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
        if queue._open is None:
            return None
        cdef Delivery delivery = Delivery.__new__(Delivery)
        gate = &self._gate.lanes.gate
        ms_gate_lock(gate)
        batch = queue.part.open
        is_written = batch is not NULL and not gate.is_held and write_record(
            batch, stamp, key_data, key_length, value_data, value_length, self._batch_bytes)
        if is_written:
            delivery._index = batch.last_offset_delta
        ms_gate_unlock(gate)
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
