# cython: language_level=3, freethreading_compatible=True
"""What a partition is to its clients, and the one place that moves a leader's high watermark.

`Partition` inherits from it; `millstream.replica.partition_state` is the plain version. The full
path and the fast path both end here when the log has grown.
"""

from libc.stdint cimport int64_t

from millstream._accel.broker.log_tail cimport LogTail


cdef class PartitionState:
    """The role of a replica, and what of its log is committed."""

    def __cinit__(self, *args, **kwargs):
        self._followers = {}
        self.watchers = {}
        self.waiting = {}

    def __init__(self, LogTail tail not None):
        self.tail = tail
        self.leader_epoch = -1

    def advance_high_watermark(self, int64_t now_ms):
        """Move it as far as the rule of replicas allows; whether it has risen."""
        cdef bint is_raised = self.advance(now_ms)
        if is_raised:
            self.notify()
        return is_raised

    def on_append(self, int64_t now_ms):
        """The log has grown: commit what may be committed, and tell everybody who waits."""
        self.advance(now_ms)
        self.notify()

    def changed(self):
        """Something that others wait for has changed: records, offsets, the leader, a fault."""
        self.notify()

    cdef bint advance(self, int64_t now_ms) except -1:
        """The rule: what this replica has, or has on disk; with followers, what all have."""
        cdef int64_t offset
        if not self.is_leader or self.is_under_min_isr:
            return False
        offset = self.tail.recovery_point if self.waits_for_disk else self.tail.log_end_offset
        if self._followers:
            offset = self.least_end_offset(offset, now_ms)
        return self.tail.raise_watermark(offset)

    cdef int notify(self) except -1:
        if self.notifier is not None and (
                self.watchers or self.has_acks or self in self.waiting):
            self.notifier.changed(self)
        return 0
