# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Produce from the frame to the log and back, for an ordinary request.

`millstream.replica.fast_produce` makes one for a broker, and the selector offers it every frame of
its listeners. It takes a request for one partition that waits for no disk, with acks of 1 or all, if
the log's tail takes the batch. Everything else, and everything that is wrong, is declined before
anything was changed, and takes the full path through `KafkaApis`.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from millstream._accel.broker.client_batch cimport is_intact
from millstream._accel.broker.express cimport (
    EXPRESS_ANSWER_BYTES_MAX, EXPRESS_DECLINED, ExpressHandler)
from millstream._accel.broker.log_tail cimport TAIL_BUSY, TAIL_DECLINED, LogTail
from millstream._accel.broker.partition_state cimport PartitionState
from millstream._accel.broker.produce_frames cimport (
    FLEXIBLE_SINCE, TOPIC_IDS_SINCE, Single, answer_size, read_request, write_answer, write_error)
from millstream._accel.wire cimport ms_read_big_endian

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

# An answer that was written before its records were.
cdef struct PreparedAnswer:
    int place
    uint8_t* error_at


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


cdef int64_t find_intact(const uint8_t* frame, int64_t size) noexcept nogil:
    """Where in a frame a batch is whose checksum is right; 0 if that is not known."""
    cdef Single single
    cdef int64_t body
    if size < HEADER_BYTES:
        return 0
    body = find_body(frame, size)
    if body == 0 or not read_request(
            frame, body, size, <int16_t>ms_read_big_endian(frame + 6, 2), &single):
        return 0
    return single.start if is_intact(frame + single.start, single.stop - single.start) else 0


cdef class FastProduce(ExpressHandler):
    """Answers ordinary Produce requests; those of one turn of the loop are written together."""

    # Topics by name and by id, each with its partitions by number.
    cdef dict _by_name
    cdef dict _by_id
    cdef object _failure
    cdef object _clock
    cdef int64_t _wall_ms
    cdef list _partitions
    cdef PreparedAnswer* _answers
    cdef int _count
    cdef int _capacity

    def __cinit__(self, *args, **kwargs):
        self._answers = NULL
        self.check = find_intact

    def __init__(self, dict by_name not None, dict by_id not None, failure, clock):
        """`failure` says what an exception of an append means."""
        self._by_name = by_name
        self._by_id = by_id
        self._failure = failure
        self._clock = clock
        self._partitions = []

    def __dealloc__(self):
        PyMem_Free(self._answers)

    cdef int begin(self) except -1:
        self._wall_ms = self._clock.wall_ms()
        return 0

    cdef int64_t stage(
            self, uint8_t* frame, int64_t size, int64_t checked, uint8_t* answer) except -2:
        cdef Single single
        cdef PartitionState partition
        cdef int version = <int16_t>ms_read_big_endian(frame + 6, 2)
        cdef int64_t base_offset, answer_bytes, body = find_body(frame, size)
        if body == 0 or not read_request(frame, body, size, version, &single):
            return EXPRESS_DECLINED
        answer_bytes = answer_size(version, single.topic_size)
        if answer_bytes > EXPRESS_ANSWER_BYTES_MAX or (
                single.acks != ACKS_ALL and single.acks != ACKS_LEADER):
            return EXPRESS_DECLINED
        if version < ZSTD_SINCE and (
                frame[single.start + ATTRIBUTES_AT + 1] & CODEC_MASK) == ZSTD:
            return EXPRESS_DECLINED
        partition = self._find(frame, version, &single)
        if partition is None:
            return EXPRESS_DECLINED
        base_offset = self._prepare(
            partition, frame + single.start, single.stop - single.start,
            checked == single.start)
        if base_offset < 0:
            return EXPRESS_DECLINED
        self._answers[self._count].error_at = write_answer(
            answer, version, <int32_t>ms_read_big_endian(frame + 8, 4), frame + single.topic,
            single.topic_size, single.partition, base_offset, -1,
            partition.tail.log_start_offset)
        self._count += 1
        return answer_bytes

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
                or partition.waits_for_disk or partition._followers):
            return None
        return partition

    cdef object _name(self, const uint8_t* raw, int64_t size, int version):
        """A topic's name behind its length; what is no name is not found either."""
        cdef int length_bytes = 1 if version >= FLEXIBLE_SINCE else 2
        return PyUnicode_DecodeUTF8(<char*>raw + length_bytes, size - length_bytes, "replace")

    cdef int64_t _prepare(
            self, PartitionState partition, uint8_t* batch, int64_t size,
            bint is_known_intact) except -3:
        """Prepare a batch, and make room to remember its answer."""
        cdef LogTail tail = partition.tail
        cdef int64_t base_offset
        self._reserve()
        try:
            base_offset = tail.prepare(
                batch, size, partition.leader_epoch, self._wall_ms, is_known_intact)
            if base_offset == TAIL_BUSY:
                self.commit()
                base_offset = tail.prepare(
                    batch, size, partition.leader_epoch, self._wall_ms, is_known_intact)
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

    cdef int commit(self) except -1:
        """Write what each partition got, and change the answers of those that failed."""
        cdef PartitionState partition
        cdef list partitions = self._partitions
        cdef int place
        if not partitions:
            return 0
        self._partitions = []
        for place in range(len(partitions)):
            partition = <PartitionState>partitions[place]
            partition.tail.place = -1
            try:
                partition.tail.append_prepared()
            except Exception as error:
                self._refuse(place, self._failure(error, partition).error.code)
            else:
                partition.advance(self._wall_ms)
                partition.notify()
        self._count = 0
        return 0

    cdef _refuse(self, int place, int64_t code):
        """Tell everybody who wrote to a partition that it failed."""
        cdef int i
        for i in range(self._count):
            if self._answers[i].place == place:
                write_error(self._answers[i].error_at, code)
