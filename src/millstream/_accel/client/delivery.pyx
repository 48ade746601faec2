# cython: language_level=3
"""The handle of one record that was sent, compiled.

The accumulator makes one for each record, so it is small, unknown to the garbage collector, and its
memory is used again. Everything else is asked of the record's batch.
"""

cimport cython
from libc.stdint cimport int64_t

from millstream.errors import OperationTimeout

cdef extern from *:
    """
    /* What the class itself would make, without the call of its constructor. */
    static PyObject *ms_new_row(
        PyObject *type, PyObject *topic, PyObject *partition, PyObject *offset, PyObject *timestamp)
    {
        PyObject *items[] = {topic, partition, offset, timestamp};
        PyObject *row = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, 4);
        for (int i = 0; row && i < 4; i++) {
            Py_INCREF(items[i]);
            PyTuple_SET_ITEM(row, i, items[i]);
        }
        return row;
    }
    """
    object ms_new_row(object type, object topic, object partition, object offset, object timestamp)

FIELDS = ("topic", "partition", "offset", "timestamp")

cdef object until_done = None
cdef object RecordMetadata = None


def bind_results(wait, metadata):
    """How a `Delivery` waits in an event loop, and what it gives: parts of the layer above."""
    if not issubclass(metadata, tuple) or metadata._fields != FIELDS:
        raise TypeError(f"not a tuple of {', '.join(FIELDS)}: {metadata!r}")
    global until_done, RecordMetadata
    until_done = wait
    RecordMetadata = metadata


cdef class BatchOutcome:
    """What became of the records of one batch: the part of a `ProducerBatch` that handles read."""

    def __init__(self, topic, int64_t partition):
        self.topic = topic
        self.partition = partition
        self.base_offset = -1
        self.log_append_time = -1


@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Delivery:
    """What becomes of one record. Looking at it is optional: `flush()` raises for what is lost."""

    def __init__(self, BatchOutcome batch not None, int64_t index, int64_t timestamp):
        self._batch = batch
        self._index = index
        self._timestamp = timestamp

    def __repr__(self):
        state = "pending"
        if self.done():
            batch, index = self._batch.locate(self._index)
            error = batch.error_of(index)
            state = f"offset {self._metadata().offset}" if error is None else f"lost: {error!r}"
        return f"<Delivery to {self.topic}-{self.partition}, {state}>"

    def __reduce__(self):
        raise TypeError("a Delivery belongs to the producer that sent the record")

    @property
    def topic(self):
        """Where it goes."""
        return self._batch.topic

    @property
    def partition(self):
        """Which partition was chosen."""
        return self._batch.partition

    def done(self):
        """Whether it is known what became of the record."""
        if self._batch.parts is None:
            return self._batch.is_done
        return self._batch.locate(self._index)[0].is_done

    def result(self, timeout=None):
        """Wait up to `timeout` seconds and give the record's place, or raise why it was lost."""
        if not self._is_well():
            error = self.exception(timeout)
            if error is not None:
                raise error
        return self._metadata()

    cdef bint _is_well(self) noexcept:
        """Whether it is known to be written, as nearly all are: then there is no more to ask."""
        return self._batch.is_done and self._batch.error is None and self._batch.parts is None

    def exception(self, timeout=None):
        """Wait up to `timeout` seconds and give the reason if the record was lost."""
        if self._is_well():
            return None
        self._batch.look(self._index)
        if not self.done() and not self._batch.wait(timeout):
            self._batch.look_away(self._index)
            raise OperationTimeout(
                f"the record to {self.topic}-{self.partition} is not acknowledged after "
                f"{timeout} s; it is still being sent")
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index)

    def add_done_callback(self, callback):
        """Call `callback(delivery)` on the producer's dispatcher thread once it is done."""
        self._batch.look(self._index)
        self._batch.call_back(callback, self)

    def observe(self, callback):
        """As `add_done_callback`, for who only watches: a loss stays one that nobody has seen."""
        self._batch.call_back(callback, self)

    def outcome(self):
        """What became of it, once it is done, without counting as having looked."""
        batch, index = self._batch.locate(self._index)
        return batch.error_of(index) or self._metadata()

    def mark_seen(self):
        """Somebody is going to be told: a loss is not one that nobody has looked at."""
        self._batch.look(self._index)

    def __await__(self):
        if not self.done():
            self._batch.look(self._index)
            try:
                yield from until_done(self._batch)
            except BaseException:
                self._batch.look_away(self._index)
                raise
        return self.result(0)

    cdef object _metadata(self):
        cdef BatchOutcome batch = self._batch
        cdef int64_t index = self._index
        if batch.parts is not None:
            batch, index = batch.locate(index)
        return ms_new_row(
            RecordMetadata,
            batch.topic,
            batch.partition,
            -1 if batch.base_offset < 0 else batch.base_offset + index,
            self._timestamp if batch.log_append_time < 0 else batch.log_append_time,
        )


def tell_all(list told not None, on_error):
    """Call functions of users, each of which is followed by the handle it gets, and forget both.

    An error in one must not keep the others from being called.
    """
    cdef Py_ssize_t i
    for i in range(0, len(told) - 1, 2):
        function = told[i]
        try:
            function(told[i + 1])
        except Exception:
            on_error(function)
    told.clear()
