# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""What a log keeps in memory: its segments, indexes, epochs and producers as typed fields.

The classes of `millstream.storage` inherit from these, so that compiled code and Python share one
copy of the state; `millstream.storage.log.log_state` has the plain version. Here is what an append
changes: bytes go to a segment's file, its indexes get the entries that are due, and a producer's
last batches are kept. One thread owns a log and all that it has.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MIN, int64_t, uint8_t
from libc.string cimport memmove

from millstream._accel.broker.client_batch cimport BatchFields
from millstream._accel.broker.files cimport iovec, ms_write_parts
from millstream._accel.wire cimport ms_write_big_endian

import os

from millstream.errors import InvalidArgument

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    # Python sees to the last entries: to the kept slot, and to what becomes full.
    KEPT_ENTRIES = 3
    # New entries go to the file when there are so many bytes of them.
    PENDING_BYTES_MAX = 4096
    UNKNOWN = -1
    NO_SEQUENCE = -1
    NO_TIMESTAMP = -1

UNREAD = INT64_MIN


cdef class WakeState:
    """Whether somebody looks after high watermarks from time to time, or has to be woken."""

    def __cinit__(self, *args, **kwargs):
        self.is_awake = True


cdef class FileState:
    """A file of the operating system's."""

    def __cinit__(self, *args, **kwargs):
        self.descriptor = -1
        self.preallocated_end = 0


cdef class IndexState:
    """The entries of a sparse index: those in its file and those that wait in memory."""

    def __cinit__(self, *args, **kwargs):
        self.known_count = UNKNOWN
        self.pending = bytearray()

    def __init__(self, int64_t base_offset, int64_t entry_count_max):
        self.base_offset = base_offset
        self.entry_count_max = entry_count_max

    cdef bint _has_room(self, int64_t offset, int64_t entry_bytes) noexcept:
        """Whether an index that is in use takes one more entry for an offset, in memory."""
        return (
            self.last is not None
            and 0 <= offset - self.base_offset <= INT32_MAX
            and 0 < self.known_count < self.entry_count_max - KEPT_ENTRIES
            and PyByteArray_GET_SIZE(self.pending) + entry_bytes < PENDING_BYTES_MAX
        )

    cdef int _add(
            self, int64_t first, int first_bytes, int64_t second, int second_bytes) except -1:
        """Two big-endian numbers behind the entries that wait in memory."""
        cdef int64_t size = PyByteArray_GET_SIZE(self.pending)
        cdef uint8_t* at
        PyByteArray_Resize(self.pending, size + first_bytes + second_bytes)
        at = <uint8_t*>PyByteArray_AS_STRING(self.pending) + size
        ms_write_big_endian(at, first, first_bytes)
        ms_write_big_endian(at + first_bytes, second, second_bytes)
        self.known_count += 1
        return 0


cdef class SegmentIndexState:
    """When the indexes of a segment get their entries, and the largest timestamp so far."""

    def note_batch(
            self, int64_t position, int64_t size, int64_t last_offset, int64_t max_timestamp):
        """A batch was written: remember its time, and add entries if they are due."""
        self.note(position, size, last_offset, max_timestamp)

    cdef int note(
            self, int64_t position, int64_t size, int64_t last_offset,
            int64_t max_timestamp) except -1:
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp
            self.largest_offset = last_offset
        if self.bytes_since_entry > self.interval_bytes:
            if not self._add_ordinary(last_offset, position):
                self.add_entries(last_offset, position)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        return 0

    cdef bint _add_ordinary(self, int64_t last_offset, int64_t position) except -1:
        """Add to indexes in use that have room; False: nothing was done, Python sees to it."""
        cdef IndexState offsets = self.offsets, times = self.times
        if (not offsets._has_room(last_offset, OFFSET_ENTRY_BYTES)
                or last_offset <= <int64_t>offsets.last[0]
                or position > INT32_MAX
                or not times._has_room(self.largest_offset, TIME_ENTRY_BYTES)
                or self.largest_offset < <int64_t>times.last[1]):
            return False
        offsets._add(last_offset - offsets.base_offset, 4, position, 4)
        offsets.last = (last_offset, position)
        if self.largest_timestamp > <int64_t>times.last[0]:
            times._add(self.largest_timestamp, 8, self.largest_offset - times.base_offset, 4)
            times.last = (self.largest_timestamp, self.largest_offset)
        return True


cdef class SegmentState:
    """The records from a base offset on: what of the file counts, and when it is full."""

    def __cinit__(self, *args, **kwargs):
        self.first_timestamp = INT64_MIN

    def append(self, data, int64_t last_offset, int64_t max_timestamp):
        """Write one batch, whose header has its final offsets. All or nothing."""
        self.append_batches(data, ((len(data), last_offset, max_timestamp),))

    def append_batches(self, data, batches):
        """Write batches with one write, each given as size, last offset and largest timestamp."""
        cdef Py_buffer view
        cdef iovec part
        cdef int64_t size, last_offset, max_timestamp, total = 0
        for size, last_offset, _ in batches:
            self._require_near(last_offset)
            total += size
        if total != len(data):
            raise InvalidArgument("the batches do not fill the bytes to append")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            part.iov_base = view.buf
            part.iov_len = view.len
            self.write(&part, 1, view.len)
        finally:
            PyBuffer_Release(&view)
        for size, last_offset, max_timestamp in batches:
            self.indexes.note(self.size, size, last_offset, max_timestamp)
            self.size += size

    def should_roll(
            self, int64_t incoming_bytes, int64_t last_offset, int64_t max_timestamp,
            int64_t now_ms):
        """Whether a batch belongs into a new segment: by size, age, a full index or its offset."""
        if (incoming_bytes > self.size_max - self.size
                or last_offset - self.base_offset > INT32_MAX or self.indexes.is_full):
            return True
        return self.size > 0 and self.age_ms(max_timestamp, now_ms) > self.age_max_ms

    def age_ms(self, int64_t max_timestamp, int64_t now_ms):
        """How old the segment is, by its records' own time if they have one."""
        if self.first_timestamp == INT64_MIN and self.size:
            self.read_first_timestamp()
        if self.first_timestamp < 0:
            return now_ms - self.created_ms
        return max_timestamp - self.first_timestamp

    def _require_near(self, int64_t last_offset):
        if not 0 <= last_offset - self.base_offset <= INT32_MAX:
            raise InvalidArgument(
                f"offset {last_offset} is too far from the segment's base {self.base_offset}")

    cdef int write(self, iovec* parts, int count, int64_t size) except -1:
        """Write at the end of what counts; the caller adds to `size`. The parts are changed."""
        cdef FileState file
        cdef int64_t position = self.size
        cdef int error, descriptor
        if not self.is_ready or self.file is None:
            self.make_ready()
        self.is_changed = True
        if not isinstance(self.file, FileState):
            self._write_otherwise(
                [(<char*>parts[i].iov_base)[:parts[i].iov_len] for i in range(count)])
            return 0
        file = <FileState>self.file
        if position + size > file.preallocated_end:
            self.file.preallocate(position, position + size)
        descriptor = file.descriptor
        with nogil:
            error = ms_write_parts(descriptor, parts, count, position)
        if error:
            self._cut()
            raise OSError(error, os.strerror(error))
        return 0

    def _write_otherwise(self, views):
        """To a file that is none of the operating system's."""
        try:
            if len(views) == 1:
                self.file.append(views[0], self.size)
            else:
                self.file.pwritev(views, self.size)
        except OSError:
            self._cut()
            raise

    cdef int _cut(self) except -1:
        """What is in the file is beyond `size`: never read, and overwritten by the next append."""
        try:
            self.file.truncate(self.size)
        except OSError:
            pass
        return 0


cdef class SegmentList:
    """The segments of a log, in order, and where each of them begins."""

    def __cinit__(self, *args, **kwargs):
        self.segments = []
        self.bases = []

    cdef SegmentState active_segment(self):
        """The one that is appended to; None of a log that is not loaded."""
        cdef Py_ssize_t count = len(self.segments)
        return <SegmentState?>self.segments[count - 1] if count else None

    cdef SegmentState floor_segment(self, int64_t offset):
        """The last segment that begins at or before an offset, or None."""
        cdef Py_ssize_t low = 0, high = len(self.bases), middle
        while low < high:
            middle = (low + high) >> 1
            if <int64_t>self.bases[middle] <= offset:
                low = middle + 1
            else:
                high = middle
        return <SegmentState?>self.segments[low - 1] if low else None


cdef class EpochState:
    """Which leader epoch began at which offset."""

    def __cinit__(self, *args, **kwargs):
        self._entries = []

    cdef int64_t noted_epoch(self) except -2:
        """The newest epoch if the checkpoint has it; -1 if not."""
        cdef Py_ssize_t count = len(self._entries)
        if self.is_dirty or count == 0:
            return UNKNOWN
        return (<tuple>self._entries[count - 1])[0]


cdef class ProducerState:
    """One producer's epoch, last batches and open transaction."""

    def __init__(self, int64_t producer_id, int64_t epoch):
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = NO_TIMESTAMP

    @property
    def last_sequence(self):
        """The sequence of the last record of the current epoch, or -1."""
        return self._kept[self._count - 1].last_sequence if self._count else NO_SEQUENCE

    @property
    def last_offset(self):
        """The offset of that record, or -1."""
        return self._kept[self._count - 1].last_offset if self._count else -1

    def kept_batches(self):
        """The batches that a retry is recognised among, oldest first, each as four numbers."""
        return [
            (each.last_sequence, each.last_offset, each.offset_delta, each.timestamp)
            for each in self._kept[:self._count]
        ]

    def add_batch(
            self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta,
            int64_t timestamp):
        """A batch of the current epoch is in the log; the oldest one is forgotten for it."""
        self.add(last_sequence, last_offset, offset_delta, timestamp)

    def move_to_epoch(self, int64_t epoch):
        """Begin an epoch: the batches of another one cannot be retried any more."""
        if epoch != self.epoch:
            self.epoch = epoch
            self._count = 0

    cdef int add(
            self, int64_t last_sequence, int64_t last_offset, int64_t offset_delta,
            int64_t timestamp) except -1:
        if self._count == BATCHES_KEPT:
            memmove(&self._kept[0], &self._kept[1], (BATCHES_KEPT - 1) * sizeof(KeptBatch))
            self._count -= 1
        self._kept[self._count] = KeptBatch(last_sequence, last_offset, offset_delta, timestamp)
        self._count += 1
        self.last_timestamp = timestamp
        return 0

    cdef bint is_followed_by(self, BatchFields* fields) noexcept:
        """Whether a batch outside of transactions simply follows the last one."""
        cdef int64_t last = self._kept[self._count - 1].last_sequence if self._count else -1
        cdef int64_t first = fields.base_sequence
        cdef int i
        if (self.epoch != fields.producer_epoch or self.transaction_first_offset is not None
                or sequence_after(last, 1) != first):
            return False
        for i in range(self._count):
            last = self._kept[i].last_sequence
            # Sequences begin again one day: a batch that was seen is a retry and no next one.
            if (sequence_after(last, -self._kept[i].offset_delta) == first
                    and sequence_after(first, fields.last_offset_delta) == last):
                return False
        return True


cdef class ProducersState:
    """The producers of a log and their transactions."""

    def __cinit__(self, *args, **kwargs):
        self._producers = {}
        self._ongoing = {}
        self._completed = []
        self._verifying = {}

    cdef ProducerState find(self, int64_t producer_id):
        """A producer, or None."""
        cdef PyObject* found = PyDict_GetItem(self._producers, producer_id)
        return None if found == NULL else <ProducerState?><object>found

    cdef int64_t first_unstable(self) except -2:
        """The first offset of a transaction that is open or not committed; -1 if there is none."""
        cdef PyObject* first = NULL
        cdef PyObject* producer_id = NULL
        cdef Py_ssize_t position = 0
        cdef int64_t ongoing = UNKNOWN, completed
        if PyDict_Next(self._ongoing, &position, &first, &producer_id):
            ongoing = <int64_t><object>first
        if not self._completed:
            return ongoing
        completed = (<tuple>self._completed[0])[0]
        return completed if ongoing == UNKNOWN else min(ongoing, completed)

    def first_unstable_offset(self):
        """The first offset of a transaction that is open or whose marker is not committed."""
        cdef int64_t offset = self.first_unstable()
        return None if offset == UNKNOWN else offset
