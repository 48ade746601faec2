"""The fields of a ConsumerRecord, for the module that fills them in."""

from libc.stdint cimport int8_t, int32_t, int64_t

cdef class ConsumerRecord:
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly object key
    cdef readonly object value
    cdef readonly object headers
    cdef readonly int8_t timestamp_type

cdef ConsumerRecord new_record()
