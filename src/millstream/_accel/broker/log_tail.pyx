# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Where a log grows: its offsets, and the one way by which batches get to its end.

`UnifiedLog` has a `LogTail`, and every append goes through it; `millstream.storage.log.log_tail` is
the plain version. Batches that were checked in full are given to `append` and `append_batches`. The
fast path prepares clients' batches, which checks and numbers them, and appends what it has prepared
with one write. In between the log is not changed, so a write that fails leaves it as it was.
"""

from cpython.buffer cimport PyBUF_READ, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int64_t, uint8_t

from millstream._accel.broker.client_batch cimport (
    NO_PRODUCER_ID, BatchFields, inspect, number)
from millstream._accel.broker.files cimport iovec
from millstream._accel.broker.log_state cimport (
    EpochState, ProducersState, ProducerState, SegmentList, SegmentState, WakeState,
    sequence_after)

cdef enum:
    CAPACITY_MIN = 8


cdef inline int64_t saturated_sum(int64_t a, int64_t b) noexcept:
    """Of which the second is not negative."""
    return a + b if a <= INT64_MAX - b else INT64_MAX


cdef class LogTail:
    """The offsets of one log, and how it gets longer."""

    def __cinit__(self, *args, **kwargs):
        self._batches = NULL
        self._parts = NULL
        self.place = -1
        self.dirty_since_ms = INT64_MAX

    def __init__(
            self, SegmentList segments not None, ProducersState producers not None,
            EpochState epochs not None, WakeState wakeup not None, *, int64_t log_start_offset,
            int64_t log_end_offset):
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.wakeup = wakeup
        self.log_start_offset = self.high_watermark = log_start_offset
        self.log_end_offset = self.recovery_point = log_end_offset

    def __dealloc__(self):
        PyMem_Free(self._batches)
        PyMem_Free(self._parts)

    # The offsets.

    @property
    def last_stable_offset(self):
        """Every transaction before it is decided, and the decision is committed."""
        return self.last_stable()

    cdef int64_t last_stable(self) except -1:
        cdef int64_t unstable = self.producers.first_unstable()
        if unstable < 0 or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def set_high_watermark(self, int64_t offset):
        """Everything before an offset, as far as the log has it, is committed."""
        self.move_high_watermark(offset)

    cdef int move_high_watermark(self, int64_t offset) except -1:
        """The only place where it changes."""
        self.high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        if self.producers._completed:
            self.producers.on_high_watermark(self.high_watermark)
        if not self.wakeup.is_awake:
            self.wakeup.wake()
        return 0

    def raise_high_watermark(self, int64_t offset):
        """Move it up; False if it is there already."""
        return self.raise_watermark(offset)

    cdef bint raise_watermark(self, int64_t offset) except -1:
        if min(offset, self.log_end_offset) <= self.high_watermark:
            return False
        self.move_high_watermark(offset)
        return True

    # Batches that were checked in full.

    def append(self, data, int64_t last_offset, int64_t max_timestamp, int64_t now_ms):
        """Write one batch, whose header has its final offsets. All or nothing."""
        self.segments.active_segment().append(data, last_offset, max_timestamp)
        self._note_appended(last_offset + 1, now_ms)

    def append_batches(self, data, batches, int64_t now_ms):
        """Write several with one write, each given as size, last offset and largest timestamp."""
        self.segments.active_segment().append_batches(data, batches)
        self._note_appended(<int64_t>batches[len(batches) - 1][1] + 1, now_ms)

    cdef int _note_appended(self, int64_t end_offset, int64_t now_ms) noexcept:
        self.log_end_offset = end_offset
        self.dirty_since_ms = min(self.dirty_since_ms, now_ms)
        return 0

    # The fast path.

    def append_fast(self, records, int64_t leader_epoch, int64_t now_ms):
        """Prepare and append one batch, in a writable buffer; its offset, None if it is declined.

        For a caller that has no frames, such as a test. What is declined has changed nothing.
        """
        cdef Py_buffer view
        cdef int64_t base_offset
        PyObject_GetBuffer(records, &view, PyBUF_WRITABLE)
        try:
            base_offset = self.prepare(
                <uint8_t*>view.buf, view.len, leader_epoch, now_ms)
            if base_offset < 0:
                return None
            self.append_prepared()
            return base_offset
        finally:
            PyBuffer_Release(&view)

    cdef int64_t prepare(
            self, uint8_t* batch, int64_t size, int64_t leader_epoch, int64_t now_ms) except -3:
        """Check and number a batch, which must stay where it is until it is appended: its offset.

        TAIL_DECLINED: it has to take the full path. TAIL_BUSY: `append_prepared` has to come first.
        """
        cdef BatchFields fields
        cdef int64_t last_offset, base_offset
        if self._count == 0 and not self._begin(now_ms):
            return TAIL_DECLINED
        if leader_epoch != self._epoch or not inspect(
                batch, size, self.fast_size_max,
                saturated_sum(now_ms, self.fast_future_max_ms), &fields):
            return TAIL_DECLINED
        base_offset = self._next_offset
        last_offset = base_offset + fields.last_offset_delta
        # Whatever would make `SegmentState.should_roll` say yes, or have to look into the log.
        if (size > self._segment.size_max - self._next_position
                or self._count >= self._count_max
                or last_offset > self._offset_max
                or fields.max_timestamp > self._timestamp_max):
            return TAIL_BUSY if self._count else TAIL_DECLINED
        if fields.producer_id != NO_PRODUCER_ID and not self._is_next(&fields):
            return TAIL_DECLINED
        if fields.is_compressed and not self._has_sound_records(batch, size):
            return TAIL_DECLINED
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

    cdef int64_t next_offset(self) noexcept:
        """The offset after what was prepared last."""
        return self._next_offset

    cdef bint _begin(self, int64_t now_ms) except -1:
        """Have a look at the log. False if an append has to take the full path."""
        cdef SegmentState segment = self.segments.active_segment()
        self._epoch = self.epochs.noted_epoch()
        if self._epoch < 0 or segment is None or self.is_closed:
            return False
        if not segment.is_ready or segment.file is None or (
                segment.size and segment.first_timestamp == INT64_MIN):
            segment.make_ready()
        if segment.indexes.is_full:
            return False
        self._segment = segment
        self._now_ms = now_ms
        self._next_position = segment.size
        self._next_offset = self.log_end_offset
        self._offset_max = saturated_sum(segment.base_offset, INT32_MAX)
        self._timestamp_max = INT64_MAX
        # In an empty segment the age of the second batch depends on the first one.
        self._count_max = 1 if segment.size == 0 else INT32_MAX
        if segment.size == 0:
            return True
        if segment.first_timestamp >= 0:
            self._timestamp_max = saturated_sum(segment.first_timestamp, max(segment.age_max_ms, 0))
            return segment.age_max_ms >= 0
        return now_ms - segment.created_ms <= segment.age_max_ms

    cdef bint _is_next(self, BatchFields* fields) except -1:
        """Whether a producer's batch simply follows its last one, prepared or in the log."""
        cdef BatchFields* prepared
        cdef ProducerState producer
        cdef int i
        for i in range(self._count - 1, -1, -1):
            prepared = &self._batches[i].fields
            if prepared.producer_id == fields.producer_id:
                return (
                    prepared.producer_epoch == fields.producer_epoch
                    and sequence_after(prepared.base_sequence, prepared.last_offset_delta + 1)
                    == fields.base_sequence
                )
        producer = self.producers.find(fields.producer_id)
        return (
            producer is not None and not self.producers._verifying
            and producer.is_followed_by(fields)
        )

    cdef bint _has_sound_records(self, uint8_t* batch, int64_t size) except -1:
        """Ask about a compressed batch, whose records only Python can unpack."""
        return self.is_sound(PyMemoryView_FromMemory(<char*>batch, size, PyBUF_READ))

    cdef int _reserve(self) except -1:
        """Make room for one more batch."""
        cdef int capacity = max(CAPACITY_MIN, 2 * self._capacity)
        cdef void* memory
        if self._count < self._capacity:
            return 0
        memory = PyMem_Realloc(self._batches, capacity * sizeof(PreparedBatch))
        if memory == NULL:
            raise MemoryError()
        self._batches = <PreparedBatch*>memory
        memory = PyMem_Realloc(self._parts, capacity * sizeof(iovec))
        if memory == NULL:
            raise MemoryError()
        self._parts = <iovec*>memory
        self._capacity = capacity
        return 0

    cdef int append_prepared(self) except -1:
        """Write what was prepared with one write. All or nothing."""
        cdef SegmentState segment = self._segment
        cdef int count = self._count
        if count == 0:
            return 0
        self._count = 0
        self._segment = None
        segment.write(self._parts, count, self._next_position - segment.size)
        self._note_batches(segment, count)
        self._note_appended(self._next_offset, self._now_ms)
        self.producers.end_offset = self._next_offset
        return 0

    cdef int _note_batches(self, SegmentState segment, int count) except -1:
        """The bytes are in the file: now the segment, its indexes and the producers know."""
        cdef PreparedBatch* batch
        cdef ProducerState producer
        cdef int i
        for i in range(count):
            batch = &self._batches[i]
            segment.indexes.note(
                segment.size, batch.size, batch.last_offset, batch.fields.max_timestamp)
            segment.size += batch.size
            if batch.fields.producer_id != NO_PRODUCER_ID:
                producer = self.producers.find(batch.fields.producer_id)
                producer.add(
                    sequence_after(batch.fields.base_sequence, batch.fields.last_offset_delta),
                    batch.last_offset, batch.fields.last_offset_delta, batch.fields.max_timestamp)
        return 0
