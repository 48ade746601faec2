"""What a connection is doing, for the other extension modules; see connection_state.pyx."""

from libc.stdint cimport int64_t, uint8_t

cdef class ConnectionState:
    # Whether answers can be sent still.
    cdef public bint is_open
    # Why it is not read, and why its frames take the full path: bits of `Mute` and of `FullPath`.
    cdef public int mute_reasons
    cdef public int full_path
    # Requests that the full path has yet to answer; answers that the fast path has deferred.
    cdef public int in_flight
    cdef public int deferred
    # Output that the peer has yet to take.
    cdef public int64_t unsent_bytes
    # Bytes received and not handled: a few that are carried to the next read, or those from `start`
    # to `end` in a buffer that the connection has for itself.
    cdef public int64_t carried_bytes
    cdef public int64_t start
    cdef public int64_t end
    cdef object _own
    cdef uint8_t* own_base
    cdef int64_t own_bytes
    # How much of its turn is used up, in frames of the fast path.
    cdef public int turn_frames
    # By the monotonic clock.
    cdef public int64_t last_active_ms
    # Counters, for the metrics.
    cdef public int64_t requests
    cdef public int64_t bytes_in
    cdef public int64_t bytes_out
    # Room for what decides about a connection's requests, and for which compiled code must not ask:
    # which version of the grants (ACLs) was looked at last, and how many bytes a quota allows yet.
    cdef public int64_t grants_version
    cdef public int64_t byte_allowance

    cdef bint takes_fast_path(self) noexcept
