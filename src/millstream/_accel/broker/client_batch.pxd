"""A client's batch for the other extension modules."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    NO_PRODUCER_ID = -1
    # A batch of this size takes long enough to sum or write that other threads gain by running.
    RELEASE_GIL_SIZE = 128 * 1024

cdef struct BatchFields:
    # Of a compressed batch the records were not looked at.
    bint is_compressed
    int64_t last_offset_delta
    int64_t max_timestamp
    int64_t producer_id
    int64_t producer_epoch
    int64_t base_sequence

cdef bint inspect(
    const uint8_t* batch, int64_t size, int64_t size_max, int64_t timestamp_max,
    BatchFields* fields) noexcept
cdef void number(uint8_t* batch, int64_t base_offset, int64_t leader_epoch) noexcept nogil
