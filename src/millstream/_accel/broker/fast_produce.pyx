# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Produce from the frame to the log and back, for an ordinary request.

`millstream.replica.fast_produce` makes one for a broker, and the selector offers it every frame of
its listeners. It takes a request for one partition that waits for no disk, with acks of 1 or all,
if the log's tail takes the batch. Everything else, and everything that is wrong, is declined before
anything was changed, and takes the full path through `KafkaApis`. Where a partition has followers
the answer to acks of all waits in its `PendingAcks`, beside those of the full path.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from millstream._accel.broker.fast_path cimport (
    FAST_ANSWER_BYTES_MAX, FAST_DECLINED, FAST_DEFERRED, Deferred, FastHandler)
from millstream._accel.broker.log_tail cimport TAIL_BUSY, TAIL_DECLINED, LogTail
from millstream._accel.broker.partition_state cimport PartitionState
from millstream._accel.broker.produce_frames cimport (
    FLEXIBLE_SINCE, TOPIC_IDS_SINCE, Single, answer_size, read_request, write_answer, write_error)
from millstream._accel.codec.batch_header cimport ATTRIBUTES_AT, CODEC_BITS
from millstream._accel.wire cimport ms_read_big_endian

cdef enum:
    PRODUCE = 0
    VERSION_MIN = 3
    VERSION_MAX = 13
    ZSTD_SINCE = 7
    ACKS_ALL = -1
    ACKS_LEADER = 1
    HEADER_BYTES = 14
    ZSTD = 4
    CAPACITY_MIN = 32

# An answer that was written before its records were.
cdef struct PreparedAnswer:
    int place
    uint8_t* error_at


cdef class FastAck:
    """An answer that waits until its records are committed; a `replica.pending_acks.PendingAck`."""

    cdef readonly int64_t required_offset
    cdef readonly int64_t deadline_ms
    cdef readonly bint needs_all
    # Which of the partitions of this turn it belongs to.
    cdef int place
    cdef Deferred deferred
    cdef bytes answer
    cdef uint8_t* error_at
    cdef int version
    cdef object explain

    def complete(self, error):
        """Answer; an error that is found in the turn of the request is told by its code alone."""
        cdef bytes answer = self.answer
        if error is not None:
            write_error(self.error_at, error.code)
            if self.explain is not None and self.deferred.connection is not None:
                answer = self.explain(answer, self.version, error, self.deferred.connection)
        self.deferred.complete(answer)


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


cdef class FastProduce(FastHandler):
    """Answers ordinary Produce requests; those of one turn of the loop are written together."""

    # Says more about an error that was found late: given the answer, its version, the error and the
    # connection, the answer to send.
    cdef public object explain
    # Topics by name and by id, each with its partitions by number.
    cdef dict _by_name
    cdef dict _by_id
    cdef object _failure
    cdef object _clock
    # Takes an answer that has to wait.
    cdef object _wait
    cdef int64_t _wall_ms
    # Read when it is needed, -1 before.
    cdef int64_t _now_ms
    cdef list _partitions
    cdef list _acks
    cdef PreparedAnswer* _answers
    cdef int _count
    cdef int _capacity

    def __cinit__(self, *args, **kwargs):
        self._answers = NULL

    def __init__(self, dict by_name not None, dict by_id not None, failure, wait, clock):
        """`failure` says what an exception of an append means; `wait` takes a `FastAck`."""
        self._by_name = by_name
        self._by_id = by_id
        self._failure = failure
        self._wait = wait
        self._clock = clock
        self._partitions = []
        self._acks = []

    def __dealloc__(self):
        PyMem_Free(self._answers)

    cdef int begin(self) except -1:
        self._wall_ms = self._clock.wall_ms()
        self._now_ms = -1
        return 0

    cdef int64_t _now(self) except -2:
        if self._now_ms < 0:
            self._now_ms = self._clock.monotonic_ms()
        return self._now_ms

    cdef int64_t prepare(self, uint8_t* frame, int64_t size, uint8_t* answer) except -3:
        cdef Single single
        cdef PartitionState partition
        cdef int version = <int16_t>ms_read_big_endian(frame + 6, 2)
        cdef int64_t base_offset, answer_bytes, body = find_body(frame, size)
        if body == 0 or not read_request(frame, body, size, version, &single):
            return FAST_DECLINED
        answer_bytes = answer_size(version, single.topic_size)
        if answer_bytes > FAST_ANSWER_BYTES_MAX or (
                single.acks != ACKS_ALL and single.acks != ACKS_LEADER):
            return FAST_DECLINED
        if version < ZSTD_SINCE and (
                frame[single.start + ATTRIBUTES_AT + 1] & CODEC_BITS) == ZSTD:
            return FAST_DECLINED
        partition = self._find(frame, version, &single)
        if partition is None:
            return FAST_DECLINED
        base_offset = self._prepare(
            partition, frame + single.start, single.stop - single.start)
        if base_offset < 0:
            return FAST_DECLINED
        if single.acks == ACKS_ALL and partition._followers:
            answer = self._defer(partition, &single, answer_bytes, version)
        self._answers[self._count].error_at = write_answer(
            answer, version, <int32_t>ms_read_big_endian(frame + 8, 4), frame + single.topic,
            single.topic_size, single.partition, base_offset, -1,
            partition.tail.log_start_offset)
        self._count += 1
        if self.deferred is None:
            return answer_bytes
        (<FastAck>self._acks[len(self._acks) - 1]).error_at = (
            self._answers[self._count - 1].error_at)
        return FAST_DEFERRED

    cdef uint8_t* _defer(
            self, PartitionState partition, Single* single, int64_t answer_bytes,
            int version) except NULL:
        """Where to write the answer to the batch that was prepared last: it has to wait."""
        cdef FastAck ack = FastAck.__new__(FastAck)
        ack.required_offset = partition.tail.next_offset()
        ack.deadline_ms = self._now() + max(single.timeout_ms, 0)
        ack.needs_all = True
        ack.version = version
        ack.explain = self.explain
        ack.place = partition.tail.place
        ack.deferred = self.deferred = Deferred()
        ack.answer = PyBytes_FromStringAndSize(NULL, answer_bytes)
        self._acks.append(ack)
        return <uint8_t*>PyBytes_AS_STRING(ack.answer)

    cdef PartitionState _find(self, const uint8_t* frame, int version, Single* single):
        """The partition, if this broker leads it and need not wait for a disk."""
        cdef PartitionState partition
        cdef PyObject* found
        if version >= TOPIC_IDS_SINCE:
            found = PyDict_GetItem(self._by_id, PyBytes_FromStringAndSize(
                <const char*>frame + single.topic, single.topic_size))
        else:
            found = PyDict_GetItem(
                self._by_name, self._name(frame + single.topic, single.topic_size, version))
        if found == NULL:
            return None
        found = PyDict_GetItem(<dict>found, single.partition)
        if found == NULL:
            return None
        partition = <PartitionState?><object>found
        if (not partition.is_leader or partition.is_internal or partition.is_under_min_isr
                or partition.waits_for_disk):
            return None
        return partition

    cdef object _name(self, const uint8_t* raw, int64_t size, int version):
        """A topic's name behind its length; what is no name is not found either."""
        cdef int length_bytes = 1 if version >= FLEXIBLE_SINCE else 2
        return PyUnicode_DecodeUTF8(<char*>raw + length_bytes, size - length_bytes, "replace")

    cdef int64_t _prepare(
            self, PartitionState partition, uint8_t* batch, int64_t size) except -3:
        """Prepare a batch, and make room to remember its answer."""
        cdef LogTail tail = partition.tail
        cdef int64_t base_offset
        self._reserve()
        try:
            base_offset = tail.prepare(batch, size, partition.leader_epoch, self._wall_ms)
            if base_offset == TAIL_BUSY:
                self.append()
                base_offset = tail.prepare(batch, size, partition.leader_epoch, self._wall_ms)
        except OSError:
            # A disk that fails before anything was written: the handlers will say so.
            return TAIL_DECLINED
        if base_offset >= 0:
            if tail.place < 0:
                tail.place = len(self._partitions)
                self._partitions.append(partition)
            self._answers[self._count].place = tail.place
        return base_offset

    cdef int _reserve(self) except -1:
        cdef int capacity = max(CAPACITY_MIN, 2 * self._capacity)
        cdef void* memory
        if self._count == self._capacity:
            memory = PyMem_Realloc(self._answers, capacity * sizeof(PreparedAnswer))
            if memory == NULL:
                raise MemoryError()
            self._answers = <PreparedAnswer*>memory
            self._capacity = capacity
        return 0

    cdef int append(self) except -1:
        """Write what each partition got, and change the answers of those that failed."""
        cdef PartitionState partition
        cdef list partitions = self._partitions, acks = self._acks
        cdef int place
        if not partitions:
            return 0
        self._partitions = []
        self._acks = []
        for place in range(len(partitions)):
            partition = <PartitionState>partitions[place]
            partition.tail.place = -1
            try:
                partition.tail.append_prepared()
            except Exception as error:
                self._refuse(place, self._failure(error, partition).error, acks)
            else:
                self._commit(partition, place, acks)
        self._count = 0
        return 0

    cdef int _commit(self, PartitionState partition, int place, list acks) except -1:
        """A partition has its records: let answers wait for the others that need them."""
        cdef FastAck ack
        for ack in acks:
            if ack.place == place:
                self._wait(partition, ack)
        partition.advance(self._now() if partition._followers else 0)
        partition.notify()
        return 0

    cdef int _refuse(self, int place, error, list acks) except -1:
        """Tell everybody who wrote to a partition that it failed."""
        cdef FastAck ack
        cdef int i
        for i in range(self._count):
            if self._answers[i].place == place:
                write_error(self._answers[i].error_at, error.code)
        for ack in acks:
            if ack.place == place:
                ack.complete(error)
        return 0
