# cython: language_level=3
"""The handle of one record that was sent; twin of `client.producer.delivery.Delivery`.

The accumulator makes one for each record, so it is small, unknown to the garbage collector, and its
memory is used again. Everything else is asked of the record's batch.
"""

cimport cython
from libc.stdint cimport int64_t

from millstream.errors import OperationTimeout

cdef object until_done = None
cdef object RecordMetadata = None


def bind_results(wait, metadata):
    """How a `Delivery` waits in an event loop, and what it gives: parts of the layer above."""
    global until_done, RecordMetadata
    until_done = wait
    RecordMetadata = metadata


@cython.final
@cython.freelist(1024)
@cython.no_gc
cdef class Delivery:
    """What becomes of one record. Looking at it is optional: `flush()` raises for what is lost."""

    def __init__(self, batch not None, int64_t index, int64_t timestamp):
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
        return self._batch.locate(self._index)[0].is_done

    def result(self, timeout=None):
        """Wait up to `timeout` seconds and give the record's place, or raise why it was lost."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._metadata()

    def exception(self, timeout=None):
        """Wait up to `timeout` seconds and give the reason if the record was lost."""
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

    def __await__(self):
        if not self.done():
            self._batch.look(self._index)
            try:
                yield from until_done(self._batch)
            except BaseException:
                self._batch.look_away(self._index)
                raise
        return self.result(0)

    def _metadata(self):
        batch, index = self._batch.locate(self._index)
        offset = -1 if batch.base_offset < 0 else batch.base_offset + index
        timestamp = self._timestamp if batch.log_append_time < 0 else batch.log_append_time
        return RecordMetadata(batch.topic, batch.partition, offset, timestamp)
