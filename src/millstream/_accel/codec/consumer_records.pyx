# cython: language_level=3, freethreading_compatible=True
# cython: boundscheck=False, wraparound=False, cdivision=True
"""Fetched bytes to the records an application gets, compiled.

A consumer makes one `FetchedBatches` of each partition in each answer to a fetch and takes records
or Arrow rows from it until it is empty. Checksums, control batches and aborted transactions are
dealt with here; decompression and the formats before v2 are the caller's functions.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from millstream._accel.arrow.builder cimport ArrowRecordsBuilder, ms_append_job
from millstream._accel.codec.batch_header cimport (
    BASE_TIMESTAMP_AT, CODEC_BITS, CONTROL_BIT, COUNT_AT, LENGTH_MIN, LOG_APPEND_TIME_BIT, MAGIC,
    MAGIC_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, TRANSACTIONAL_BIT, attributes_of, batch_size,
    epoch_of, next_offset_of)
from millstream._accel.codec.consumer_record cimport ConsumerRecord, new_record
from millstream._accel.codec.crc32c cimport checksum
from millstream._accel.codec.record_codec cimport check_count, check_end, raise_fault, read_headers
from millstream._accel.wire cimport (
    MS_CRC_AT, MS_CRC_END, MS_HEADER_SIZE, MS_LENGTH_END, ms_fault, ms_read_big_endian,
    ms_read_record, ms_record)

from millstream._accel.codec import faults

__all__ = ["FetchedBatches"]

cdef enum:
    ABORT = 0
    # Checksums of less are done before another thread would have the GIL.
    RELEASE_GIL_SIZE = 64 * 1024


# The collector must not clear it: that would drop the fetched bytes without releasing them. For the
# same reason it holds the bytes themselves, and not a memoryview, which the collector may clear.
@cython.no_gc_clear
cdef class FetchedBatches:
    """The batches of one partition that one fetch brought, taken from front to back.

    `position` is the offset of the next record that will be given. A fault is raised when it is
    the first thing in the way: what lies before it is given first. One thread at a time.
    """

    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly int64_t position
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t end_offset
    cdef readonly int32_t end_epoch
    cdef readonly Py_ssize_t size
    cdef Py_buffer _view
    cdef bint _has_view
    # The first of the fetched bytes, of which `_view` may have more.
    cdef const uint8_t* _first
    cdef bint _check_crc
    cdef object _whole
    cdef object _decompress
    cdef object _read_legacy
    cdef object _key_deserializer
    cdef object _value_deserializer
    cdef object _aborted
    cdef list _waiting
    cdef set _aborting
    # Where the batch is that is open, or the next one; and the end of the last whole one.
    cdef Py_ssize_t _at
    cdef Py_ssize_t _end
    # Whether who opens a batch sees to its checksum.
    cdef bint _leaves_crc
    # The open batch: its records, how far they are read, what its header says.
    cdef bint _is_open
    cdef bint _is_crc_due
    cdef object _body_owner
    cdef const uint8_t* _body
    cdef Py_ssize_t _body_size
    cdef const uint8_t* _next
    cdef int64_t _count
    cdef int64_t _left
    cdef int64_t _base_offset
    cdef int64_t _base_timestamp
    cdef bint _is_stamped
    cdef int64_t _stamp

    def __init__(
        self, data, str topic not None, int32_t partition, int64_t position, *, decompress,
        read_legacy, bint check_crc=True, aborted=None, key_deserializer=None,
        value_deserializer=None,
    ):
        """`aborted` are (producer id, first offset) of transactions to leave out, None reads all.

        `decompress(codec, view)` gives the records section of a compressed batch;
        `read_legacy(view, check_crc)` gives (body, count, base offset, base timestamp, append
        timestamp or None) for a message of an old format, as if it were of today's. Deserializers
        are called with the topic, the bytes and the headers.
        """
        if self._has_view:
            raise RuntimeError("FetchedBatches is made once")
        self.topic = topic
        self.partition = partition
        self.leader_epoch = -1
        self.end_offset = position
        self.end_epoch = -1
        self._decompress = decompress
        self._read_legacy = read_legacy
        self._check_crc = check_crc
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._aborted = aborted
        self._hold(data)
        self._find_end()
        self._start_from(position)

    cdef int _hold(self, data) except -1:
        """Find the bytes and keep what they belong to."""
        cdef Py_buffer given
        PyObject_GetBuffer(data, &given, PyBUF_SIMPLE)
        try:
            owner = data.obj if isinstance(data, memoryview) and data.obj is not None else data
            PyObject_GetBuffer(owner, &self._view, PyBUF_SIMPLE)
            self._has_view = True
            self._first = <const uint8_t*>given.buf
            self.size = given.len
        finally:
            PyBuffer_Release(&given)
        return 0

    def __dealloc__(self):
        if self._has_view:
            PyBuffer_Release(&self._view)

    cdef inline const uint8_t* _bytes(self):
        return self._first

    cdef int _find_end(self) except -1:
        """Look at the headers only: where the whole batches end, in bytes and in offsets."""
        cdef const uint8_t* batch
        cdef int64_t size
        while self.size - self._end > MAGIC_AT:
            batch = self._bytes() + self._end
            size = batch_size(batch)
            if not self._is_header_sound(batch, size):
                if self._end == 0:
                    raise faults.bad_header(batch[MAGIC_AT], size - MS_LENGTH_END)
                return 0  # A fetch from here on will say it again.
            if size > self.size - self._end:
                return 0
            self._end += size
            self.end_offset = max(self.end_offset, next_offset_of(batch))
            self.end_epoch = epoch_of(batch)
        return 0

    cdef inline bint _is_header_sound(self, const uint8_t* batch, int64_t size):
        if batch[MAGIC_AT] > MAGIC:
            return False
        return size - MS_LENGTH_END >= (
            LENGTH_MIN if batch[MAGIC_AT] == MAGIC else 22 if batch[MAGIC_AT] else 14)

    cdef int _start_from(self, int64_t position) except -1:
        self.position = position
        self._at = 0
        self._waiting = sorted(
            [(first, producer) for producer, first in self._aborted], reverse=True
        ) if self._aborted else None
        self._aborting = set()
        self._close()
        return 0

    @property
    def is_empty(self):
        """Whether everything was taken."""
        return self._at >= self._end

    @property
    def is_cut_off(self):
        """Whether there is not even one whole batch."""
        return self.size > 0 and self._end == 0

    # ---- from batch to batch ----

    def next_batch(self):
        """The bytes of the batch whose records come next; empty if there is none."""
        cdef Py_ssize_t end = self._at
        if self._at < self._end:
            end += batch_size(self._bytes() + self._at)
        return bytes(self._slice(self._at, end))

    def skip_batch(self):
        """Go behind that batch as if all of it had been taken: it cannot be read."""
        if self._at < self._end:
            self._leave()

    cdef int _close(self) except -1:
        self._is_open = False
        self._is_crc_due = False
        self._body_owner = None
        self._left = 0
        return 0

    cdef int _leave(self) except -1:
        """Go behind the batch: it is read, or it is not for applications."""
        cdef const uint8_t* batch = self._bytes() + self._at
        self.position = max(self.position, next_offset_of(batch))
        self.leader_epoch = max(self.leader_epoch, epoch_of(batch))
        self._at += batch_size(batch)
        self._close()
        return 0

    cdef bint _open_next(self) except -1:
        """Open the next batch that has something to give, unless one is open."""
        cdef const uint8_t* batch
        while not self._is_open:
            if self._at >= self._end:
                return False
            batch = self._bytes() + self._at
            if next_offset_of(batch) <= self.position and not self._waiting:
                self._leave()
            elif batch[MAGIC_AT] < MAGIC:
                self._open_legacy(batch)
            elif self._is_hidden(batch):
                self._leave()
            else:
                self._open(batch)
        return True

    cdef int _require_crc(self, const uint8_t* batch) except -1:
        cdef uint32_t computed
        cdef size_t size = batch_size(batch) - MS_CRC_END
        cdef uint32_t stored = <uint32_t>ms_read_big_endian(batch + MS_CRC_AT, 4)
        if size >= RELEASE_GIL_SIZE:
            with nogil:
                computed = checksum(0, batch + MS_CRC_END, size)
        else:
            computed = checksum(0, batch + MS_CRC_END, size)
        if computed != stored:
            raise faults.bad_checksum(ms_read_big_endian(batch, 8), stored, computed)
        return 0

    cdef bint _is_hidden(self, const uint8_t* batch) except -1:
        """Whether the batch is a marker, or part of a transaction that was aborted."""
        cdef int16_t attributes = attributes_of(batch)
        cdef int64_t last = next_offset_of(batch) - 1
        self._is_crc_due = (
            self._check_crc and self._leaves_crc and not attributes & (CONTROL_BIT | CODEC_BITS)
            and not self._waiting and not self._aborting)
        if self._check_crc and not self._is_crc_due:
            self._require_crc(batch)
        while self._waiting and self._waiting[len(self._waiting) - 1][0] <= last:
            self._aborting.add(self._waiting.pop()[1])
        if attributes & CONTROL_BIT:
            if self._aborting and is_abort(batch):
                self._aborting.discard(ms_read_big_endian(batch + PRODUCER_ID_AT, 8))
            return True
        return (
            len(self._aborting) > 0 and attributes & TRANSACTIONAL_BIT
            and ms_read_big_endian(batch + PRODUCER_ID_AT, 8) in self._aborting)

    cdef int _open(self, const uint8_t* batch) except -1:
        cdef int16_t attributes = attributes_of(batch)
        cdef Py_ssize_t size = batch_size(batch)
        self._body = batch + MS_HEADER_SIZE
        self._body_size = size - MS_HEADER_SIZE
        if attributes & CODEC_BITS and self._body_size:
            self._body_owner = self._decompress(
                attributes & CODEC_BITS, self._slice(self._at + MS_HEADER_SIZE, self._at + size))
            self._point_to_owner()
        self._count = <int32_t>ms_read_big_endian(batch + COUNT_AT, 4)
        if self._count < 0 and self._is_crc_due:
            self._require_crc(batch)
        check_count(self._count)
        self._base_offset = ms_read_big_endian(batch, 8)
        self._is_stamped = (attributes & LOG_APPEND_TIME_BIT) != 0
        self._base_timestamp = ms_read_big_endian(batch + BASE_TIMESTAMP_AT, 8)
        self._stamp = ms_read_big_endian(batch + MAX_TIMESTAMP_AT, 8)
        self._next = self._body
        self._left = self._count
        self._is_open = True
        return 0

    cdef int _open_legacy(self, const uint8_t* batch) except -1:
        """An old message, which the caller has rewritten as a body of today."""
        body, self._count, self._base_offset, self._base_timestamp, stamp = self._read_legacy(
            self._slice(self._at, self._at + batch_size(batch)), self._check_crc)
        self._body_owner = body
        self._point_to_owner()
        self._is_stamped = stamp is not None
        self._stamp = 0 if stamp is None else stamp
        self._next = self._body
        self._left = self._count
        self._is_open = True
        return 0

    cdef object _slice(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Py_ssize_t skipped = self._first - <const uint8_t*>self._view.buf
        if self._whole is None:
            self._whole = memoryview(<object>self._view.obj).cast("B")
        return self._whole[skipped + start:skipped + stop]

    cdef int _point_to_owner(self) except -1:
        cdef Py_buffer view
        if type(self._body_owner) is not bytes:
            self._body_owner = bytes(self._body_owner)
        PyObject_GetBuffer(self._body_owner, &view, PyBUF_SIMPLE)
        self._body = <const uint8_t*>view.buf
        self._body_size = view.len
        PyBuffer_Release(&view)  # Bytes stay where they are, and _body_owner keeps them.
        return 0

    # ---- records ----

    def take(self, Py_ssize_t count):
        """The next records, `count` at most; an empty list when there are no more."""
        cdef list taken = []
        cdef int64_t start = self.position
        try:
            while len(taken) < count and self._open_next():
                self._take_open(taken, count)
        except Exception:
            if not taken:
                raise
            # They go first; the fault is still in the way when somebody asks again.
        except BaseException:
            self._start_from(start)  # An interrupt loses nothing.
            raise
        return taken

    cdef int _take_open(self, list taken, Py_ssize_t count) except -1:
        cdef const uint8_t* after
        cdef ms_record record
        cdef ms_fault fault
        cdef int64_t base_timestamp = 0 if self._is_stamped else self._base_timestamp
        cdef int32_t epoch = epoch_of(self._bytes() + self._at)
        while self._left > 0 and len(taken) < count:
            after = ms_read_record(
                self._next, self._body + self._body_size, self._base_offset, base_timestamp,
                &record, &fault)
            if after is NULL:
                raise_fault(&fault, self._count - self._left, self._body)
            if record.offset >= self.position:
                if self._is_stamped:
                    record.timestamp = self._stamp
                taken.append(self._make(&record, epoch))
                self.position = record.offset + 1
                self.leader_epoch = epoch
            self._next = after
            self._left -= 1
        if self._left <= 0:
            check_end(self._next, self._body, self._body_size, self._count)
            self._leave()
        return 0

    cdef ConsumerRecord _make(self, ms_record* read, int32_t epoch):
        cdef ConsumerRecord record = new_record()
        record.topic = self.topic
        record.partition = self.partition
        record.leader_epoch = epoch
        record.offset = read.offset
        record.timestamp = read.timestamp
        record.timestamp_type = self._is_stamped
        record.headers = read_headers(read) if read.header_count else ()
        if read.key_length >= 0:
            record.key = PyBytes_FromStringAndSize(<const char*>read.key, read.key_length)
        if read.value_length >= 0:
            record.value = PyBytes_FromStringAndSize(<const char*>read.value, read.value_length)
        if self._key_deserializer is not None or self._value_deserializer is not None:
            self._deserialize(record)
        return record

    cdef int _deserialize(self, ConsumerRecord record) except -1:
        part = "key"
        try:
            if self._key_deserializer is not None and record.key is not None:
                record.key = self._key_deserializer(self.topic, record.key, record.headers)
            part = "value"
            if self._value_deserializer is not None and record.value is not None:
                record.value = self._value_deserializer(
                    self.topic, record.value, record.headers)
        except Exception as error:
            raise faults.bad_value(
                part, self.topic, self.partition, record.offset, error) from error
        return 0

    # ---- columns ----

    def take_arrow(self, builder, int64_t byte_limit, int64_t to_offset=INT64_MAX):
        """Append batches to an ArrowRecordsBuilder up to an offset; the rows added.

        Ends after the batch with which the builder has `byte_limit` bytes. What has `append` and
        `byte_count` can stand in for the builder.
        """
        cdef int64_t rows = 0
        self._leaves_crc = isinstance(builder, ArrowRecordsBuilder)
        try:
            while (
                self.position < to_offset and builder.byte_count < byte_limit and self._open_next()
            ):
                rows += self._append_open(builder, to_offset)
        except Exception:
            self._close()  # Its checksum may be wrong: it is opened anew.
            if not rows:
                raise
        finally:
            self._leaves_crc = False
        return rows

    cdef int64_t _append_open(self, builder, int64_t to_offset) except -1:
        cdef int64_t rows
        cdef const uint8_t* batch = self._bytes() + self._at
        if self._leaves_crc:
            rows = self._append_to_kernel(builder, batch, to_offset)
        else:
            rows = builder.append(
                self._body_owner if self._body_owner is not None else self._slice(
                    self._at + MS_HEADER_SIZE, self._at + batch_size(batch)),
                self._count, self._base_offset, self._base_timestamp,
                self._stamp if self._is_stamped else None, self.partition, self.position, to_offset)
        if next_offset_of(batch) <= to_offset:
            self._leave()
        else:
            self.position = to_offset
            self.leader_epoch = epoch_of(batch)
            self._close()  # The rest is read from its start, should somebody want it.
        return rows

    cdef int64_t _append_to_kernel(
        self, ArrowRecordsBuilder builder, const uint8_t* batch, int64_t to_offset
    ) except -1:
        """The same without a call of Python, and with the checksum taken on the way."""
        cdef ms_append_job job
        memset(&job, 0, sizeof(job))
        job.body = self._body
        job.size = self._body_size
        job.count = self._count
        job.base_offset = self._base_offset
        job.base_timestamp = self._base_timestamp
        job.has_append_timestamp = self._is_stamped
        job.append_timestamp = self._stamp
        job.partition = self.partition
        job.from_offset = self.position
        job.to_offset = to_offset
        if self._is_crc_due:
            job.checksum = checksum
            job.crc = checksum(0, batch + MS_CRC_END, MS_HEADER_SIZE - MS_CRC_END)
            job.crc_stored = <uint32_t>ms_read_big_endian(batch + MS_CRC_AT, 4)
        return builder.add(&job)


cdef bint is_abort(const uint8_t* batch) except -1:
    """Whether a control batch, whose one record is never compressed, aborts a transaction."""
    cdef ms_record record
    cdef ms_fault fault
    cdef const uint8_t* body = batch + MS_HEADER_SIZE
    if <int32_t>ms_read_big_endian(batch + COUNT_AT, 4) < 1:
        return False  # Compaction took the marker: the transaction ended before.
    if ms_read_record(body, batch + batch_size(batch), 0, 0, &record, &fault) is NULL:
        raise_fault(&fault, 0, body)
    return record.key_length >= 4 and <int16_t>ms_read_big_endian(record.key + 2, 2) == ABORT
