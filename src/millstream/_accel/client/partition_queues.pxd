"""The queues and their lock, for the accumulator that appends to them."""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from millstream._accel.codec.batch cimport ms_batch
from millstream._accel.client.client_selector cimport SelectorLoop, ms_driver, ms_selector

cdef extern from "client/produce_flight.h" nogil:
    enum:
        MS_EXPRESS_MAX
        MS_FLIGHT_SLOTS_MAX

    ctypedef struct ms_gate:
        bint is_held
        bint is_awaited

    ctypedef struct ms_slot:
        ms_slot* next
        ms_batch* records
        int* exports
        int64_t created_ms
        int64_t sequence
        int holders
        PyObject* queue
        PyObject* batch
        PyObject* writer

    ctypedef struct ms_lane:
        int64_t connection_id
        int64_t producer_id
        int64_t producer_epoch
        int64_t sequence
        int version
        int64_t topic
        int64_t head_size
        uint8_t* head

    ctypedef struct ms_part:
        ms_slot* first
        ms_batch* open
        int32_t index
        bint is_express
        ms_lane lane

    ctypedef struct ms_flight:
        ms_flight* next
        int32_t correlation_id
        int version
        int slot_count
        ms_slot** slots

    ctypedef struct ms_lanes:
        ms_driver driver
        ms_gate gate
        ms_selector* selector
        int64_t linger_ms
        int64_t request_bytes_max
        int in_flight_max
        bint hurries
        int64_t loop_due_ms
        ms_flight* sent

    ctypedef struct ms_produced:
        int32_t partition
        int64_t base_offset
        int64_t log_append_time

    int64_t ms_wall_ms()
    int64_t ms_read_produced(
        const uint8_t* frame, int64_t size, int version, ms_produced* all, int64_t room)
    void ms_gate_lock(ms_gate* gate)
    void ms_gate_unlock(ms_gate* gate)
    void ms_slot_unpin(ms_slot* slot)
    void ms_part_init(ms_part* part, int32_t index)
    void ms_part_add(ms_part* part, ms_slot* slot)
    ms_slot* ms_part_remove(ms_part* part, PyObject* batch)
    void ms_part_close(ms_part* part)
    void ms_part_activate(ms_lanes* lanes, ms_part* part)
    void ms_part_deactivate(ms_lanes* lanes, ms_part* part)
    void ms_lanes_init(
        ms_lanes* lanes, uint32_t (*checksum)(uint32_t, const uint8_t*, size_t) noexcept nogil)
    void ms_lanes_end(ms_lanes* lanes)
    void ms_lanes_kick(ms_lanes* lanes)
    void ms_lanes_hurry(ms_lanes* lanes)
    void ms_lanes_keep(
        ms_lanes* lanes, const ms_part* part, const PyObject* batch, bint is_first)
    void ms_lanes_send_kept(ms_lanes* lanes)
    void ms_lanes_hasten(
        ms_lanes* lanes, const ms_part* part, const PyObject* batch, int64_t correlation_id)
    bint ms_lanes_unshut(ms_lanes* lanes, int64_t connection_id)
    ms_flight* ms_lanes_take_sent(ms_lanes* lanes)


cdef class AccumulatorLock:
    cdef ms_lanes lanes
    cdef int process
    cdef readonly object dispatched
    cdef object _threads
    cdef object _haste
    cdef bint _awaits_all
    cdef SelectorLoop _loop
    cdef dict _express
    cdef bint _has_news
    cdef bint _has_begun
    cdef bint _is_full
    cdef bint _has_alarm

    cdef int _note(self, ms_flight* flights) except -1


cdef class TopicQueues:
    cdef public object name
    cdef readonly AccumulatorLock lock
    cdef public int64_t count
    cdef public list partitions
    cdef public object available
    cdef public int64_t sticky
    cdef public int64_t sticky_bytes


cdef class PartitionQueue:
    cdef ms_part part
    cdef readonly TopicQueues topic
    cdef readonly int64_t index
    cdef readonly object batches
    cdef public int64_t expected_size
    cdef public object lane
    cdef object _open
    cdef list told

    cdef ms_lanes* _enter(self) noexcept
    cdef void _leave(self, ms_lanes* lanes, bint is_news) noexcept
    cdef int _remove(self, batch) except -1
    cdef int _forget(self, batch) except -1
