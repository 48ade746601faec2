"""The common shape of Produce for the other extension modules."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    FLEXIBLE_SINCE = 9
    TOPIC_IDS_SINCE = 13

# Where things are in the frame, but for the first two and the partition.
cdef struct Single:
    int64_t acks
    int64_t timeout_ms
    int64_t topic
    int64_t topic_size
    int64_t partition
    int64_t start
    int64_t stop

cdef bint read_request(
    const uint8_t* p, int64_t at, int64_t end, int version, Single* single) noexcept nogil
cdef int64_t answer_size(int version, int64_t topic_size) noexcept nogil
cdef uint8_t* write_answer(
    uint8_t* p, int version, int64_t correlation_id, const uint8_t* topic, int64_t topic_size,
    int64_t partition, int64_t base_offset, int64_t append_time_ms,
    int64_t log_start) noexcept nogil
cdef void write_error(uint8_t* error_at, int64_t code) noexcept nogil
