"""The common shape of Fetch for the other extension modules."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    TOPIC_IDS_SINCE = 13
    SINGLES_UNTIL = 18
    TOPIC_ID_SIZE = 16
    # An answer up to its records, with the five bytes that their size takes at most.
    ANSWER_HEAD_SIZE_MAX = 77
    # No tagged fields of the partition, of the topic, of the whole.
    ANSWER_END_SIZE = 3

# Without a topic id no partition is named, and what is behind it has no value.
cdef struct FetchSingle:
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

cdef struct FetchAnswer:
    int64_t correlation_id
    int64_t session_id
    int64_t index
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    bint has_aborted
    int64_t length

cdef bint read_request(
    const uint8_t* p, int64_t size, int version, FetchSingle* single) noexcept nogil
cdef int64_t write_head(
    uint8_t* start, const FetchAnswer* answer, const uint8_t* topic_id) noexcept nogil
