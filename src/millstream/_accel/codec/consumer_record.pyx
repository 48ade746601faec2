# cython: language_level=3, freethreading_compatible=True
"""`ConsumerRecord`, compiled.

`consumer_records` makes them from fetched bytes. Values only: nothing in one of them should refer
back to it, for they are not known to the garbage collector.
"""

from types import GenericAlias

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t


@cython.final
@cython.no_gc
@cython.freelist(4096)
cdef class ConsumerRecord:
    """One record as an application gets it: where it is, when it is from, what it says."""

    __match_args__ = (
        "topic", "partition", "offset", "timestamp", "key", "value", "headers",
        "timestamp_type", "leader_epoch")

    def __init__(
        self, str topic not None, int32_t partition, int64_t offset, int64_t timestamp, key, value,
        headers=(), int8_t timestamp_type=0, int32_t leader_epoch=-1,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_type = timestamp_type
        self.leader_epoch = leader_epoch

    @classmethod
    def __class_getitem__(cls, parameters):
        """`ConsumerRecord[str, bytes]`, for annotations."""
        return GenericAlias(cls, parameters)

    def _fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.key, self.value,
            self.headers, self.timestamp_type, self.leader_epoch)

    def __eq__(self, other):
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        return hash(self._fields())

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        return ConsumerRecord, self._fields()


cdef ConsumerRecord new_record():
    """An empty one. Made here, where the list of free ones is, it costs a third less."""
    return ConsumerRecord.__new__(ConsumerRecord)
