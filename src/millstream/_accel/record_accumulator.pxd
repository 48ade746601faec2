"""The accumulator's lock, queues and handles, for the lanes that send without the GIL."""

from libc.stdint cimport int64_t

from millstream._accel.batch_writer cimport BatchWriter

cdef extern from "accumulator.h" nogil:
    ctypedef struct ms_gate:
        bint is_held

    void ms_gate_init(ms_gate* gate)
    void ms_gate_end(ms_gate* gate)
    void ms_gate_lock(ms_gate* gate)
    void ms_gate_unlock(ms_gate* gate)
    int64_t ms_wall_ms()


cdef class AccumulatorLock:
    cdef ms_gate gate
    cdef object _threads


cdef class TopicQueues:
    cdef public object name
    cdef public int64_t count
    cdef public list partitions
    cdef public object available
    cdef public int64_t sticky
    cdef public int64_t sticky_bytes


cdef class PartitionQueue:
    cdef public TopicQueues topic
    cdef public int64_t index
    cdef public object batches
    cdef public int64_t expected_size
    cdef public object lane
    cdef object _open
    cdef BatchWriter _writer
    cdef list _callbacks


cdef class Delivery:
    cdef object _batch
    cdef int64_t _index
    cdef int64_t _timestamp


cdef class RecordAppender:
    cdef dict _known
    cdef AccumulatorLock _gate
    cdef int64_t _batch_bytes
    cdef int64_t _record_bytes_max
    cdef bint _spreads_keys
    cdef object _append_slowly

    cdef Delivery _try(
        self, topic, int64_t partition, key, value, headers, timestamp, on_delivery)
