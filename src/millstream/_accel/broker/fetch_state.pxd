"""The fields of fetch sessions for the other extension modules; see fetch_state.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.partition_state cimport PartitionState

cdef class SessionWatcher:
    cdef readonly dict changed

cdef class FetchSessionState(SessionWatcher):
    cdef readonly int64_t id
    cdef public int64_t epoch
    cdef readonly bint is_follower
    cdef readonly bint uses_topic_ids
    cdef readonly int64_t created_ms
    cdef public int64_t last_used_ms
    cdef public int64_t last_rank
    cdef public int64_t ranked_size
    cdef public bint ranked_as_established
    cdef readonly dict partitions

cdef class FetchPartitionState:
    cdef readonly object topic
    cdef readonly int64_t index
    cdef public int64_t fetch_offset
    cdef public int64_t partition_max_bytes
    cdef public int64_t current_leader_epoch
    cdef public int64_t last_fetched_epoch
    cdef public int64_t log_start_offset
    cdef public PartitionState partition
    cdef public object start
    cdef public SessionWatcher watcher
    cdef public int64_t rank
    cdef public int64_t sent_high_watermark
    cdef public int64_t sent_log_start_offset
