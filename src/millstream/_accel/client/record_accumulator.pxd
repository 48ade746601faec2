"""Nothing for others: this keeps the fields of the fast way together."""

from libc.stdint cimport int64_t

from millstream._accel.client.delivery cimport Delivery
from millstream._accel.client.produce_sink cimport SinkState


cdef class RecordAppender:
    cdef dict _known
    cdef SinkState _sink
    cdef int64_t _batch_bytes
    cdef int64_t _record_bytes_max
    cdef bint _spreads_keys
    cdef object _append_slowly

    cdef Delivery _try(
        self, topic, int64_t partition, key, value, headers, timestamp, on_delivery)


cdef class RecordSender:
    cdef RecordAppender _appender
