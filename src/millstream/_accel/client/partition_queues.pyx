# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Queues of batches that two threads look at: Python's, and that of the sockets.

Twins of `client.producer.partition_queues`, with the lock that goes with them. The rules for who
may touch what, and the order of the locks, are in accumulator.h and produce_lanes.h. Nothing of
Python runs while the gate is locked, and references are counted with the GIL only.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from millstream._accel.codec.batch_writer cimport BatchWriter
from millstream._accel.client.delivery cimport BatchOutcome
from millstream._accel.client.client_selector cimport (
    SelectorCore, ms_set_awaited, ms_set_driver, process_number)
from millstream._accel.codec.crc32c cimport checksum

import threading
from collections import deque

cdef enum:
    ANY_PARTITION = -1
    CORRELATION_ID_END_IN_HEAD = 8


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
        self.dispatched = deque()

    def __dealloc__(self):
        cdef ms_flight* flight = self.lanes.sent
        while flight is not NULL:
            self.lanes.sent = flight.next
            drop_flight(&self.lanes, flight)
            flight = self.lanes.sent
        ms_lanes_end(&self.lanes)

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
        cdef bint is_awaited, has_begun, is_full, hurries
        cdef int haste = 0
        if self._loop is not None and self._haste is not None:
            haste = self._haste()
        hurries = haste > 0
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
        has_begun = self._has_begun and self.lanes.linger_ms == 0
        is_full = self._is_full
        self._has_news = False
        self._has_begun = False
        self._is_full = False
        if self._awaits_all != (haste > 1):
            self._awaits_all = haste > 1
            ms_set_awaited(self.lanes.selector, self._awaits_all)
        self._threads.release()
        if is_full:
            with nogil:
                ms_lanes_send_kept(&self.lanes)
        elif has_begun:
            ms_lanes_hurry(&self.lanes)
        elif is_awaited:
            ms_lanes_kick(&self.lanes)

    cdef int _note(self, ms_flight* flights) except -1:
        """Bring the queues up to date: these batches have left them."""
        cdef ms_flight* flight = flights
        cdef PartitionQueue queue
        cdef list batches
        cdef int i
        while flight is not NULL:  # First, before another thread may have the GIL and ask for it.
            for i in range(flight.slot_count):
                (<BatchOutcome>flight.slots[i].batch).correlation_id = flight.correlation_id
            flight = flight.next
        while flights is not NULL:
            flight = flights
            flights = flight.next
            batches = []
            for i in range(flight.slot_count):
                queue = <PartitionQueue>flight.slots[i].queue
                batch = <object>flight.slots[i].batch
                queue._forget(batch)
                batches.append((queue, batch, flight.slots[i].sequence))
            self.dispatched.append((flight.correlation_id, flight.version, batches))
            drop_flight(&self.lanes, flight)
        return 0

    def send_here(self, PartitionQueue queue=None, batch=None):
        """With the lock: have the thread that lets go of it send what is due.

        What a thread has just written is in the caches of its processor, and nowhere else. `batch`,
        of a queue, is one whose end nobody waits for unless they say so: `hasten`.
        """
        ms_lanes_keep(
            &self.lanes, NULL if queue is None else &queue.part, <PyObject*>batch,
            not self._is_full)
        self._is_full = True

    def hasten(self, PartitionQueue queue not None, BatchOutcome batch not None):
        """Somebody waits for the end of a batch: the Sender is to hear of its answer at once."""
        if self._loop is not None and self.process == process_number():
            ms_lanes_hasten(&self.lanes, &queue.part, <PyObject*>batch, batch.correlation_id)

    def take_alarm(self):
        """Whether something changed, since the last call, that is not for the sockets' thread."""
        cdef bint has_alarm = self._has_alarm
        self._has_alarm = False
        return has_alarm or self._loop is None

    # ---- lanes; with the lock held ----

    def attach(
        self, SelectorCore selector not None, haste, *, int64_t linger_ms,
        int64_t request_size_max, int64_t max_in_flight,
    ):
        """Have a selector's thread send what is due; False if it works for another already.

        `haste()`, with the lock held, says whether nothing may linger (1), nor any answer wait (2).
        """
        if self._loop is not None:
            raise ValueError("there is a selector already")
        self.lanes.linger_ms = linger_ms
        self.lanes.request_bytes_max = request_size_max
        self.lanes.in_flight_max = <int>max(1, min(max_in_flight, MS_EXPRESS_MAX))
        self.lanes.selector = selector._loop.state
        if not ms_set_driver(selector._loop.state, &self.lanes.driver):
            self.lanes.selector = NULL
            return False
        self._haste = haste
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

    cdef void _leave(self, ms_lanes* lanes, bint is_news) noexcept:
        """Unlock the gate; who has to act on the change, if somebody does, will be told."""
        cdef AccumulatorLock lock = self.topic.lock
        if lanes is NULL:
            return
        if self.part.is_express:
            ms_part_activate(lanes, &self.part)
            lock._has_news = lock._has_news or is_news
        else:
            lock._has_alarm = True
        ms_gate_unlock(&lanes.gate)

    def add(self, batch):
        """Begin a new batch, which takes the next records."""
        cdef BatchWriter writer = batch.writer
        cdef BatchOutcome outcome = batch  # What a handle needs: a TypeError for anything else.
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
        self._open = outcome
        self.told = batch.told
        lanes = self._enter()
        ms_part_add(&self.part, slot)
        if lanes is not NULL and self.part.is_express:
            self.topic.lock._has_begun = True
        self._leave(lanes, lanes is not NULL and (
            lanes.hurries or created_ms + lanes.linger_ms < lanes.loop_due_ms))

    cdef int _remove(self, batch) except -1:
        cdef ms_lanes* lanes = self._enter()
        cdef ms_slot* slot = ms_part_remove(&self.part, <PyObject*>batch)
        self._leave(lanes, True)
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
        self._leave(lanes, True)
        self._open = None


def read_produced(const uint8_t[::1] frame not None, int version):
    """What a Produce response, without its size, says if all is well with every partition.

    For each its number, the offset of its first record and the time of the log, -1 unless the log
    sets it. None for any other response: it is for the Sender, and lanes close.
    """
    cdef ms_produced all[MS_FLIGHT_SLOTS_MAX]
    cdef int64_t count = ms_read_produced(
        &frame[0] if len(frame) else NULL, len(frame), version, all, MS_FLIGHT_SLOTS_MAX)
    if not 0 <= count <= MS_FLIGHT_SLOTS_MAX:
        return None
    return [
        (all[i].partition, all[i].base_offset, all[i].log_append_time) for i in range(count)]


def is_lent(BatchWriter writer not None):
    """Whether a frame on its way out, or a view, needs the records where they are."""
    return writer._exports > 0
