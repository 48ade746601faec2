"""The queues of a producer and their sink, for the accumulator that appends to them."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from millstream._accel.codec.batch cimport ms_batch
from millstream._accel.client.client_selector cimport SelectorLoop, ms_driver, ms_selector

cdef extern from "clocks.h" nogil:
    int64_t ms_wall_ms()

cdef extern from "client/produce_answer.h" nogil:
    ctypedef struct ms_produced:
        int32_t partition
        int64_t base_offset
        int64_t log_append_time

    int64_t ms_read_produced(
        const uint8_t* frame, int64_t size, int version, ms_produced* all, int64_t room)

cdef extern from "client/sink.h" nogil:
    enum:
        MS_DRIVER_IN_FLIGHT_MAX
        MS_REQUEST_BATCHES_MAX

    ctypedef struct ms_entry:
        ms_entry* next
        ms_batch* records
        int* exports
        int64_t sealed_size
        int64_t created_ms
        int64_t not_before_ms
        bint is_repeat
        int64_t producer_id
        int64_t producer_epoch
        int64_t sequence
        int holders
        PyObject* queue
        PyObject* batch
        PyObject* writer

    ctypedef struct ms_route:
        int64_t connection_id
        int version
        int attributes
        int64_t topic
        int64_t head_size
        uint8_t* head

    ctypedef struct ms_partition:
        ms_entry* first
        ms_batch* open
        int64_t count
        int32_t index
        int32_t allowance
        int64_t producer_id
        int64_t producer_epoch
        int64_t sequence
        ms_route route

    ctypedef struct ms_request:
        ms_request* next
        int32_t correlation_id
        int version
        int count
        ms_entry** entries

    ctypedef struct ms_sink:
        ms_driver driver
        bint is_held
        bint is_awaited
        bint is_sender_near
        ms_selector* selector
        int64_t linger_ms
        int64_t request_bytes_max
        int in_flight_max
        bint expects_answers
        bint is_flushing
        int64_t loop_due_ms
        ms_request* sent

    void ms_sink_lock(ms_sink* sink)
    void ms_sink_unlock(ms_sink* sink)
    void ms_sink_init(
        ms_sink* sink, uint32_t (*checksum)(uint32_t, const uint8_t*, size_t) noexcept nogil)
    void ms_sink_end(ms_sink* sink)
    void ms_partition_init(ms_partition* partition, int32_t index)
    void ms_partition_add(ms_partition* partition, ms_entry* entry)
    void ms_partition_put_back(ms_partition* partition, ms_entry* entry, int64_t place)
    ms_entry* ms_partition_remove(ms_partition* partition, const PyObject* batch)
    void ms_partition_close(ms_partition* partition)
    void ms_partition_activate(ms_sink* sink, ms_partition* partition)
    void ms_partition_deactivate(ms_sink* sink, ms_partition* partition)
    void ms_entry_unpin(ms_entry* entry)
    ms_request* ms_sink_take(
        ms_sink* sink, int64_t now_ms, int64_t connection_id, int64_t* due_ms)
    ms_request* ms_sink_take_sent(ms_sink* sink)
    void ms_sink_send(ms_sink* sink)
    void ms_sink_wake_loop(ms_sink* sink)
    bint ms_sink_resume(ms_sink* sink, int64_t connection_id)


cdef class SinkState:
    cdef ms_sink sink
    cdef int process


cdef class QueueLock:
    cdef SinkState _state
    cdef object _threads


cdef class ProduceSink:
    cdef SinkState state
    cdef readonly QueueLock lock
    cdef SelectorLoop _loop
    cdef object _wake
    cdef list _ungranted
    cdef bint _wants_sender
    cdef bint _wants_send
    cdef bint _wants_loop

    cdef list _claim(self, ms_request* request)


cdef class TopicQueues:
    cdef public object name
    cdef readonly ProduceSink sink
    cdef public int64_t count
    cdef public list partitions
    cdef public object available
    cdef public int64_t sticky
    cdef public int64_t sticky_bytes


cdef class PartitionQueue:
    cdef ms_partition partition
    cdef readonly TopicQueues topic
    cdef readonly int64_t index
    cdef public int64_t expected_size
    cdef public object state
    cdef object _open
    cdef list told

    cdef ms_sink* _enter(self) noexcept
    cdef void _leave(self, ms_sink* sink) noexcept
    cdef ms_entry* _entry(self, batch) except NULL
