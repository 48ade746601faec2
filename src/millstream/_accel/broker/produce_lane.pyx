# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Produce from the frame to the log and back; what `ProduceHandler.handle` does at its shortest.

`millstream.replica.produce_lane` makes one for a broker, and the selector offers it every frame of
its listeners. It takes a request for one partition that has no follower and waits for no disk, with
acks of 1 or all, if the log's express lane takes the batch. Everything else, and everything that is
wrong, is declined before anything was changed, and goes through `KafkaApis`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from millstream._accel.broker.express_lane cimport LANE_BUSY, ExpressLane
from millstream._accel.broker.fast_path cimport (
    FAST_ANSWER_BYTES_MAX, FAST_DECLINED, FastHandler)
from millstream._accel.broker.log_writers cimport (
    ms_write, ms_writers, ms_writers_end, ms_writers_run, ms_writers_start)
from millstream._accel.broker.produce_frames cimport (
    FLEXIBLE_SINCE, TOPIC_IDS_SINCE, Single, answer_size, read_request, write_answer, write_error)
from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset, ms_slot_set
from millstream._accel.wire cimport ms_read_big_endian

from millstream.errors import KafkaStorageError

cdef enum:
    PRODUCE = 0
    VERSION_MIN = 3
    VERSION_MAX = 13
    ZSTD_SINCE = 7
    ACKS_ALL = -1
    ACKS_LEADER = 1
    HEADER_BYTES = 14
    ATTRIBUTES_AT = 21
    CODEC_MASK = 7
    ZSTD = 4
    CAPACITY_MIN = 32
    # A helper is woken up for so much; waking it up costs as much as writing a tenth of that.
    HELPED_BYTES_MIN = 64 * 1024
    WRITES_MAX = 32

cdef struct Slots:
    Py_ssize_t by_name
    Py_ssize_t by_id
    Py_ssize_t waiting
    Py_ssize_t is_leader
    Py_ssize_t is_internal
    Py_ssize_t is_under_min_isr
    Py_ssize_t waits_for_disk
    Py_ssize_t followers
    Py_ssize_t leader_epoch
    Py_ssize_t log
    Py_ssize_t watchers
    Py_ssize_t is_closed
    Py_ssize_t lane
    Py_ssize_t local
    Py_ssize_t producers
    Py_ssize_t high_watermark
    Py_ssize_t log_start_offset
    Py_ssize_t log_end_offset
    Py_ssize_t completed
    Py_ssize_t watermark_news
    Py_ssize_t is_awake

# An answer that was written before its records were.
cdef struct StagedAnswer:
    int place
    uint8_t* error_at

cdef Slots slots
cdef object unified_log = None


def bind(table, purgatory, partition, log, local, producers, news):
    """Learn where the classes of `millstream.replica` and its logs keep what is used here."""
    global unified_log
    slots.by_name = ms_slot_offset(table, "_by_name")
    slots.by_id = ms_slot_offset(table, "_by_id")
    slots.waiting = ms_slot_offset(purgatory, "_watchers")
    slots.is_leader = ms_slot_offset(partition, "is_leader")
    slots.is_internal = ms_slot_offset(partition, "is_internal")
    slots.is_under_min_isr = ms_slot_offset(partition, "is_under_min_isr")
    slots.waits_for_disk = ms_slot_offset(partition, "waits_for_disk")
    slots.followers = ms_slot_offset(partition, "_followers")
    slots.leader_epoch = ms_slot_offset(partition, "leader_epoch")
    slots.log = ms_slot_offset(partition, "log")
    slots.watchers = ms_slot_offset(partition, "watchers")
    slots.is_closed = ms_slot_offset(log, "_is_closed")
    slots.lane = ms_slot_offset(log, "_lane")
    slots.local = ms_slot_offset(log, "_local")
    slots.producers = ms_slot_offset(log, "producers")
    slots.high_watermark = ms_slot_offset(log, "_high_watermark")
    slots.log_start_offset = ms_slot_offset(log, "_log_start_offset")
    slots.log_end_offset = ms_slot_offset(local, "log_end_offset")
    slots.completed = ms_slot_offset(producers, "_completed")
    slots.watermark_news = ms_slot_offset(log, "watermark_news")
    slots.is_awake = ms_slot_offset(news, "is_awake")
    unified_log = log


cdef inline object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef inline ExpressLane lane_of(object partition):
    return <ExpressLane>slot(slot(partition, slots.log), slots.lane)


cdef int64_t find_body(const uint8_t* frame, int64_t size) noexcept nogil:
    """Where the body of a Produce request begins that is of a version from here; 0 if it is not."""
    cdef int version = <int16_t>ms_read_big_endian(frame + 6, 2)
    cdef int64_t client_id_length = <int16_t>ms_read_big_endian(frame + 12, 2)
    cdef int64_t body = HEADER_BYTES + max(client_id_length, 0)
    if (ms_read_big_endian(frame + 4, 2) != PRODUCE
            or not VERSION_MIN <= version <= VERSION_MAX or client_id_length < -1):
        return 0
    if version >= FLEXIBLE_SINCE:
        # One byte 0, no tagged fields, ends nearly every header.
        if body >= size or frame[body] != 0:
            return 0
        body += 1
    return body if body <= size else 0


cdef class ProduceLane(FastHandler):
    """Answers ordinary Produce requests; those of one turn of the loop are written together."""

    cdef object _table
    cdef object _purgatory
    cdef object _changed
    cdef object _failure
    cdef object _wall_ms
    cdef int64_t _now_ms
    cdef list _partitions
    cdef StagedAnswer* _answers
    cdef int _count
    cdef int _capacity
    # How much was staged, and who helps to write it, once there was a need.
    cdef int64_t _staged_bytes
    cdef ms_writers* _writers
    cdef bint _is_alone
    cdef ms_write _writes[WRITES_MAX]

    def __cinit__(self):
        self._answers = NULL
        self._writers = NULL
        self._count = self._capacity = 0

    def __init__(self, table, purgatory, changed, failure, wall_ms):
        """`changed` hears of partitions that grew, `failure` says what an exception means."""
        self._table = table
        self._purgatory = purgatory
        self._changed = changed
        self._failure = failure
        self._wall_ms = wall_ms
        self._partitions = []

    def __dealloc__(self):
        PyMem_Free(self._answers)
        if self._writers != NULL:
            ms_writers_end(self._writers)

    cdef int begin(self) except -1:
        self._now_ms = self._wall_ms()
        return 0

    cdef int64_t prepare(self, uint8_t* frame, int64_t size, uint8_t* answer) except -3:
        cdef Single single
        cdef int version = <int16_t>ms_read_big_endian(frame + 6, 2)
        cdef int64_t base_offset, answer_bytes, body = find_body(frame, size)
        if body == 0 or not read_request(frame, body, size, version, &single):
            return FAST_DECLINED
        answer_bytes = answer_size(version, single.topic_size)
        if answer_bytes > FAST_ANSWER_BYTES_MAX or (
                single.acks != ACKS_ALL and single.acks != ACKS_LEADER):
            return FAST_DECLINED
        if version < ZSTD_SINCE and (
                frame[single.start + ATTRIBUTES_AT + 1] & CODEC_MASK) == ZSTD:
            return FAST_DECLINED
        partition = self._find(frame, version, &single)
        if partition is None:
            return FAST_DECLINED
        log = slot(partition, slots.log)
        if type(log) is not unified_log or slot(log, slots.is_closed) is not False:
            return FAST_DECLINED
        base_offset = self._append(
            partition, <ExpressLane>slot(log, slots.lane), frame + single.start,
            single.stop - single.start)
        if base_offset < 0:
            return FAST_DECLINED
        self._answers[self._count].error_at = write_answer(
            answer, version, <int32_t>ms_read_big_endian(frame + 8, 4), frame + single.topic,
            single.topic_size, single.partition, base_offset, -1,
            <int64_t>slot(log, slots.log_start_offset))
        self._count += 1
        return answer_bytes

    cdef object _find(self, const uint8_t* frame, int version, Single* single):
        """The partition, if it is here and needs nobody else to accept records."""
        cdef dict topics
        cdef object key
        cdef PyObject* found
        if version >= TOPIC_IDS_SINCE:
            topics = <dict>slot(self._table, slots.by_id)
            key = PyBytes_FromStringAndSize(
                <const char*>frame + single.topic, single.topic_size)
        else:
            topics = <dict>slot(self._table, slots.by_name)
            key = self._name(frame + single.topic, single.topic_size, version)
        found = PyDict_GetItem(topics, key)
        if found == NULL:
            return None
        found = PyDict_GetItem(<dict>found, single.partition)
        if found == NULL:
            return None
        partition = <object>found
        if (slot(partition, slots.is_leader) is not True
                or slot(partition, slots.is_internal) is not False
                or slot(partition, slots.is_under_min_isr) is not False
                or slot(partition, slots.waits_for_disk) is not False
                or <dict>slot(partition, slots.followers)):
            return None
        return partition

    cdef object _name(self, const uint8_t* spelled, int64_t size, int version):
        """A topic's name behind its length; what is no name is not found either."""
        cdef int length_bytes = 1 if version >= FLEXIBLE_SINCE else 2
        return PyUnicode_DecodeUTF8(
            <char*>spelled + length_bytes, size - length_bytes, "replace")

    cdef int64_t _append(
            self, partition, ExpressLane lane, uint8_t* batch, int64_t size) except -3:
        """Stage a batch, and make room to remember its answer."""
        cdef int64_t leader_epoch = <int64_t>slot(partition, slots.leader_epoch)
        cdef int64_t base_offset
        self._reserve()
        try:
            base_offset = lane.stage(batch, size, leader_epoch, self._now_ms, False, False)
            if base_offset == LANE_BUSY:
                self.append()
                base_offset = lane.stage(
                    batch, size, leader_epoch, self._now_ms, False, False)
        except KafkaStorageError:
            # A disk that fails before anything was written: the handlers will say so.
            return FAST_DECLINED
        if base_offset >= 0:
            if lane.place < 0:
                lane.place = len(self._partitions)
                self._partitions.append(partition)
            self._answers[self._count].place = lane.place
            self._staged_bytes += size
        return base_offset

    cdef int _reserve(self) except -1:
        cdef int capacity = max(CAPACITY_MIN, 2 * self._capacity)
        cdef void* memory
        if self._count == self._capacity:
            memory = PyMem_Realloc(self._answers, capacity * sizeof(StagedAnswer))
            if memory == NULL:
                raise MemoryError()
            self._answers = <StagedAnswer*>memory
            self._capacity = capacity
        return 0

    cdef int append(self) except -1:
        cdef list partitions = self._partitions
        cdef int place, written
        if not partitions:
            return 0
        self._partitions = []
        written = self._write_together(partitions)
        self._staged_bytes = 0
        for place in range(len(partitions)):
            try:
                self._commit(
                    partitions[place], &self._writes[place] if place < written else NULL)
            except Exception as error:
                self._refuse(place, self._failure(error, partitions[place]).error.code)
        self._count = 0
        return 0

    cdef int _write_together(self, list partitions) except -1:
        """Write to several logs with a helper, if that pays: to how many, the first ones."""
        cdef int planned = 0, limit = min(len(partitions), WRITES_MAX)
        if limit == 1 or self._staged_bytes < HELPED_BYTES_MIN or not self._has_helper():
            return 0
        while planned < limit and lane_of(partitions[planned]).plan(&self._writes[planned]):
            planned += 1
        with nogil:
            ms_writers_run(self._writers, self._writes, planned)
        return planned

    cdef bint _has_helper(self) noexcept:
        """Without a thread to be had everything is written here."""
        if self._writers == NULL and not self._is_alone:
            self._writers = ms_writers_start()
            self._is_alone = self._writers == NULL
        return not self._is_alone

    cdef int _commit(self, partition, ms_write* written) except -1:
        """Write what one partition got; it is committed with that, and others may read it."""
        cdef object log = slot(partition, slots.log)
        cdef ExpressLane lane = lane_of(partition)
        lane.place = -1
        lane.commit(written)
        end_offset = slot(slot(log, slots.local), slots.log_end_offset)
        ms_slot_set(log, slots.high_watermark, end_offset)
        producers = slot(log, slots.producers)
        if <list>slot(producers, slots.completed):
            producers.on_high_watermark(end_offset)
        news = slot(log, slots.watermark_news)
        if slot(news, slots.is_awake) is not True:
            news.wake()
        if <dict>slot(partition, slots.watchers) or (
                partition in <dict>slot(self._purgatory, slots.waiting)):
            self._changed(partition)
        return 0

    cdef _refuse(self, int place, int64_t code):
        """Tell everybody who wrote to a partition that it failed."""
        cdef int i
        for i in range(self._count):
            if self._answers[i].place == place:
                write_error(self._answers[i].error_at, code)
