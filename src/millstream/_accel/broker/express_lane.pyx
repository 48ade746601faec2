# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""The short way into a log; twin of `millstream.storage.express_lane`.

It takes the same batches and leaves the same log behind, in two steps: `stage` checks and numbers a
batch, `commit` writes all that was staged with one call. Between them the log's objects in Python
are not changed, so a write that fails leaves them as they were. All lasting state stays there.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, int64_t, uint8_t

from millstream._accel.broker.client_batch cimport (
    NO_PRODUCER_ID, BatchFields, inspect, number)
from millstream._accel.broker.files cimport iovec
from millstream._accel.broker.index_entries cimport add_entries
from millstream._accel.broker.log_writers cimport ms_write, ms_write_now
from millstream._accel.broker.slots cimport ms_slot_get, ms_slot_offset, ms_slot_set

import os

cdef enum:
    CAPACITY_MIN = 8

cdef struct Slots:
    Py_ssize_t log_end_offset
    Py_ssize_t dirty_since_ms
    Py_ssize_t segments
    Py_ssize_t segment_list
    Py_ssize_t size
    Py_ssize_t size_max
    Py_ssize_t base_offset
    Py_ssize_t indexes
    Py_ssize_t first_timestamp
    Py_ssize_t age_max_ms
    Py_ssize_t created_ms
    Py_ssize_t is_ready
    Py_ssize_t file
    Py_ssize_t is_changed
    Py_ssize_t is_full
    Py_ssize_t largest_timestamp
    Py_ssize_t largest_offset
    Py_ssize_t bytes_since_entry
    Py_ssize_t interval_bytes
    Py_ssize_t end_offset
    Py_ssize_t by_id
    Py_ssize_t verifications
    Py_ssize_t by_producer
    Py_ssize_t batches
    Py_ssize_t producer_epoch
    Py_ssize_t transaction_first_offset
    Py_ssize_t entries
    Py_ssize_t is_dirty
    Py_ssize_t descriptor
    Py_ssize_t headroom_end

cdef Slots slots
cdef object disk_file = None
cdef object limits_of = None
cdef object to_storage_error = None


def bind(
        local, segments, segment, indexes, producers, entry, verifications, epochs, file,
        limits_of_config, storage_error):
    """Learn where the classes of `millstream.storage` keep what is used here, and two functions."""
    global disk_file, limits_of, to_storage_error
    slots.log_end_offset = ms_slot_offset(local, "log_end_offset")
    slots.dirty_since_ms = ms_slot_offset(local, "dirty_since_ms")
    slots.segments = ms_slot_offset(local, "segments")
    slots.segment_list = ms_slot_offset(segments, "_segments")
    slots.size = ms_slot_offset(segment, "size")
    slots.size_max = ms_slot_offset(segment, "_size_max")
    slots.base_offset = ms_slot_offset(segment, "base_offset")
    slots.indexes = ms_slot_offset(segment, "indexes")
    slots.first_timestamp = ms_slot_offset(segment, "_first_timestamp")
    slots.age_max_ms = ms_slot_offset(segment, "_age_max_ms")
    slots.created_ms = ms_slot_offset(segment, "created_ms")
    slots.is_ready = ms_slot_offset(segment, "_is_ready")
    slots.file = ms_slot_offset(segment, "_file")
    slots.is_changed = ms_slot_offset(segment, "is_changed")
    slots.is_full = ms_slot_offset(indexes, "is_full")
    slots.largest_timestamp = ms_slot_offset(indexes, "largest_timestamp")
    slots.largest_offset = ms_slot_offset(indexes, "largest_offset")
    slots.bytes_since_entry = ms_slot_offset(indexes, "_bytes_since_entry")
    slots.interval_bytes = ms_slot_offset(indexes, "interval_bytes")
    slots.end_offset = ms_slot_offset(producers, "_end_offset")
    slots.by_id = ms_slot_offset(producers, "_producers")
    slots.verifications = ms_slot_offset(producers, "_verifications")
    slots.by_producer = ms_slot_offset(verifications, "_by_producer")
    slots.batches = ms_slot_offset(entry, "batches")
    slots.producer_epoch = ms_slot_offset(entry, "epoch")
    slots.transaction_first_offset = ms_slot_offset(entry, "transaction_first_offset")
    slots.entries = ms_slot_offset(epochs, "_entries")
    slots.is_dirty = ms_slot_offset(epochs, "is_dirty")
    slots.descriptor = ms_slot_offset(file, "_descriptor")
    slots.headroom_end = ms_slot_offset(file, "headroom_end")
    disk_file = file
    limits_of = limits_of_config
    to_storage_error = storage_error


cdef inline object slot(object owner, Py_ssize_t offset):
    return <object>ms_slot_get(owner, offset)


cdef inline int64_t number_in(object owner, Py_ssize_t offset) except? -1:
    return <int64_t>slot(owner, offset)


cdef inline int64_t saturated_sum(int64_t a, int64_t b) noexcept:
    """Of which the second is not negative."""
    return a + b if a <= INT64_MAX - b else INT64_MAX


cdef inline int64_t sequence_after(int64_t sequence, int64_t count) noexcept:
    """Sequences go up to INT32_MAX and begin again at 0."""
    return (sequence + count) & INT32_MAX


cdef class ExpressLane:
    """Appends what needs no second look."""

    def __cinit__(self):
        self._batches = NULL
        self._parts = NULL
        self._count = self._capacity = 0
        self.place = -1

    def __init__(self, local, producers, epochs):
        self._local = local
        self._producers = producers
        self._epochs = epochs
        self.update_config(local.config)

    def __dealloc__(self):
        PyMem_Free(self._batches)
        PyMem_Free(self._parts)

    def update_config(self, config):
        """Take new settings."""
        self._future_max_ms, self._size_max, self._own_size_max = limits_of(config)

    def append(self, records, leader_epoch, now_ms, *, is_own=False):
        """The batch's offset, or None if it has to go the long way; then nothing has changed."""
        cdef Py_buffer view
        cdef int64_t base_offset
        try:
            PyObject_GetBuffer(records, &view, PyBUF_WRITABLE)
        except BufferError:
            return None
        try:
            base_offset = self.stage(
                <uint8_t*>view.buf, view.len, leader_epoch, now_ms, is_own, False)
            if base_offset < 0:
                return None
            self.commit(NULL)
            return base_offset
        finally:
            PyBuffer_Release(&view)

    cdef int64_t stage(
            self, uint8_t* batch, int64_t size, int64_t leader_epoch, int64_t now_ms,
            bint is_own, bint is_known_intact) except -3:
        """Check and number a batch, which must stay where it is until `commit`: its offset.

        LANE_DECLINED: it has to go the long way. LANE_BUSY: `commit` has to come first.
        """
        cdef BatchFields fields
        cdef int64_t last_offset, base_offset
        if self._count == 0 and not self._begin(now_ms):
            return LANE_DECLINED
        if leader_epoch != self._epoch or not inspect(
                batch, size, self._own_size_max if is_own else self._size_max,
                saturated_sum(now_ms, self._future_max_ms), is_known_intact, &fields):
            return LANE_DECLINED
        base_offset = self._next_offset
        last_offset = base_offset + fields.last_offset_delta
        # Whatever would make `LogSegment.should_roll` say yes, or have to look into the log.
        if (size > self._position_max - self._next_position
                or self._count >= self._count_max
                or last_offset > self._offset_max
                or fields.max_timestamp > self._timestamp_max):
            return LANE_BUSY if self._count else LANE_DECLINED
        if fields.producer_id != NO_PRODUCER_ID and not self._is_next(&fields):
            return LANE_DECLINED
        self._reserve()
        number(batch, base_offset, leader_epoch)
        self._parts[self._count].iov_base = batch
        self._parts[self._count].iov_len = size
        self._batches[self._count].size = size
        self._batches[self._count].last_offset = last_offset
        self._batches[self._count].fields = fields
        self._count += 1
        self._next_position += size
        self._next_offset = last_offset + 1
        return base_offset

    cdef bint _begin(self, int64_t now_ms) except -1:
        """Have a look at the log. False if an append has to go the long way."""
        cdef list entries = <list>slot(self._epochs, slots.entries)
        cdef list segments
        cdef object segment, first
        cdef int64_t age_max_ms
        if slot(self._epochs, slots.is_dirty) is not False or not entries:
            return False
        self._now_ms = now_ms
        segments = <list>slot(slot(self._local, slots.segments), slots.segment_list)
        segment = segments[len(segments) - 1]
        if slot(segment, slots.is_ready) is not True or slot(segment, slots.file) is None:
            self._make_ready(segment)
        self._indexes = slot(segment, slots.indexes)
        if slot(self._indexes, slots.is_full) is not False:
            return False
        self._segment = segment
        self._epoch = (<tuple>entries[len(entries) - 1])[0]
        self._position = self._next_position = number_in(segment, slots.size)
        self._position_max = number_in(segment, slots.size_max)
        self._next_offset = number_in(self._local, slots.log_end_offset)
        self._offset_max = saturated_sum(number_in(segment, slots.base_offset), INT32_MAX)
        age_max_ms = number_in(segment, slots.age_max_ms)
        self._timestamp_max = INT64_MAX
        # In an empty segment the age of the second batch depends on the first one.
        self._count_max = 1 if self._position == 0 else INT32_MAX
        if self._position == 0:
            return True
        first = slot(segment, slots.first_timestamp)
        if first is None:
            self._make_ready(segment)
            first = slot(segment, slots.first_timestamp)
        if <int64_t>first >= 0:
            self._timestamp_max = saturated_sum(<int64_t>first, max(age_max_ms, 0))
            return age_max_ms >= 0
        return now_ms - number_in(segment, slots.created_ms) <= age_max_ms

    cdef bint _is_next(self, BatchFields* fields) except -1:
        """Whether a producer's batch simply follows its last one, be that staged or in the log."""
        cdef BatchFields* staged
        cdef int i
        for i in range(self._count - 1, -1, -1):
            staged = &self._batches[i].fields
            if staged.producer_id == fields.producer_id:
                return (
                    staged.producer_epoch == fields.producer_epoch
                    and sequence_after(staged.base_sequence, staged.last_offset_delta + 1)
                    == fields.base_sequence
                )
        return self._is_next_in_log(fields)

    cdef bint _is_next_in_log(self, BatchFields* fields) except -1:
        """As `ProducerStateManager.is_next`."""
        cdef object batch, batches, entry
        cdef int64_t first, last
        cdef PyObject* found = PyDict_GetItem(
            <dict>slot(self._producers, slots.by_id), fields.producer_id)
        if found == NULL or <dict>slot(
                slot(self._producers, slots.verifications), slots.by_producer):
            return False
        entry = <object>found
        batches = slot(entry, slots.batches)
        if (number_in(entry, slots.producer_epoch) != fields.producer_epoch
                or slot(entry, slots.transaction_first_offset) is not None):
            return False
        last = (<tuple>batches[len(batches) - 1])[0] if batches else -1
        if sequence_after(last, 1) != fields.base_sequence:
            return False
        for batch in batches:
            last = (<tuple>batch)[0]
            first = sequence_after(last, -<int64_t>(<tuple>batch)[2])
            if first == fields.base_sequence and last == sequence_after(
                    first, fields.last_offset_delta):
                return False
        return True

    cdef int _make_ready(self, segment) except -1:
        """The first use of a segment opens its files and reads the time of its first batch."""
        try:
            segment.open_file()
            segment.ready_indexes()
            segment.age_ms(0, self._now_ms)
        except OSError as cause:
            raise to_storage_error(self._local.directory, "appending", cause) from cause
        return 0

    cdef int _reserve(self) except -1:
        """Make room for one more batch."""
        cdef int capacity = max(CAPACITY_MIN, 2 * self._capacity)
        cdef void* memory
        if self._count < self._capacity:
            return 0
        memory = PyMem_Realloc(self._batches, capacity * sizeof(StagedBatch))
        if memory == NULL:
            raise MemoryError()
        self._batches = <StagedBatch*>memory
        memory = PyMem_Realloc(self._parts, capacity * sizeof(iovec))
        if memory == NULL:
            raise MemoryError()
        self._parts = <iovec*>memory
        self._capacity = capacity
        return 0

    cdef bint plan(self, ms_write* write) except -1:
        """What `commit` is to write; False if there is nothing, or no file of the system's."""
        cdef object file = None if self._count == 0 else slot(self._segment, slots.file)
        if not isinstance(file, disk_file):
            return False
        if self._next_position > number_in(file, slots.headroom_end):
            file.make_headroom(self._position, self._next_position)
        write.descriptor = number_in(file, slots.descriptor)
        write.parts = self._parts
        write.count = self._count
        write.position = self._position
        return True

    cdef int commit(self, ms_write* written) except -1:
        """Write what was staged, unless it was, then let the log know. All or nothing."""
        cdef int count = self._count
        if count == 0:
            return 0
        try:
            self._write(written)
            self._note_batches()
        finally:
            self._count = 0
            self._segment = self._indexes = None
        ms_slot_set(self._local, slots.log_end_offset, self._next_offset)
        if self._now_ms < number_in(self._local, slots.dirty_since_ms):
            ms_slot_set(self._local, slots.dirty_since_ms, self._now_ms)
        self._record_producers(count)
        ms_slot_set(self._producers, slots.end_offset, self._next_offset)
        return 0

    cdef int _record_producers(self, int count) except -1:
        cdef StagedBatch* batch
        cdef int i
        for i in range(count):
            batch = &self._batches[i]
            if batch.fields.producer_id != NO_PRODUCER_ID:
                self._producers.record_next(
                    batch.fields.producer_id, batch.fields.last_offset_delta, batch.last_offset,
                    batch.fields.max_timestamp)
        return 0

    cdef int _write(self, ms_write* written) except -1:
        cdef object file = slot(self._segment, slots.file)
        cdef ms_write write
        try:
            if written == NULL and self.plan(&write):
                written = &write
                with nogil:
                    ms_write_now(written)
            if written == NULL:
                file.pwritev(self._views(), self._position)
            elif written.error:
                raise OSError(written.error, os.strerror(written.error))
        except OSError as cause:
            # What is in the file is beyond `size`: never read, overwritten by the next append.
            try:
                file.truncate(self._position)
            except OSError:
                pass
            raise to_storage_error(self._local.directory, "appending", cause) from cause
        ms_slot_set(self._segment, slots.is_changed, True)
        return 0

    cdef list _views(self):
        """The parts for a file that is none of the system's."""
        cdef int i
        return [
            (<char*>self._parts[i].iov_base)[:self._parts[i].iov_len] for i in range(self._count)]

    cdef int _note_batches(self) except -1:
        """As `SegmentIndexes.note_batch` and the end of `LogSegment.append` do."""
        cdef object indexes = self._indexes
        cdef StagedBatch* batch
        cdef int i
        cdef int64_t position = self._position
        cdef int64_t largest = number_in(indexes, slots.largest_timestamp)
        cdef int64_t since_entry = number_in(indexes, slots.bytes_since_entry)
        cdef int64_t interval = number_in(indexes, slots.interval_bytes)
        for i in range(self._count):
            batch = &self._batches[i]
            if batch.fields.max_timestamp > largest:
                largest = batch.fields.max_timestamp
                ms_slot_set(indexes, slots.largest_timestamp, largest)
                ms_slot_set(indexes, slots.largest_offset, batch.last_offset)
            if since_entry > interval:
                add_entries(indexes, batch.last_offset, position)
                since_entry = 0
            since_entry += batch.size
            position += batch.size
        ms_slot_set(indexes, slots.bytes_since_entry, since_entry)
        ms_slot_set(self._segment, slots.size, position)
        return 0
