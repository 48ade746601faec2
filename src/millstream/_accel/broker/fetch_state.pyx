# cython: language_level=3, freethreading_compatible=True
"""The fields of fetch sessions and of the partitions in them, for Python and for `fast_fetch`.

`millstream.replica.fetch_state` has the plain version, says what each field is for, and chooses.
Only the thread that owns the sessions touches them, under the GIL.
"""

from libc.stdint cimport int64_t

cdef enum:
    UNKNOWN = -1


cdef class SessionWatcher:
    """Is told of partitions that change."""

    def __cinit__(self, *_, **__):
        self.changed = {}


cdef class FetchSessionState(SessionWatcher):
    """What a session knows besides what has changed."""

    def __cinit__(self, *_, **__):
        self.partitions = {}

    def __init__(
            self, int64_t session_id, int64_t epoch, *, bint is_follower, bint uses_topic_ids,
            int64_t now_ms):
        self.id = session_id
        self.epoch = epoch
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms


cdef class FetchPartitionState:
    """What a fetch asks of one partition, and what a session has told of it."""

    def __init__(
            self, topic, int64_t index, int64_t fetch_offset, int64_t partition_max_bytes,
            int64_t current_leader_epoch=UNKNOWN, int64_t last_fetched_epoch=UNKNOWN,
            int64_t log_start_offset=UNKNOWN):
        self.topic = topic
        self.index = index
        self.fetch_offset = fetch_offset
        self.partition_max_bytes = partition_max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = self.sent_log_start_offset = UNKNOWN
