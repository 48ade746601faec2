# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The fast path of Fetch: a frame in, the place of its records in a file out.

`millstream.replica.fast_fetch` makes one for a broker. It has three callers, all on the loop's
thread under the GIL: the selector offers each frame that the fast path of Produce declines
(`read`); `FetchService` asks whether a fetch has nothing to read yet and only has to wait
(`begin_wait`), and offers it again when one of its partitions has changed (`answer_waiting`).

It takes a consumer's request in a session that is about one partition, versions 13 to 18, where the
log's file and index are open already. It answers as the full path (`FetchHandler`, `FetchService`)
would, byte for byte, and leaves the session as that does. Everything else it declines before
anything was changed, and the full path takes it; there is no plain version. It took a fetch of
1 KiB from 57 to 20 us of CPU (docs/internals/decisions/fetch-path.md).
"""

from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE)
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_Next, PyDict_SetItem
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset

from millstream._accel.broker.fast_path cimport FastReader
from millstream._accel.broker.fetch_state cimport FetchPartitionState, FetchSessionState
from millstream._accel.broker.log_span cimport Span, find_span, read_bounds
from millstream._accel.broker.log_tail cimport LogTail
from millstream._accel.broker.partition_state cimport PartitionState
from millstream._accel.broker.transports cimport ms_answer
from millstream._accel.wire cimport (
    ms_read_big_endian, ms_write_big_endian, ms_write_uvarint)

cdef enum:
    FETCH = 1
    VERSION_MIN = 13
    VERSION_MAX = 18
    REPLICA_STATE_SINCE = 15
    SIZE_BYTES = 4
    # Behind the size of a frame: API key, version, correlation id, length of the client id.
    HEADER_BYTES = 10
    # Wait, bytes at least and at most, isolation, session and its epoch, number of topics.
    HEAD_SIZE = 22
    TOPIC_ID_SIZE = 16
    # The topic's id, then number of partitions, partition, leader epoch, offset, last epoch, start
    # of the log, bytes at most, no tagged fields of the partition and of the topic.
    PARTITION_SIZE = TOPIC_ID_SIZE + 35
    # No forgotten topics, no rack, no tagged fields.
    END_SIZE = 3
    # No tagged fields of the partition, of the topic, of the whole.
    ANSWER_END_SIZE = 3
    COMMITTED = 1
    UNKNOWN = -1

# Without a topic id the request names no partition: those fields are the session's then.
cdef struct FetchFields:
    int64_t correlation_id
    int64_t max_wait_ms
    int64_t min_bytes
    int64_t max_bytes
    int64_t isolation_level
    int64_t session_id
    int64_t session_epoch
    const uint8_t* topic_id
    int64_t index
    int64_t leader_epoch
    int64_t offset
    int64_t last_epoch
    int64_t log_start_offset
    int64_t partition_bytes_max


cdef class FastFetch(FastReader):
    """Answers ordinary fetches of the sessions of a broker."""

    cdef object _touch
    cdef dict _sessions
    cdef dict _waiting
    cdef object _monotonic_ms
    cdef int64_t _bytes_max
    cdef int64_t _eviction_ms

    def __init__(
            self, cache, dict waiting, monotonic_ms, region_of, *, int64_t fetch_max_bytes,
            int64_t eviction_ms):
        """For the sessions of a cache, as it judges their age; `waiting` has those that wait."""
        self._touch = cache.touch
        self._sessions = cache.by_id
        self._waiting = waiting
        self._monotonic_ms = monotonic_ms
        self._bytes_max = fetch_max_bytes
        self._eviction_ms = eviction_ms
        self.region_of = region_of

    def begin_wait(self, bytes frame):
        """Take a fetch that has nothing to read yet, and waits for a byte; None if it is declined.

        The frame is that of the request, without its size. What is to be known of the wait: the
        session, how long at most, how many bytes at most, whether it reads only what is committed.
        """
        cdef FetchFields asked
        cdef FetchPartitionState partition = None
        if not read_request(
                <const uint8_t*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), &asked):
            return None
        cdef FetchSessionState session = self._find_session(&asked, False)
        if (session is None or session in self._waiting or asked.max_wait_ms <= 0
                or min(asked.min_bytes, min(asked.max_bytes, self._bytes_max)) != 1):
            return None
        if asked.topic_id != NULL or session.changed:
            partition = find_partition(session, &asked)
            if partition is None or not is_at_end(partition, &asked):
                return None
            # Where the fetch offset is in the files matters only to a wait for more than a byte,
            # and no other fetch of the session waits.
            partition.start = None
            PyDict_SetItem(session.changed, partition, None)
        self._note_request(session, partition, &asked)
        return session, asked.max_wait_ms, asked.max_bytes, asked.isolation_level == COMMITTED

    def answer_waiting(self, bytes frame):
        """The parts of the answer to a fetch that waits, of which something has changed, or None.

        The session was brought up to date when the request came: only what the answer changes is
        noted.
        """
        cdef ms_answer answer
        if not self._answer(
                <const uint8_t*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), True, &answer):
            return None
        return self.parts(&answer)

    cdef bint read(self, const uint8_t* frame, int64_t size, ms_answer* answer) except -1:
        return self._answer(frame + SIZE_BYTES, size - SIZE_BYTES, False, answer)

    cdef bint _answer(
            self, const uint8_t* frame, int64_t size, bint has_waited, ms_answer* answer) except -1:
        cdef FetchFields asked
        cdef Span span
        cdef int64_t bytes_max
        if not read_request(frame, size, &asked):
            return False
        cdef FetchSessionState session = self._find_session(&asked, has_waited)
        if session is None:
            return False
        if has_waited:
            asked.topic_id = NULL
        cdef FetchPartitionState partition = find_partition(session, &asked)
        if partition is None:
            return False
        cdef LogTail tail = readable_tail(partition, &asked)
        if tail is None:
            return False
        bytes_max = min(asked.max_bytes, self._bytes_max)
        file = find_span(
            tail, asked.offset, min(asked.partition_bytes_max, bytes_max),
            asked.isolation_level == COMMITTED, &span)
        # What a batch has above the partition's limit does not count for a fetch that waits.
        if file is None or (
                min(span.length, asked.partition_bytes_max) < min(asked.min_bytes, bytes_max)):
            return False
        # From here on it is served.
        if not has_waited:
            self._note_request(session, partition, &asked)
        note_records(session, partition, &span)
        self.file = file
        write_answer(answer, partition, &asked, &span)
        return True

    cdef FetchSessionState _find_session(self, const FetchFields* asked, bint has_waited):
        """The consumer's session of a request, if the request is the next one or the last one."""
        cdef PyObject* found = PyDict_GetItem(self._sessions, asked.session_id)
        if found == NULL or asked.session_epoch <= 0:
            return None
        cdef FetchSessionState session = <object>found
        cdef int64_t epoch = asked.session_epoch
        if has_waited:
            epoch = next_epoch(epoch)
        if session.epoch != epoch or session.is_follower or not session.uses_topic_ids:
            return None
        return session

    cdef int _note_request(
            self, FetchSessionState session, FetchPartitionState partition,
            const FetchFields* asked) except -1:
        """Leave the session as `FetchSessionCache.open` would."""
        cdef int64_t now_ms = self._monotonic_ms()
        if asked.topic_id != NULL:
            partition.fetch_offset = asked.offset
            partition.partition_max_bytes = asked.partition_bytes_max
            partition.current_leader_epoch = asked.leader_epoch
            partition.last_fetched_epoch = asked.last_epoch
            partition.log_start_offset = asked.log_start_offset
        session.epoch = next_epoch(session.epoch)
        if (session.ranked_size == len(session.partitions)
                and session.ranked_as_established == (
                    now_ms - session.created_ms > self._eviction_ms)):
            # Nothing changes but its place in the order of use.
            session.last_used_ms = now_ms
            key = session.id
            PyDict_DelItem(self._sessions, key)
            PyDict_SetItem(self._sessions, key, session)
        else:
            self._touch(session, now_ms)
        return 0


# The session.

cdef inline int64_t next_epoch(int64_t epoch) noexcept:
    return 1 if epoch == INT32_MAX else epoch + 1


cdef FetchPartitionState find_partition(FetchSessionState session, FetchFields* asked):
    """The partition that a request is about, if no other of the session may have news.

    Where the request names none, what it asks of the partition is what the session knows.
    """
    cdef Py_ssize_t at = 0
    cdef PyObject* found = NULL
    cdef FetchPartitionState partition
    if len(session.changed) > 1:
        return None
    if not PyDict_Next(session.changed, &at, &found, NULL):
        if asked.topic_id == NULL:
            return None
        topic_id = PyBytes_FromStringAndSize(<const char*>asked.topic_id, TOPIC_ID_SIZE)
        # A `Uuid` equals its bytes, and has their hash.
        return session.partitions.get((topic_id, asked.index))
    partition = <object>found
    if asked.topic_id == NULL:
        asked.leader_epoch = partition.current_leader_epoch
        asked.offset = partition.fetch_offset
        asked.last_epoch = partition.last_fetched_epoch
        asked.partition_bytes_max = partition.partition_max_bytes
    elif (partition.index != asked.index
            or memcmp(topic_bytes(partition), asked.topic_id, TOPIC_ID_SIZE) != 0):
        return None
    return partition


cdef const uint8_t* topic_bytes(FetchPartitionState partition) except NULL:
    """The id of the topic. A `Uuid` is a kind of bytes; a session with ids has nothing else."""
    topic = partition.topic
    if not PyBytes_Check(topic) or PyBytes_GET_SIZE(topic) != TOPIC_ID_SIZE:
        raise TypeError("a session with topic ids has a partition of a topic without one")
    return <const uint8_t*>PyBytes_AS_STRING(topic)


cdef LogTail readable_tail(FetchPartitionState asked_of, const FetchFields* asked):
    """The log of a partition that this broker leads, if no epoch is to be compared."""
    cdef PartitionState partition = asked_of.partition
    if (partition is None or not partition.is_leader or asked.last_epoch != UNKNOWN
            or (asked.leader_epoch != UNKNOWN and asked.leader_epoch != partition.leader_epoch)):
        return None
    return partition.tail


cdef bint is_at_end(FetchPartitionState asked_of, const FetchFields* asked) except -1:
    """Whether a fetch is for the very next record that a consumer may get."""
    cdef Span span
    cdef LogTail tail = readable_tail(asked_of, asked)
    return tail is not None and asked.offset == read_bounds(
        tail, asked.isolation_level == COMMITTED, &span)


cdef int note_records(
        FetchSessionState session, FetchPartitionState partition, const Span* span) except -1:
    """A partition has given records: what `FetchSession.note` does with them."""
    partition.sent_high_watermark = span.high_watermark
    partition.sent_log_start_offset = span.log_start_offset
    session.last_rank += 1
    partition.rank = session.last_rank
    PyDict_SetItem(session.changed, partition, None)
    return 0


# The frames.

cdef inline int64_t int32_at(const uint8_t* p) noexcept nogil:
    return <int32_t>ms_read_big_endian(p, 4)


cdef bint read_request(const uint8_t* p, int64_t size, FetchFields* asked) noexcept nogil:
    """Whether a frame behind its size is a consumer's fetch of one partition or none.

    Nothing is read behind the frame, whatever the lengths in it say.
    """
    cdef int version
    cdef int64_t body, client_id_length
    if size < HEADER_BYTES or ms_read_big_endian(p, 2) != FETCH:
        return False
    version = <int16_t>ms_read_big_endian(p + 2, 2)
    asked.correlation_id = int32_at(p + 4)
    client_id_length = <int16_t>ms_read_big_endian(p + 8, 2)
    body = HEADER_BYTES + max(client_id_length, 0)
    # One byte 0, no tagged fields, ends nearly every header.
    if (client_id_length < -1 or not VERSION_MIN <= version <= VERSION_MAX or body >= size
            or p[body] != 0):
        return False
    p += body + 1
    size -= body + 1
    if version < REPLICA_STATE_SINCE:
        if size < 4 or int32_at(p) != -1:
            return False
        p += 4
        size -= 4
    return read_body(p, size, asked)


cdef bint read_body(const uint8_t* p, int64_t size, FetchFields* asked) noexcept nogil:
    """The same for a body, behind the replica id of older versions."""
    if size < HEAD_SIZE + END_SIZE or ms_read_big_endian(p + size - END_SIZE, 3) != 0x010100:
        return False
    asked.max_wait_ms = int32_at(p)
    asked.min_bytes = int32_at(p + 4)
    asked.max_bytes = int32_at(p + 8)
    asked.isolation_level = <signed char>p[12]
    asked.session_id = int32_at(p + 13)
    asked.session_epoch = int32_at(p + 17)
    asked.topic_id = NULL
    if not 0 <= asked.isolation_level <= COMMITTED:
        return False
    if p[HEAD_SIZE - 1] == 1:
        return size == HEAD_SIZE + END_SIZE
    if p[HEAD_SIZE - 1] != 2 or size != HEAD_SIZE + PARTITION_SIZE + END_SIZE:
        return False
    p += HEAD_SIZE
    if p[TOPIC_ID_SIZE] != 2 or p[TOPIC_ID_SIZE + 33] or p[TOPIC_ID_SIZE + 34]:
        return False
    asked.topic_id = p
    p += TOPIC_ID_SIZE + 1
    asked.index = int32_at(p)
    asked.leader_epoch = int32_at(p + 4)
    asked.offset = ms_read_big_endian(p + 8, 8)
    asked.last_epoch = int32_at(p + 16)
    asked.log_start_offset = ms_read_big_endian(p + 20, 8)
    asked.partition_bytes_max = int32_at(p + 28)
    return True


cdef int write_answer(
        ms_answer* answer, FetchPartitionState partition, const FetchFields* asked,
        const Span* span) except -1:
    """The bytes before and behind the records, and where the records are."""
    cdef uint8_t* p = ms_write_big_endian(answer.head + SIZE_BYTES, asked.correlation_id, 4)
    # No tags of the header, no throttle time, no error.
    p = ms_write_big_endian(p, 0, 7)
    p = ms_write_big_endian(p, asked.session_id, 4)
    p = ms_write_big_endian(p, 2, 1)
    memcpy(p, topic_bytes(partition), TOPIC_ID_SIZE)
    p = ms_write_big_endian(p + TOPIC_ID_SIZE, 2, 1)
    p = ms_write_big_endian(p, partition.index, 4)
    p = ms_write_big_endian(p, 0, 2)
    p = ms_write_big_endian(p, span.high_watermark, 8)
    p = ms_write_big_endian(p, span.last_stable_offset, 8)
    p = ms_write_big_endian(p, span.log_start_offset, 8)
    # No aborted transactions: null, or an empty list for read_committed. No preferred replica.
    p = ms_write_big_endian(p, asked.isolation_level == COMMITTED, 1)
    p = ms_write_big_endian(p, -1, 4)
    p = ms_write_uvarint(p, span.length + 1)
    answer.head_size = p - answer.head
    memset(answer.tail, 0, ANSWER_END_SIZE)
    answer.tail_size = ANSWER_END_SIZE
    ms_write_big_endian(
        answer.head, answer.head_size - SIZE_BYTES + span.length + ANSWER_END_SIZE, 4)
    answer.descriptor = span.descriptor
    answer.position = span.position
    answer.length = span.length
    return 0
