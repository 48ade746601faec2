# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Fetch from the frame to the place of its records; as `FetchHandler.handle` at its shortest.

`millstream.replica.fetch_lane` makes one for a broker. It takes what `SingleFetches.fetch_one`
takes, where the log's file and its index are open already: a request in a session about one
partition that has records. It leaves the session as that does, and reads nothing but the index and
the heads of a few batches. Everything else is declined before anything was changed, and goes
through `KafkaApis`.
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE)
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_Next, PyDict_SetItem
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memset

from millstream._accel.broker.fast_path cimport FastReader
from millstream._accel.broker.fetch_frames cimport (
    ANSWER_END_SIZE, SINGLES_UNTIL, TOPIC_ID_SIZE, TOPIC_IDS_SINCE, FetchAnswer, FetchSingle,
    read_request, write_head)
from millstream._accel.broker.log_span cimport Span, find_span
from millstream._accel.broker.log_tail cimport LogTail
from millstream._accel.broker.partition_state cimport PartitionState
from millstream._accel.broker.records_sender cimport ms_answer
from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset, ms_slot_set
from millstream._accel.wire cimport ms_read_big_endian

cdef enum:
    FETCH = 1
    HEADER_BYTES = 14
    COMMITTED = 1
    UNKNOWN = -1

cdef struct SessionSlots:
    Py_ssize_t changed
    Py_ssize_t created_ms
    Py_ssize_t epoch
    Py_ssize_t id
    Py_ssize_t is_follower
    Py_ssize_t last_used_ms
    Py_ssize_t rank
    Py_ssize_t ranked_as_established
    Py_ssize_t ranked_size
    Py_ssize_t targets
    Py_ssize_t uses_topic_ids

cdef struct TargetSlots:
    Py_ssize_t topic
    Py_ssize_t index
    Py_ssize_t fetch_offset
    Py_ssize_t partition_max_bytes
    Py_ssize_t current_leader_epoch
    Py_ssize_t last_fetched_epoch
    Py_ssize_t log_start_offset
    Py_ssize_t partition
    Py_ssize_t rank
    Py_ssize_t sent_high_watermark
    Py_ssize_t sent_log_start_offset

cdef SessionSlots session_slots
cdef TargetSlots target_slots


def bind(session, target):
    """Learn where the classes of `millstream.replica` keep what is used here."""
    session_slots.changed = ms_slot_offset(session, "changed")
    session_slots.created_ms = ms_slot_offset(session, "created_ms")
    session_slots.epoch = ms_slot_offset(session, "epoch")
    session_slots.id = ms_slot_offset(session, "id")
    session_slots.is_follower = ms_slot_offset(session, "is_follower")
    session_slots.last_used_ms = ms_slot_offset(session, "last_used_ms")
    session_slots.rank = ms_slot_offset(session, "_rank")
    session_slots.ranked_as_established = ms_slot_offset(session, "ranked_as_established")
    session_slots.ranked_size = ms_slot_offset(session, "ranked_size")
    session_slots.targets = ms_slot_offset(session, "targets")
    session_slots.uses_topic_ids = ms_slot_offset(session, "uses_topic_ids")
    target_slots.topic = ms_slot_offset(target, "topic")
    target_slots.index = ms_slot_offset(target, "index")
    target_slots.fetch_offset = ms_slot_offset(target, "fetch_offset")
    target_slots.partition_max_bytes = ms_slot_offset(target, "partition_max_bytes")
    target_slots.current_leader_epoch = ms_slot_offset(target, "current_leader_epoch")
    target_slots.last_fetched_epoch = ms_slot_offset(target, "last_fetched_epoch")
    target_slots.log_start_offset = ms_slot_offset(target, "log_start_offset")
    target_slots.partition = ms_slot_offset(target, "partition")
    target_slots.rank = ms_slot_offset(target, "rank")
    target_slots.sent_high_watermark = ms_slot_offset(target, "sent_high_watermark")
    target_slots.sent_log_start_offset = ms_slot_offset(target, "sent_log_start_offset")


cdef inline object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef inline int64_t number_in(object owner, Py_ssize_t offset) except? -1:
    return <int64_t>slot(owner, offset)


cdef class FetchLane(FastReader):
    """Answers ordinary fetches of the sessions of a broker."""

    cdef object _touch
    cdef dict _sessions
    cdef object _monotonic_ms
    cdef int64_t _bytes_max
    cdef int64_t _eviction_ms

    def __init__(
            self, cache, monotonic_ms, region_of, *, int64_t fetch_max_bytes,
            int64_t eviction_ms):
        """For the sessions of a cache, and as it judges their age."""
        self._touch = cache.touch
        self._sessions = cache.by_id
        self._monotonic_ms = monotonic_ms
        self._bytes_max = fetch_max_bytes
        self._eviction_ms = eviction_ms
        self.region_of = region_of

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1:
        cdef FetchSingle asked
        cdef Span span
        cdef LogTail tail
        cdef int64_t bytes_max
        if not read_frame(frame, size, &asked):
            return False
        session = self._find_session(&asked)
        target = None if session is None else only_target(session, &asked)
        if target is None:
            return False
        if asked.topic_id == NULL:
            asked.leader_epoch = number_in(target, target_slots.current_leader_epoch)
            asked.offset = number_in(target, target_slots.fetch_offset)
            asked.last_epoch = number_in(target, target_slots.last_fetched_epoch)
            asked.partition_bytes_max = number_in(target, target_slots.partition_max_bytes)
        tail = readable_tail(target, &asked)
        if tail is None:
            return False
        bytes_max = min(asked.max_bytes, self._bytes_max)
        file = find_span(
            tail, asked.offset, min(asked.partition_bytes_max, bytes_max),
            asked.isolation_level == COMMITTED, &span)
        if file is None or (span.length < asked.min_bytes and span.length < bytes_max):
            return False
        # From here on it is served.
        self._note(session, target, &asked, &span)
        self.file = file
        write_answer(answer, target, &asked, &span, <int32_t>ms_read_big_endian(frame + 8, 4))
        return True

    cdef object _find_session(self, const FetchSingle* asked):
        """The session of a request, if it is its turn."""
        cdef PyObject* found
        if asked.session_epoch <= 0 or not 0 <= asked.isolation_level <= COMMITTED:
            return None
        found = PyDict_GetItem(self._sessions, asked.session_id)
        if found == NULL:
            return None
        session = <object>found
        if (number_in(session, session_slots.epoch) != asked.session_epoch
                or slot(session, session_slots.is_follower) is not False
                or slot(session, session_slots.uses_topic_ids) is not True):
            return None
        return session

    cdef int _note(self, session, target, const FetchSingle* asked, const Span* span) except -1:
        """Leave the session as `SingleFetches` would."""
        cdef int64_t now_ms = self._monotonic_ms()
        cdef int64_t epoch = asked.session_epoch
        cdef bint is_established = (
            now_ms - number_in(session, session_slots.created_ms) > self._eviction_ms)
        cdef object rank = number_in(session, session_slots.rank) + 1
        if asked.topic_id != NULL:
            ms_slot_set(target, target_slots.fetch_offset, asked.offset)
            ms_slot_set(target, target_slots.partition_max_bytes, asked.partition_bytes_max)
            ms_slot_set(target, target_slots.current_leader_epoch, asked.leader_epoch)
            ms_slot_set(target, target_slots.last_fetched_epoch, asked.last_epoch)
            ms_slot_set(target, target_slots.log_start_offset, asked.log_start_offset)
        ms_slot_set(session, session_slots.epoch, 1 if epoch == INT32_MAX else epoch + 1)
        if (number_in(session, session_slots.ranked_size)
                == len(<dict>slot(session, session_slots.targets))
                and slot(session, session_slots.ranked_as_established) is is_established):
            # Nothing but its place in the order of use.
            key = slot(session, session_slots.id)
            ms_slot_set(session, session_slots.last_used_ms, now_ms)
            PyDict_DelItem(self._sessions, key)
            PyDict_SetItem(self._sessions, key, session)
        else:
            self._touch(session, now_ms)
        ms_slot_set(target, target_slots.sent_high_watermark, span.high_watermark)
        ms_slot_set(target, target_slots.sent_log_start_offset, span.log_start_offset)
        ms_slot_set(session, session_slots.rank, rank)
        ms_slot_set(target, target_slots.rank, rank)
        PyDict_SetItem(slot(session, session_slots.changed), target, None)
        return 0


cdef bint read_frame(const uint8_t* frame, int64_t size, FetchSingle* asked) noexcept nogil:
    """Whether a frame, its size in front, is a fetch of the common shape."""
    cdef int version = <int16_t>ms_read_big_endian(frame + 6, 2)
    cdef int64_t client_id_length = <int16_t>ms_read_big_endian(frame + 12, 2)
    cdef int64_t body = HEADER_BYTES + max(client_id_length, 0)
    if (ms_read_big_endian(frame + 4, 2) != FETCH or client_id_length < -1
            or not TOPIC_IDS_SINCE <= version <= SINGLES_UNTIL):
        return False
    # One byte 0, no tagged fields, ends nearly every header.
    if body >= size or frame[body] != 0:
        return False
    return read_request(frame + body + 1, size - body - 1, version, asked)


cdef object only_target(session, const FetchSingle* asked):
    """What the request is about, if nothing else of the session may have news."""
    cdef dict changed = <dict>slot(session, session_slots.changed)
    cdef Py_ssize_t at = 0
    cdef PyObject* found = NULL
    if len(changed) > 1:
        return None
    if not PyDict_Next(changed, &at, &found, NULL):
        if asked.topic_id == NULL:
            return None
        topic_id = PyBytes_FromStringAndSize(<const char*>asked.topic_id, TOPIC_ID_SIZE)
        # A `Uuid` equals its bytes, and has their hash.
        return (<dict>slot(session, session_slots.targets)).get((topic_id, asked.index))
    target = <object>found
    if asked.topic_id == NULL:
        return target
    topic = slot(target, target_slots.topic)
    if (number_in(target, target_slots.index) != asked.index or not PyBytes_Check(topic)
            or PyBytes_GET_SIZE(topic) != TOPIC_ID_SIZE
            or memcmp(PyBytes_AS_STRING(topic), asked.topic_id, TOPIC_ID_SIZE) != 0):
        return None
    return target


cdef LogTail readable_tail(target, const FetchSingle* asked):
    """The log of a partition that this broker leads, if no epoch is to be compared."""
    cdef PartitionState partition = <PartitionState?>slot(target, target_slots.partition)
    if partition is None or not partition.is_leader or asked.last_epoch != UNKNOWN:
        return None
    if asked.leader_epoch != UNKNOWN and asked.leader_epoch != partition.leader_epoch:
        return None
    return partition.tail


cdef int write_answer(
        ms_answer* answer, target, const FetchSingle* asked, const Span* span,
        int64_t correlation_id) except -1:
    cdef FetchAnswer fields = FetchAnswer(
        correlation_id, asked.session_id, number_in(target, target_slots.index),
        span.high_watermark, span.last_stable_offset, span.log_start_offset,
        asked.isolation_level == COMMITTED, span.length)
    topic = slot(target, target_slots.topic)
    answer.head_size = write_head(
        answer.head, &fields, <const uint8_t*>PyBytes_AS_STRING(topic))
    memset(answer.tail, 0, ANSWER_END_SIZE)
    answer.tail_size = ANSWER_END_SIZE
    answer.descriptor = span.descriptor
    answer.position = span.position
    answer.length = span.length
    return 0
