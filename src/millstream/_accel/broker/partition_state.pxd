"""What a partition is to its clients, as typed fields; see partition_state.pyx."""

from libc.stdint cimport int64_t

from millstream._accel.broker.log_tail cimport LogTail

cdef class PartitionState:
    cdef public LogTail tail
    # Whether only the broker itself writes to it.
    cdef public bint is_internal
    cdef public bint is_leader
    cdef public int64_t leader_epoch
    # Whether too few replicas are in sync for acks=all.
    cdef public bint is_under_min_isr
    # Whether a record counts as written only when it is on disk.
    cdef public bint waits_for_disk
    # Whether answers wait for the high watermark or for the disk.
    cdef public bint has_acks
    # The other replicas by broker id, while this one leads.
    cdef public dict _followers
    # Fetches and fetch sessions to be told of every change.
    cdef public dict watchers
    # The operations that wait in the purgatory, by what they wait for.
    cdef public dict waiting
    # Who tells all of these.
    cdef public object notifier

    cdef bint advance(self, int64_t now_ms) except -1
    cdef int notify(self) except -1
