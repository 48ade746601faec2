# cython: language_level=3
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The queues of a producer's batches and what sends them, for threads with and without the GIL.

The plain version is `client.producer.produce_sink`. The accumulator fills the queues with its lock
held, the Sender grants partitions what they may send, and the thread of the sockets, or one that
filled a batch, sends without the GIL: see sink.h for who may touch what.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from millstream._accel.codec.batch_writer cimport BatchWriter
from millstream._accel.client.delivery cimport BatchOutcome
from millstream._accel.client.client_selector cimport (
    MS_NEVER, SelectorCore, ms_set_driver, process_number)
from millstream._accel.codec.crc32c cimport checksum

import threading

cdef enum:
    ANY_PARTITION = -1
    CORRELATION_ID_END_IN_HEAD = 8


cdef void let_go(ms_entry* entry) noexcept:
    """Nobody holds it. With the GIL, under no lock."""
    Py_XDECREF(entry.batch)
    Py_XDECREF(entry.writer)
    free(entry)


cdef void drop(ms_sink* sink, ms_entry* entry, bint is_frame) noexcept:
    """A request, or with `is_frame` its frame, holds an entry no longer. With the GIL."""
    cdef bint is_last
    ms_sink_lock(sink)
    if is_frame:
        ms_entry_unpin(entry)
    else:
        entry.holders -= 1
    is_last = entry.holders == 0
    ms_sink_unlock(sink)
    if is_last:
        let_go(entry)


cdef void drop_request(ms_sink* sink, ms_request* request) noexcept:
    """With the GIL."""
    cdef int i
    for i in range(request.count):
        drop(sink, request.entries[i], False)
    free(request)


cdef void release_kept(ms_driver* driver, void* kept, int count) noexcept:
    """A frame needs its batches no longer. With the GIL."""
    cdef int i
    for i in range(count):
        drop(<ms_sink*>driver, (<ms_entry**>kept)[i], True)


cdef class SinkState:
    """What threads without the GIL see of a sink. A selector keeps it alive for its own thread."""

    def __cinit__(self):
        ms_sink_init(&self.sink, checksum)
        self.sink.driver.release = release_kept
        self.process = process_number()

    def __dealloc__(self):
        cdef ms_request* request = self.sink.sent
        while request is not NULL:
            self.sink.sent = request.next
            drop_request(&self.sink, request)
            request = self.sink.sent
        ms_sink_end(&self.sink)


cdef class QueueLock:
    """A lock that also keeps threads without the GIL away from the queues while it is held."""

    def __cinit__(self, SinkState state=None):
        self._state = state
        self._threads = threading.Lock()

    def __enter__(self):
        self._threads.acquire()
        if self._state is not None:
            ms_sink_lock(&self._state.sink)
            self._state.sink.is_held = True
            ms_sink_unlock(&self._state.sink)

    def __exit__(self, *failure):
        cdef bint is_awaited = False
        if self._state is not None:
            ms_sink_lock(&self._state.sink)
            self._state.sink.is_held = False
            is_awaited = self._state.sink.is_awaited and not self._state.sink.is_sender_near
            self._state.sink.is_awaited = False
            ms_sink_unlock(&self._state.sink)
        self._threads.release()
        if is_awaited:
            ms_sink_wake_loop(&self._state.sink)


cdef class ProduceSink:
    """Sends the batches of queues, or has the Sender take them; see the plain version."""

    def __init__(self, wake, *, int64_t linger_ms, int64_t request_size_max):
        """`wake`: called when there is something for the Sender to do."""
        self.state = SinkState()
        self.state.sink.linger_ms = linger_ms
        self.state.sink.request_bytes_max = request_size_max
        self.lock = QueueLock(self.state)
        self._wake = wake
        self._ungranted = []

    @property
    def is_attached(self):
        """Whether a selector's thread sends; else the Sender takes."""
        return self._loop is not None

    def attach(
        self, SelectorCore selector not None, *, int64_t max_in_flight, bint expects_answers,
    ):
        """Have a selector's thread send what is due; False if it works for another already."""
        cdef ms_sink* sink = &self.state.sink
        if self._loop is not None:
            raise ValueError("there is a selector already")
        sink.in_flight_max = <int>max(1, min(max_in_flight, MS_DRIVER_IN_FLIGHT_MAX))
        sink.expects_answers = expects_answers
        sink.selector = selector._loop.state
        if not ms_set_driver(selector._loop.state, &sink.driver):
            sink.selector = NULL
            return False
        self._loop = selector._loop
        self._loop.driver_owner = self.state
        return True

    def disown(self):
        """In a forked child: other threads may have held anything. Nothing is sent any more."""
        self.lock = QueueLock()

    # ---- with the lock held ----

    def set_flushing(self, bint is_flushing):
        """Whether nothing may linger."""
        if self.state.process != process_number():
            return
        ms_sink_lock(&self.state.sink)
        if is_flushing and not self.state.sink.is_flushing:
            self._wants_loop = True
        self.state.sink.is_flushing = is_flushing
        ms_sink_unlock(&self.state.sink)

    def send_here(self):
        """Have the thread that notifies send what is due: what it has just written is near it."""
        self._wants_send = True
        if self._loop is not None:
            ms_sink_lock(&self.state.sink)
            self.state.sink.is_sender_near = True
            ms_sink_unlock(&self.state.sink)

    def grant(self, PartitionQueue queue not None, route, int64_t allowance, identity):
        """Let a partition send `allowance` batches; False if its connection is not open."""
        cdef ms_partition* partition = &queue.partition
        cdef bytes head = route.head
        cdef uint8_t* copy
        if queue.topic.sink is not self:
            raise ValueError("the queue is another sink's")
        if self._loop is not None:
            if len(head) < CORRELATION_ID_END_IN_HEAD:
                raise ValueError(f"a request does not begin with {len(head)} bytes")
            if not ms_sink_resume(&self.state.sink, route.connection_id):
                return False
        copy = <uint8_t*>malloc(len(head) + 1)
        if copy is NULL:
            raise MemoryError
        memcpy(copy, <const char*>head, len(head))
        if partition.first is not NULL and partition.first.is_repeat:
            number(partition.first)  # Nobody else changes a queue while the lock is held.
        ms_sink_lock(&self.state.sink)
        free(partition.route.head)
        partition.route.head = copy
        partition.route.head_size = len(head)
        partition.route.connection_id = route.connection_id
        partition.route.version = route.version
        partition.route.attributes = route.attributes
        partition.route.topic = route.topic
        partition.producer_id = identity.producer_id
        partition.producer_epoch = identity.epoch
        partition.allowance = <int32_t>min(allowance, INT32_MAX)
        ms_partition_activate(&self.state.sink, partition)
        ms_sink_unlock(&self.state.sink)
        self._wants_loop = True
        return True

    def revoke(self, PartitionQueue queue not None):
        """Let a partition send nothing more."""
        cdef ms_sink* sink = queue._enter()
        queue.partition.allowance = 0
        if sink is not NULL:
            ms_partition_deactivate(sink, &queue.partition)
            ms_sink_unlock(sink)

    def take(self, int64_t connection_id, int64_t now_ms):
        """For the Sender: batches for one request on a connection, and when the next is due."""
        cdef int64_t due_ms = MS_NEVER
        cdef ms_request* request
        ms_sink_lock(&self.state.sink)
        request = ms_sink_take(&self.state.sink, now_ms, connection_id, &due_ms)
        if request is not NULL:
            ms_sink_take_sent(&self.state.sink)
        ms_sink_unlock(&self.state.sink)
        taken = [] if request is NULL else self._claim(request)
        return taken, None if due_ms == MS_NEVER else due_ms

    # ---- without the lock ----

    def take_ungranted(self):
        """The queues that have got a batch and may send nothing."""
        queues, self._ungranted = self._ungranted, []
        return queues

    def take_sent(self):
        """What was sent since the last call: correlation ids, versions, and the batches."""
        cdef ms_request* request
        cdef ms_request* following
        cdef list sent = []
        ms_sink_lock(&self.state.sink)
        request = ms_sink_take_sent(&self.state.sink)
        ms_sink_unlock(&self.state.sink)
        while request is not NULL:
            following = request.next
            correlation_id, version = request.correlation_id, request.version
            sent.append((correlation_id, version, self._claim(request)))
            request = following
        return sent

    cdef list _claim(self, ms_request* request):
        """The batches of a request, each with its queue; they know now that they were taken."""
        cdef list taken = []
        cdef ms_entry* entry
        cdef int i
        for i in range(request.count):
            entry = request.entries[i]
            batch = <object>entry.batch
            batch.end_of_records()
            (<PartitionQueue>entry.queue).expected_size = batch.size
            if not entry.is_repeat and entry.producer_id >= 0:
                batch.number(entry.producer_id, entry.producer_epoch, entry.sequence)
            taken.append((<object>entry.queue, batch))
        drop_request(&self.state.sink, request)
        return taken

    def notify(self):
        """After a change, without the lock: whoever has to act on it does so soon."""
        cdef bint wants_sender = self._wants_sender or self._loop is None
        cdef bint wants_send = self._wants_send
        cdef bint wants_loop = self._wants_loop
        self._wants_sender = self._wants_send = self._wants_loop = False
        if wants_sender:
            self._wake()
        if self._loop is None or self.state.process != process_number():
            return
        if wants_send:
            with nogil:
                ms_sink_send(&self.state.sink)
        elif wants_loop:
            ms_sink_wake_loop(&self.state.sink)


cdef int number(ms_entry* entry) except -1:
    """Give a repeat the number that its batch has, and the end of its backoff."""
    batch = <object>entry.batch
    entry.producer_id = batch.producer_id
    entry.producer_epoch = batch.producer_epoch
    entry.sequence = batch.base_sequence
    entry.not_before_ms = batch.retry_at_ms
    return 0


cdef class TopicQueues:
    """The queues of one topic, and its sticky partition."""

    def __init__(self, name, ProduceSink sink=None):
        self.name = name
        self.sink = sink
        self.partitions = []
        self.available = ()
        self.sticky = ANY_PARTITION


cdef class PartitionQueue:
    """The batches of one partition that wait to be sent: repeats, others, the last may be open."""

    def __cinit__(self):
        ms_partition_init(&self.partition, 0)

    def __init__(self, TopicQueues topic not None, int64_t index, int64_t expected_size):
        self.topic = topic
        self.index = index
        self.partition.index = <int32_t>index
        self.expected_size = expected_size

    def __dealloc__(self):
        cdef ms_entry* entry = self.partition.first
        while entry is not NULL:
            self.partition.first = entry.next
            let_go(entry)
            entry = self.partition.first
        free(self.partition.route.head)

    cdef ms_sink* _enter(self) noexcept:
        """The sink, locked; NULL if nobody else can look."""
        cdef ProduceSink sink = self.topic.sink
        if sink is None or sink.state.process != process_number():
            return NULL
        ms_sink_lock(&sink.state.sink)
        return &sink.state.sink

    cdef void _leave(self, ms_sink* sink) noexcept:
        if sink is not NULL:
            ms_partition_activate(sink, &self.partition)
            ms_sink_unlock(sink)

    cdef ms_entry* _entry(self, batch) except NULL:
        cdef BatchOutcome outcome = batch  # What a handle needs: a TypeError for anything else.
        cdef BatchWriter writer = batch.writer
        cdef int64_t created_ms = batch.created_ms
        cdef int64_t size = batch.size
        cdef ms_entry* entry = <ms_entry*>calloc(1, sizeof(ms_entry))
        if entry is NULL:
            raise MemoryError
        entry.created_ms = created_ms
        entry.producer_id = entry.producer_epoch = entry.sequence = -1
        entry.holders = 1
        entry.sealed_size = size
        if writer is not None:
            entry.records = &writer._batch
            entry.exports = &writer._exports
            entry.writer = <PyObject*>writer
            Py_INCREF(writer)
        entry.queue = <PyObject*>self
        entry.batch = <PyObject*>outcome
        Py_INCREF(outcome)
        return entry

    def add(self, batch):
        """Begin a new batch, which takes the next records."""
        if batch.writer is None:
            raise ValueError("a batch without a writer takes no records")
        cdef ms_entry* entry = self._entry(batch)
        cdef ProduceSink owner = self.topic.sink
        cdef ms_sink* sink
        self._open = batch
        self.told = batch.told
        sink = self._enter()
        ms_partition_add(&self.partition, entry)
        if sink is not NULL:
            if not self.partition.allowance:
                owner._wants_sender = True
                owner._ungranted.append(self)
            elif sink.linger_ms == 0 or sink.is_flushing:
                owner._wants_send = True
            elif entry.created_ms + sink.linger_ms < sink.loop_due_ms:
                owner._wants_loop = True
        self._leave(sink)

    def put_back(self, batch, int64_t place):
        """Have a batch sent again, after the `place` first that are to be sent again, too."""
        cdef ms_entry* entry = self._entry(batch)
        batch.is_repeat = True
        number(entry)
        cdef ms_sink* sink = self._enter()
        ms_partition_put_back(&self.partition, entry, place)
        self._leave(sink)

    def repeats(self):
        """The batches that are to be sent again, in their order. With the accumulator's lock."""
        cdef ms_entry* entry = self.partition.first
        cdef list found = []
        while entry is not NULL and entry.is_repeat:
            found.append(<object>entry.batch)
            entry = entry.next
        return found

    def remove(self, batch):
        """Take a certain batch out, which is not open; False if it is not here."""
        cdef ms_sink* sink = self._enter()
        cdef ms_entry* entry = ms_partition_remove(&self.partition, <PyObject*>batch)
        self._leave(sink)
        if entry is NULL:
            return False
        let_go(entry)
        return True

    def close(self):
        """The open batch, if there is one, takes no more records."""
        cdef ms_sink* sink = self._enter()
        ms_partition_close(&self.partition)
        if sink is not NULL and self.partition.allowance:
            self.topic.sink._wants_loop = True
        self._leave(sink)
        self._open = None

    def __len__(self):
        return self.partition.count

    @property
    def open(self):
        """The batch that takes the next record; None if it would be a new one."""
        return None if self.partition.open is NULL else self._open

    @property
    def first(self):
        """The batch that is sent next; None if there is none."""
        cdef ms_sink* sink = self._enter()
        batch = None if self.partition.first is NULL else <object>self.partition.first.batch
        self._leave(sink)
        return batch

    @property
    def is_granted(self):
        """Whether it may send anything."""
        return self.partition.allowance > 0

    @property
    def next_sequence(self):
        """The sequence of the next new batch. Only set while nothing is granted."""
        return self.partition.sequence

    @next_sequence.setter
    def next_sequence(self, int64_t sequence):
        if self.partition.allowance:
            raise ValueError("a partition that sends counts by itself")
        self.partition.sequence = sequence


def read_produced(const uint8_t[::1] frame not None, int version):
    """What a Produce response, without its size, says if all is well with every partition.

    For each its number, the offset of its first record and the time of the log, -1 unless the log
    sets it. None for any other response, which is read as a message.
    """
    cdef ms_produced all[MS_REQUEST_BATCHES_MAX]
    cdef int64_t count = ms_read_produced(
        &frame[0] if len(frame) else NULL, len(frame), version, all, MS_REQUEST_BATCHES_MAX)
    if not 0 <= count <= MS_REQUEST_BATCHES_MAX:
        return None
    return [
        (all[i].partition, all[i].base_offset, all[i].log_append_time) for i in range(count)]


def is_pinned(BatchWriter writer not None):
    """Whether a frame on its way out, or a view, needs the records where they are."""
    return writer._exports > 0
